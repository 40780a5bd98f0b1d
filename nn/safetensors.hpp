#pragma once
// Files of tensors in the format safetensors (github.com/huggingface/safetensors): a length, a JSON header, the data.
//
//   const Safetensors file(io::real_file_system(), "weights.safetensors");
//   for (const auto& [name, entry] : file.entries()) …          // type, shape, place in the file
//   file.read("conv1.weight", bytes);
//
// Types: F32, F64 and BF16. Other types of the format are refused when a tensor of that type is read. Not collective.
#include <aloni/core/index.hpp>
#include <aloni/core/io/file_system.hpp>
#include <aloni/nn/local/element_type.hpp>

#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace aloni::nn {

class Safetensors {
 public:
  struct Entry {
    std::string type;  ///< as in the file: "F32"
    std::vector<Index> shape;
    Index offset = 0, bytes = 0;  ///< in the file
  };

  /// Reads the header. Throws FileError for a missing, truncated or malformed file: offsets out of the file, data that
  /// overlap or have gaps, sizes that differ from the shape.
  Safetensors(io::FileSystem& files, std::string path);

  const std::string& path() const { return path_; }
  const std::map<std::string, Entry>& entries() const { return entries_; }
  /// Texts of the file's author.
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

  /// Reads a tensor as it lies in the file, without a conversion. @pre there is this entry, and it has this size
  /// Throws FileError.
  void read(const std::string& name, std::span<std::byte> bytes) const;

 private:
  io::FileSystem& files_;
  std::string path_;
  std::map<std::string, Entry> entries_;
  std::map<std::string, std::string> metadata_;
};

/// float32, float64, bfloat16 or float16; none for other types.
std::optional<ElementType> element_type_of(const std::string& safetensors_type);

/// A tensor in memory, dense.
struct NamedTensor {
  std::string name;
  ElementType type = ElementType::float32;  ///< float32, float64, bfloat16 or float16
  std::vector<Index> shape;
  std::span<const std::byte> bytes;
};

/// Writes a file that appears complete or not at all. Throws FileError. @pre names are unique
void write_safetensors(io::FileSystem& files, const std::string& path, const std::vector<NamedTensor>& tensors,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace aloni::nn

#pragma once
// The contents of a checkpoint as a value, and its text form, the file manifest.json (docs/checkpoint.md).
//
//   const Manifest m = parse_manifest(text, "run1/step-000000001200/manifest.json");
//   m.state.integers.at("step");                          // 1200
//   for (const SavedTensor& t : m.tensors) …              // name, type, extents, and the blocks that cover it
//
// A tensor is split into blocks. Each block is a box of the tensor, dense and channels last, at an offset of a data
// file.
#include <aloni/core/index.hpp>
#include <aloni/nn/local/element_type.hpp>
#include <aloni/views/box.hpp>
#include <aloni/views/extents.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace aloni::nn::checkpoint {

/// A box of a tensor in a data file.
struct Block {
  views::Box box;
  std::string file;  ///< name of a file in the folder of the checkpoint: "rank-3.bin"
  Index offset = 0;  ///< in the file, in bytes
  Index bytes = 0;
  std::uint32_t crc32c = 0;  ///< of these bytes

  friend bool operator==(const Block&, const Block&) = default;
};

/// Element types of checkpoints: float32 and float64.
struct SavedTensor {
  std::string name;  ///< "conv1.weight", "conv1.weight.momentum"
  ElementType type = ElementType::float32;
  views::Extents extents;
  std::vector<Block> blocks;  ///< each element of the tensor lies in exactly one block

  friend bool operator==(const SavedTensor&, const SavedTensor&) = default;
};

/// Named values, for example the number of the step and the state of a schedule.
struct NamedValues {
  std::map<std::string, std::int64_t> integers;
  std::map<std::string, double> numbers;  ///< any, also NaN and infinities; a NaN loses its payload
  std::map<std::string, std::string> texts;

  friend bool operator==(const NamedValues&, const NamedValues&) = default;
};

struct Manifest {
  std::int64_t step = 0;  ///< steps done
  NamedValues state;
  std::vector<SavedTensor> tensors;

  friend bool operator==(const Manifest&, const Manifest&) = default;
};

/// Name of the data file of a rank: "rank-3.bin".
std::string data_file_name(int rank);

/// The text ends with a CRC32C of all its other bytes. Texts that are not UTF-8 lose their invalid bytes.
std::string to_json(const Manifest& manifest);

/// `path`: for the error text. Throws FileError for a wrong checksum, another format or version, and values outside
/// their range: blocks that leave their tensor, miss or repeat one of its elements, or overlap in a file.
Manifest parse_manifest(const std::string& text, const std::string& path);

/// As parse_manifest(), but blocks may miss elements: the tensors of one rank, on their way to the rank that writes the
/// manifest.
Manifest parse_part(const std::string& text, const std::string& path);

/// Adds the blocks of `part` to the tensors of the same name, and the tensors that `whole` lacks.
void merge(Manifest& whole, const Manifest& part);

/// "float32", "float64": also the name that NumPy uses.
const char* name(ElementType type);

}  // namespace aloni::nn::checkpoint

#pragma once
// Reads checkpoints: any box of any tensor, whatever ranks have written it.
//
//   const Newest found = find_newest(comm, io::real_file_system(), "run1");
//   for (const Refusal& r : found.refused) std::cerr << r.reason << '\n';      // torn, truncated, unfinished ones
//   if (found.checkpoint) found.checkpoint->read("conv1.weight", ElementType::float32, extents, box, bytes);
#include <aloni/core/io/file_system.hpp>
#include <aloni/nn/checkpoint/manifest.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace aloni::comm {
class Communicator;
}

namespace aloni::nn::checkpoint {

/// A checkpoint whose manifest has been read. @pre the file system outlives this object
class Checkpoint {
 public:
  Checkpoint(io::FileSystem& files, std::string folder, Manifest manifest);

  const std::string& folder() const { return folder_; }
  const Manifest& manifest() const { return manifest_; }
  bool has(const std::string& tensor) const { return positions_.contains(tensor); }

  /// Reads a box of a tensor, dense and channels last, and compares the checksum of each block that it reads. Not
  /// collective. `bytes`: the size of the box. Throws InvalidArgument if there is no tensor with this name, type and
  /// extents. Throws FileError, naming the file and the block.
  void read(const std::string& tensor, ElementType type, const views::Extents& extents, const views::Box& box,
            std::span<std::byte> bytes) const;

  /// Reads the blocks `share`, `share` + `shares`, … and compares their checksums. Not collective. Throws FileError,
  /// naming the file and the block.
  void verify(int share = 0, int shares = 1) const;

 private:
  std::vector<std::byte> read_block(const SavedTensor& tensor, std::size_t block) const;

  io::FileSystem* files_;
  std::string folder_;
  Manifest manifest_;
  std::map<std::string, std::size_t> positions_;
};

/// A checkpoint that cannot be used.
struct Refusal {
  std::int64_t step = 0;
  std::string reason;          ///< one line with file and block
  bool is_unfinished = false;  ///< it has no manifest: the program ended while it wrote the checkpoint
};

struct Newest {
  std::optional<Checkpoint> checkpoint;
  std::vector<Refusal> refused;  ///< newer ones, the newest first
};

/// The checkpoint of one step. Not collective. Throws FileError for a missing or wrong manifest.
Checkpoint open_checkpoint(io::FileSystem& files, const std::string& directory, std::int64_t step);

/// The newest checkpoint whose blocks all have their checksums. Not collective.
/// Throws FileError if the directory cannot be listed.
Newest find_newest(io::FileSystem& files, const std::string& directory);

/// As above. The ranks read each block once together. `files` show all ranks the same files.
/// Collective; the result is equal on all ranks. Throws FileError or PeerFailed if the directory cannot be listed.
Newest find_newest(const comm::Communicator& comm, io::FileSystem& files, const std::string& directory);

}  // namespace aloni::nn::checkpoint

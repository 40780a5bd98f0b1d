#pragma once
// A .npy file of float32 that all ranks write together, each its own boxes. It has the shape that open_npy()
// (nn/data/npy.hpp) reads: N,H,W,C, or N,D,H,W,C for three spatial dimensions.
//
//   NpyFile file(comm, io::real_file_system(), "output.npy", extents, 2);
//   file.write(box, values);                     // each rank, any number of times
//   file.finish();                               // now the file has its name
//
// Before finish() the values lie in a temporary file beside it. So the file appears complete or not at all, and an
// older file of this name stays until then. Source of the format: NumPy Enhancement Proposal 1.
#include <aloni/core/comm/communicator.hpp>
#include <aloni/core/io/file_system.hpp>
#include <aloni/views/box.hpp>

#include <memory>
#include <span>
#include <string>
#include <vector>

namespace aloni::nn {

/// The header of version 1, with elements '<f4' in C order. Its length is a multiple of 64 bytes.
std::string npy_header(const std::vector<Index>& shape);

class NpyFile {
 public:
  /// `all`: extents of the whole array, samples included. `files` show all ranks the same files.
  /// Collective. @pre the arguments are equal on all ranks; `comm` and `files` outlive this object
  /// Throws FileError on the rank that cannot make or open the file, and PeerFailed on the others.
  NpyFile(const comm::Communicator& comm, io::FileSystem& files, std::string path, const views::Extents& all,
          int spatial_rank);
  NpyFile(const NpyFile&) = delete;
  NpyFile& operator=(const NpyFile&) = delete;
  /// Without finish(), removes the temporary file.
  ~NpyFile();

  /// Writes a box of the array. `values`: dense, channels last. Not collective. Throws FileError naming the path.
  /// @pre the box lies in the array, values.size() is its size, no other rank writes an element of it
  void write(const views::Box& box, std::span<const float> values);

  /// Waits until the values of all ranks are on the disk, then gives the file its name.
  /// Collective. @pre all elements are written
  /// Throws FileError on the rank whose file cannot be written, and PeerFailed on the others.
  void finish();

 private:
  /// Calls `f`. A FileError names the path of the user instead of the temporary file.
  template <class F>
  void for_path(const F& f) const;

  const comm::Communicator& comm_;
  io::FileSystem& files_;
  std::string path_;
  views::Extents all_;
  Index header_bytes_ = 0;
  std::shared_ptr<const void> temporary_;  ///< on rank 0: removes the file
  std::unique_ptr<io::OutputFile> file_;
};

}  // namespace aloni::nn

#pragma once
// The calls of a file system that durable files need, as an interface. Tests replace it by one that fails or loses
// power at a chosen call.
//
//   io::write_file(io::real_file_system(), "result.json", text);   // complete or not at all, also after a crash
//
// A file is durable when it is written, synchronised, and its name is synchronised with its folder:
//
//   auto file = files.create("data/rank-0.bin");
//   file->write(bytes);
//   file->sync();
//   file->close();
//   files.sync_folder("data");
//
// Functions throw FileError with the path and the reason of the system. None is collective.
#include <aloni/core/index.hpp>

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace aloni::io {

/// A file, open for writing. The destructor closes it without a check.
class OutputFile {
 public:
  virtual ~OutputFile() = default;
  virtual const std::string& path() const = 0;
  virtual void write(std::span<const std::byte> bytes) = 0;
  /// Writes at a position, also beyond the end; bytes in between are zero. Does not move the position of write().
  virtual void write_at(Index offset, std::span<const std::byte> bytes) = 0;
  /// The contents reach the disk before this call returns.
  virtual void sync() = 0;
  /// Some errors of delayed writes (quotas, network file systems) appear only here.
  virtual void close() = 0;
};

/// A file without a name, for values that need not outlive the process. It goes with the object, and with a process
/// that is killed. Several threads may write and read different bytes at once.
class ScratchFile {
 public:
  virtual ~ScratchFile() = default;
  /// The name that it had, for errors.
  virtual const std::string& path() const = 0;
  /// As OutputFile::write_at.
  virtual void write_at(Index offset, std::span<const std::byte> bytes) = 0;
  /// Throws FileError also if the file ends before.
  virtual void read_at(Index offset, std::span<std::byte> bytes) = 0;
};

class FileSystem {
 public:
  virtual ~FileSystem() = default;
  /// Creates an empty file, or empties an existing one.
  virtual std::unique_ptr<OutputFile> create(const std::string& path) = 0;
  /// Creates an empty file with a new name that begins with `path`.
  virtual std::unique_ptr<OutputFile> create_temporary(const std::string& path) = 0;
  /// Creates an empty file with a new name that begins with `path`, and removes the name.
  virtual std::unique_ptr<ScratchFile> create_scratch(const std::string& path) = 0;
  /// Opens an existing file and keeps its contents: for write_at() by several processes.
  virtual std::unique_ptr<OutputFile> open(const std::string& path) = 0;
  /// Replaces `to` at once. @pre both are in the same folder
  virtual void rename(const std::string& from, const std::string& to) = 0;
  /// Does nothing if the file does not exist.
  virtual void remove(const std::string& path) = 0;
  /// Does nothing if the folder exists. Its parent must exist.
  virtual void make_folder(const std::string& path) = 0;
  /// Removes an empty folder. Does nothing if it does not exist.
  virtual void remove_folder(const std::string& path) = 0;
  /// Names in the folder, new ones and removed ones, are on the disk before this call returns.
  virtual void sync_folder(const std::string& path) = 0;

  /// Names in a folder, ascending. None if the folder does not exist.
  virtual std::vector<std::string> list(const std::string& folder) = 0;
  /// Size of a regular file in bytes; -1 if it does not exist.
  virtual Index size(const std::string& path) = 0;
  /// Reads the bytes from `offset` on. Throws FileError also if the file ends before.
  virtual void read(const std::string& path, Index offset, std::span<std::byte> bytes) = 0;
};

/// Files of the operating system.
FileSystem& real_file_system();

/// Writes a file that appears complete or not at all: the text goes to a temporary file in the same folder, which is
/// then renamed. After a failure an older file `path` still has its contents.
void write_file(FileSystem& files, const std::string& path, std::string_view text);
/// As above: the parts one after another.
void write_file(FileSystem& files, const std::string& path, std::span<const std::string_view> parts);

/// The folder of a path; "." if the path has none.
std::string folder_of(const std::string& path);

}  // namespace aloni::io

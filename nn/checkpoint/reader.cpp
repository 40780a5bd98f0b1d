#include <aloni/nn/checkpoint/reader.hpp>

#include <aloni/core/comm/communicator.hpp>
#include <aloni/core/comm/transport/crc32c.hpp>
#include <aloni/core/error.hpp>
#include <aloni/nn/checkpoint/blocks.hpp>
#include <aloni/nn/checkpoint/files.hpp>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <utility>

namespace aloni::nn::checkpoint {

namespace {

constexpr const char* operation = "aloni::nn::checkpoint";

std::string hexadecimal(std::uint32_t value) {
  char digits[9];
  std::snprintf(digits, sizeof digits, "%08x", value);
  return digits;
}

std::string read_manifest_text(io::FileSystem& files, const std::string& path) {
  constexpr Index most = Index{1} << 30;
  const Index size = files.size(path);
  if (size < 0) throw FileError(operation, path, "missing", "a finished checkpoint: its manifest is written last");
  if (size > most) throw FileError(operation, path, "longer than 1 GiB", "a manifest of aloni");
  std::string text(static_cast<std::size_t>(size), '\0');
  files.read(path, 0, std::as_writable_bytes(std::span(text.data(), text.size())));
  return text;
}

std::string folder_path(const std::string& directory, std::int64_t step) { return directory + "/" + folder_name(step); }

std::string manifest_path(const std::string& directory, std::int64_t step) {
  return folder_path(directory, step) + "/" + manifest_name;
}

bool is_unfinished(io::FileSystem& files, const std::string& directory, std::int64_t step) {
  return files.size(manifest_path(directory, step)) < 0;
}

Checkpoint parse(io::FileSystem& files, const std::string& directory, std::int64_t step, const std::string& text) {
  const std::string path = manifest_path(directory, step);
  Manifest manifest = parse_manifest(text, path);
  if (manifest.step != step)
    throw FileError(operation, path, "is of step " + std::to_string(manifest.step),
                    std::to_string(step) + ", as its folder says");
  return Checkpoint(files, folder_path(directory, step), std::move(manifest));
}

/// The message of the exception that `f` throws; empty if it throws none.
template <class F>
std::string failure_of(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

}  // namespace

Checkpoint::Checkpoint(io::FileSystem& files, std::string folder, Manifest manifest)
    : files_(&files), folder_(std::move(folder)), manifest_(std::move(manifest)) {
  for (std::size_t i = 0; i < manifest_.tensors.size(); ++i) positions_[manifest_.tensors[i].name] = i;
}

std::vector<std::byte> Checkpoint::read_block(const SavedTensor& tensor, std::size_t number) const {
  const Block& block = tensor.blocks[number];
  const std::string path = folder_ + "/" + block.file, place = "block " + std::to_string(number) + " of " + tensor.name;
  // Before memory for the block is allocated.
  const Index size = files_->size(path);
  if (size < 0) throw FileError(operation, path, "missing, with " + place, "all files of the manifest");
  if (size < block.offset + block.bytes)
    throw FileError(operation, path, "has " + std::to_string(size) + " bytes",
                    place + " up to byte " + std::to_string(block.offset + block.bytes));
  std::vector<std::byte> bytes(static_cast<std::size_t>(block.bytes));
  try {
    files_->read(path, block.offset, bytes);
  } catch (const FileError& e) {
    throw FileError(operation, path, place + ": " + e.value(), e.expectation());
  }
  const std::uint32_t found = comm::detail::crc32c(bytes.data(), bytes.size());
  if (found != block.crc32c)
    throw FileError(operation, path, place + " has the CRC32C " + hexadecimal(found),
                    hexadecimal(block.crc32c) + ", as the manifest says");
  return bytes;
}

void Checkpoint::read(const std::string& name, ElementType type, const views::Extents& extents, const views::Box& box,
                      std::span<std::byte> bytes) const {
  const auto found = positions_.find(name);
  if (found == positions_.end())
    throw InvalidArgument(operation, "tensor", name,
                          "the name of a tensor in " + folder_ + ", written by the same network and optimiser");
  const SavedTensor& tensor = manifest_.tensors[found->second];
  if (tensor.type != type || tensor.extents != extents)
    throw InvalidArgument(
        operation, "tensor " + name, std::string(checkpoint::name(type)) + " " + views::to_string(extents),
        std::string(checkpoint::name(tensor.type)) + " " + views::to_string(tensor.extents) + ", as in " + folder_);
  if (static_cast<Index>(bytes.size()) != box.size() * bytes_of(type))
    throw InvalidArgument(operation, "bytes", std::to_string(bytes.size()), "the size of the box");
  for (std::size_t b = 0; b < tensor.blocks.size(); ++b) {
    const views::Box part = views::intersect(tensor.blocks[b].box, box);
    if (part.empty()) continue;
    const std::vector<std::byte> block = read_block(tensor, b);
    copy_box(part, tensor.blocks[b].box, block.data(), box, bytes.data(), bytes_of(type));
  }
}

void Checkpoint::verify(int share, int shares) const {
  std::size_t number = 0;
  for (const SavedTensor& tensor : manifest_.tensors)
    for (std::size_t b = 0; b < tensor.blocks.size(); ++b, ++number)
      if (number % static_cast<std::size_t>(shares) == static_cast<std::size_t>(share)) read_block(tensor, b);
}

Checkpoint open_checkpoint(io::FileSystem& files, const std::string& directory, std::int64_t step) {
  return parse(files, directory, step, read_manifest_text(files, manifest_path(directory, step)));
}

Newest find_newest(io::FileSystem& files, const std::string& directory) {
  Newest result;
  for (const std::int64_t step : steps_in(files, directory)) {
    std::optional<Checkpoint> candidate;
    const std::string failure = failure_of([&] {
      candidate = open_checkpoint(files, directory, step);
      candidate->verify();
    });
    if (failure.empty()) {
      result.checkpoint = std::move(candidate);
      break;
    }
    result.refused.push_back({step, failure, is_unfinished(files, directory, step)});
  }
  return result;
}

Newest find_newest(const comm::Communicator& comm, io::FileSystem& files, const std::string& directory) {
  Newest result;
  const bool reads = comm.rank() == 0;  // the manifests; other ranks may see files later, as over NFS
  const std::vector<std::int64_t> steps = comm::collectively(
      comm, operation, [&] { return reads ? steps_in(files, directory) : std::vector<std::int64_t>{}; });
  for (std::size_t i = 0;; ++i) {
    const auto step = comm.all_reduce(i < steps.size() ? steps[i] : std::int64_t{-1}, comm::Reduction::max);
    if (step < 0) return result;
    std::string text, failure;
    if (reads) failure = failure_of([&] { text = read_manifest_text(files, manifest_path(directory, step)); });
    comm.broadcast(text, 0);
    std::optional<Checkpoint> candidate;
    if (failure.empty()) {
      failure = failure_of([&] {
        candidate = parse(files, directory, step, text);
        candidate->verify(comm.rank(), comm.size());
      });
    }
    // The lowest rank with a failure tells it.
    const std::int64_t none = comm.size();
    const auto speaker = comm.all_reduce(failure.empty() ? none : std::int64_t{comm.rank()}, comm::Reduction::min);
    if (speaker == none) {
      result.checkpoint = std::move(candidate);
      return result;
    }
    comm.broadcast(failure, static_cast<int>(speaker));
    const std::int64_t unfinished = reads && is_unfinished(files, directory, step);
    result.refused.push_back({step, failure, comm.all_reduce(unfinished, comm::Reduction::max) != 0});
  }
}

}  // namespace aloni::nn::checkpoint

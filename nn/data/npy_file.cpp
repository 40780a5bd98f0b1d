#include <aloni/nn/data/npy_file.hpp>

#include <aloni/core/error.hpp>

#include <utility>

namespace aloni::nn {

namespace {

constexpr const char* npy_file_operation = "aloni::nn::NpyFile";

std::vector<Index> shape_of(const views::Extents& all, int spatial_rank) {
  const auto& e = all.values;
  if (spatial_rank == 3) return {e[0], e[1], e[2], e[3], e[4]};
  return {e[0], e[2], e[3], e[4]};
}

/// Removes the file of a name once it is not needed any more.
std::shared_ptr<const void> removed_at_end(io::FileSystem& files, std::string path) {
  auto remove = [&files](const std::string* name) {
    try {
      files.remove(*name);
    } catch (const FileError&) {
      // The first error is the reason why the file is not finished.
    }
    delete name;
  };
  return {new std::string(std::move(path)), remove};
}

}  // namespace

std::string npy_header(const std::vector<Index>& shape) {
  std::string extents;
  for (const Index extent : shape) extents += (extents.empty() ? "" : ", ") + std::to_string(extent);
  std::string text = "{'descr': '<f4', 'fortran_order': False, 'shape': (" + extents + "), }";
  constexpr std::size_t start = 10, alignment = 64;
  text.append((alignment - (start + text.size() + 1) % alignment) % alignment, ' ');
  text += '\n';
  std::string header("\x93NUMPY\x01\x00", 8);
  header += static_cast<char>(text.size() & 0xff);
  header += static_cast<char>(text.size() >> 8);
  return header + text;
}

template <class F>
void NpyFile::for_path(const F& f) const {
  try {
    f();
  } catch (const FileError& e) {
    throw FileError(npy_file_operation, path_, e.value(), e.expectation());
  }
}

NpyFile::NpyFile(const comm::Communicator& comm, io::FileSystem& files, std::string path, const views::Extents& all,
                 int spatial_rank)
    : comm_(comm), files_(files), path_(std::move(path)), all_(all) {
  const std::string header = npy_header(shape_of(all, spatial_rank));
  header_bytes_ = static_cast<Index>(header.size());
  std::string name;
  comm::collectively(comm_, npy_file_operation, [&] {
    if (comm_.rank() != 0) return;
    for_path([&] {
      file_ = files_.create_temporary(path_);
      name = file_->path();
      temporary_ = removed_at_end(files_, name);
      file_->write(std::as_bytes(std::span(header)));
    });
  });
  comm_.broadcast(name, 0);
  comm::collectively(comm_, npy_file_operation, [&] {
    if (comm_.rank() != 0) for_path([&] { file_ = files_.open(name); });
  });
}

NpyFile::~NpyFile() = default;

void NpyFile::write(const views::Box& box, std::span<const float> values) {
  if (box.empty()) return;
  const auto& whole = all_.values;
  const auto part = views::extents_of(box).values;
  // One write for each run of elements that are neighbours in the file and in the box.
  int inner = views::num_dims - 1;
  Index run = part[inner];
  while (inner > 0 && part[inner] == whole[inner]) run *= part[--inner];
  const auto elements = static_cast<std::size_t>(run);
  views::Box at = box;  // the lower corner of a run
  for_path([&] {
    for (std::size_t done = 0; done < values.size(); done += elements) {
      Index position = 0;
      for (int d = 0; d < views::num_dims; ++d) position = position * whole[d] + at.lo[d];
      file_->write_at(header_bytes_ + position * static_cast<Index>(sizeof(float)),
                      std::as_bytes(values.subspan(done, elements)));
      for (int d = inner - 1; d >= 0; --d) {
        if (++at.lo[d] < box.hi[d]) break;
        at.lo[d] = box.lo[d];
      }
    }
  });
}

void NpyFile::finish() {
  comm::collectively(comm_, npy_file_operation, [&] {
    for_path([&] {
      file_->sync();
      file_->close();
    });
  });
  comm::collectively(comm_, npy_file_operation, [&] {
    if (comm_.rank() != 0) return;
    for_path([&] {
      files_.rename(file_->path(), path_);
      files_.sync_folder(io::folder_of(path_));
    });
  });
  temporary_.reset();  // this name is gone
}

}  // namespace aloni::nn

#include <aloni/nn/checkpoint/files.hpp>

#include <aloni/core/comm/transport/crc32c.hpp>
#include <aloni/core/error.hpp>
#include <aloni/nn/checkpoint/blocks.hpp>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <map>

namespace aloni::nn::checkpoint {

namespace {

constexpr std::string_view folder_begin = "step-";
constexpr std::size_t least_digits = 12;  // names then have the order of steps

std::string path_of(const std::string& folder, const std::string& name) { return folder + "/" + name; }

/// The manifest first: without it the rest is no checkpoint.
void empty_folder(io::FileSystem& files, const std::string& folder) {
  const std::vector<std::string> names = files.list(folder);
  if (std::ranges::find(names, manifest_name) != names.end()) {
    files.remove(path_of(folder, manifest_name));
    files.sync_folder(folder);
  }
  for (const std::string& name : names)
    if (name != manifest_name) files.remove(path_of(folder, name));
}

void remove_folder(io::FileSystem& files, const std::string& folder) {
  empty_folder(files, folder);
  files.remove_folder(folder);
}

}  // namespace

std::string folder_name(std::int64_t step) {
  char digits[32];
  std::snprintf(digits, sizeof digits, "%0*lld", static_cast<int>(least_digits), static_cast<long long>(step));
  return std::string(folder_begin) + digits;
}

std::optional<std::int64_t> step_of(std::string_view folder) {
  if (!folder.starts_with(folder_begin)) return std::nullopt;
  const std::string_view digits = folder.substr(folder_begin.size());
  constexpr std::size_t most_digits = 18;
  if (digits.size() < least_digits || digits.size() > most_digits) return std::nullopt;
  std::int64_t step = 0;
  for (const char c : digits) {
    if (c < '0' || c > '9') return std::nullopt;
    step = 10 * step + (c - '0');
  }
  return step;
}

std::vector<std::int64_t> steps_in(io::FileSystem& files, const std::string& directory) {
  std::vector<std::int64_t> steps;
  for (const std::string& name : files.list(directory))
    if (const auto step = step_of(name); step && folder_name(*step) == name) steps.push_back(*step);
  std::ranges::sort(steps, std::greater<>());
  return steps;
}

namespace {

/// The boxes that one rank writes, by tensor, and their bytes.
struct PartBoxes {
  std::vector<std::vector<views::Box>> boxes;
  Index bytes = 0;
};

PartBoxes boxes_of_part(std::span<const TensorSource> tensors, int rank, int ranks, Index most_block_bytes) {
  struct Piece {
    std::size_t tensor;
    views::Box box;
  };
  std::map<int, std::vector<Piece>> pieces;  // by TensorSource::blocks: ranks with equal pieces have equal lists
  for (std::size_t t = 0; t < tensors.size(); ++t)
    for (const views::Box& box : tensors[t].own)
      for (const views::Box& piece : split_box(box, bytes_of(tensors[t].type), most_block_bytes))
        pieces[tensors[t].blocks].push_back({t, piece});
  PartBoxes part{.boxes = std::vector<std::vector<views::Box>>(tensors.size())};
  for (const auto& [blocks, group] : pieces) {
    const int keepers = static_cast<int>(ceil_div(ranks - rank % blocks, blocks)), keeper = rank / blocks;
    std::vector<Index> bytes;
    for (const Piece& p : group) bytes.push_back(p.box.size() * bytes_of(tensors[p.tensor].type));
    const std::vector<int> writers = assign_blocks(bytes, keepers);
    for (std::size_t i = 0; i < group.size(); ++i) {
      if (writers[i] != keeper) continue;
      part.boxes[group[i].tensor].push_back(group[i].box);
      part.bytes += bytes[i];
    }
  }
  return part;
}

}  // namespace

Index part_bytes(std::span<const TensorSource> tensors, int rank, int ranks, Index most_block_bytes) {
  return boxes_of_part(tensors, rank, ranks, most_block_bytes).bytes;
}

RankPart copy_part(std::span<const TensorSource> tensors, int rank, int ranks, Index most_block_bytes) {
  const auto [mine, total] = boxes_of_part(tensors, rank, ranks, most_block_bytes);
  RankPart part;
  part.file = data_file_name(rank);
  part.bytes.resize(static_cast<std::size_t>(total));
  Index offset = 0;
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    const TensorSource& source = tensors[t];
    const Index element = bytes_of(source.type);
    SavedTensor saved{source.name, source.type, source.extents, {}};
    for (const views::Box& box : mine[t]) {
      copy_box(box, source.kept, source.data, box, part.bytes.data() + offset, element);
      saved.blocks.push_back({box, part.file, offset, box.size() * element, 0});
      offset += box.size() * element;
    }
    part.blocks.tensors.push_back(std::move(saved));
  }
  return part;
}

void begin_folder(io::FileSystem& files, const std::string& directory, std::int64_t step) {
  files.make_folder(directory);
  files.sync_folder(io::folder_of(directory));
  const std::string folder = path_of(directory, folder_name(step));
  files.make_folder(folder);
  empty_folder(files, folder);
}

void write_part(io::FileSystem& files, const std::string& folder, RankPart& part) {
  for (SavedTensor& tensor : part.blocks.tensors)
    for (Block& block : tensor.blocks)
      block.crc32c = comm::detail::crc32c(part.bytes.data() + block.offset, static_cast<std::size_t>(block.bytes));
  if (part.bytes.empty()) return;
  const auto file = files.create(path_of(folder, part.file));
  file->write(part.bytes);
  file->sync();
  file->close();
  files.sync_folder(folder);
}

void finish_folder(io::FileSystem& files, const std::string& directory, const Manifest& manifest) {
  files.sync_folder(directory);  // the name of the folder
  io::write_file(files, path_of(path_of(directory, folder_name(manifest.step)), manifest_name), to_json(manifest));
}

void abandon_folder(io::FileSystem& files, const std::string& directory, std::int64_t step) noexcept {
  try {
    remove_folder(files, path_of(directory, folder_name(step)));
  } catch (const std::exception&) {
    // The reason for the abandonment has been told; without a manifest the rest is no checkpoint.
  }
}

void remove_older(io::FileSystem& files, const std::string& directory, std::int64_t step, int keep) {
  int kept = 1;
  for (const std::int64_t older : steps_in(files, directory)) {
    if (older >= step) continue;
    const std::string folder = path_of(directory, folder_name(older));
    const bool is_finished = files.size(path_of(folder, manifest_name)) >= 0;
    if (is_finished && kept < keep) {
      ++kept;
    } else {
      remove_folder(files, folder);
    }
  }
}

}  // namespace aloni::nn::checkpoint

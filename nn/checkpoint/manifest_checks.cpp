#include <aloni/nn/checkpoint/manifest_checks.hpp>

#include <aloni/core/error.hpp>

#include <algorithm>
#include <cstddef>
#include <set>
#include <string_view>
#include <tuple>
#include <vector>

namespace aloni::nn::checkpoint::detail {

namespace {

/// A pair of blocks of one tensor is compared: this many take a second.
constexpr std::size_t most_blocks = 1 << 15;

[[noreturn]] void refuse(const std::string& path, const std::string& value, const std::string& expectation) {
  throw FileError("aloni::nn::checkpoint", path, value, expectation);
}

std::string place_of(const SavedTensor& tensor, std::size_t block) {
  return "block " + std::to_string(block) + " of " + tensor.name;
}

/// No other name: a path would lead out of the folder of the checkpoint.
bool is_data_file_name(std::string_view name) {
  constexpr std::string_view begin = "rank-", end = ".bin";
  if (!name.starts_with(begin) || !name.ends_with(end) || name.size() <= begin.size() + end.size()) return false;
  const std::string_view digits = name.substr(begin.size(), name.size() - begin.size() - end.size());
  return digits.size() <= 10 && std::ranges::all_of(digits, [](char c) { return c >= '0' && c <= '9'; });
}

void check_tensor(const SavedTensor& tensor, const std::string& path, bool covers) {
  try {
    views::check_extents("aloni::nn::checkpoint", tensor.extents);
  } catch (const InvalidArgument& e) {
    refuse(path, tensor.name + " has the extents " + views::to_string(tensor.extents), e.expectation());
  }
  if (tensor.blocks.size() > most_blocks)
    refuse(path, tensor.name + " has " + std::to_string(tensor.blocks.size()) + " blocks",
           "at most " + std::to_string(most_blocks));
  Index elements = 0;
  for (std::size_t i = 0; i < tensor.blocks.size(); ++i) {
    const Block& block = tensor.blocks[i];
    if (block.box.empty() || !views::contains(views::whole(tensor.extents), block.box))
      refuse(path, place_of(tensor, i) + " has the box " + views::to_string(block.box),
             "indices of a tensor with the extents " + views::to_string(tensor.extents));
    const Index size = block.box.size(), bytes = size * bytes_of(tensor.type);
    if (block.bytes != bytes)
      refuse(path, place_of(tensor, i) + " has " + std::to_string(block.bytes) + " bytes",
             std::to_string(bytes) + ", as its box has");
    if (block.offset > max_bytes) refuse(path, place_of(tensor, i) + " has a huge offset", "at most 2 EiB");
    if (!is_data_file_name(block.file)) refuse(path, place_of(tensor, i) + " is in file " + block.file, "rank-N.bin");
    for (std::size_t k = 0; k < i; ++k)
      if (!views::intersect(block.box, tensor.blocks[k].box).empty())
        refuse(path, place_of(tensor, i) + " overlaps with block " + std::to_string(k), "disjoint blocks");
    elements += size;  // of disjoint blocks, so at most the size of the tensor
  }
  if (covers && elements != tensor.extents.size())
    refuse(path, "the blocks of " + tensor.name + " have " + std::to_string(elements) + " elements",
           std::to_string(tensor.extents.size()) + ", all elements of the tensor");
}

}  // namespace

void check_blocks(const Manifest& manifest, const std::string& path, bool covers) {
  std::set<std::string_view> names;
  std::vector<std::tuple<std::string_view, Index, Index>> ranges;  // of bytes in files
  for (const SavedTensor& tensor : manifest.tensors) {
    if (!names.insert(tensor.name).second) refuse(path, "has two tensors " + tensor.name, "unique names of tensors");
    check_tensor(tensor, path, covers);
    for (const Block& block : tensor.blocks) ranges.emplace_back(block.file, block.offset, block.bytes);
  }
  std::ranges::sort(ranges);
  for (std::size_t i = 1; i < ranges.size(); ++i) {
    const auto& [file, offset, bytes] = ranges[i - 1];
    if (file == std::get<0>(ranges[i]) && std::get<1>(ranges[i]) < offset + bytes)
      refuse(path, "blocks overlap in " + std::string(file) + " at byte " + std::to_string(std::get<1>(ranges[i])),
             "disjoint blocks");
  }
}

}  // namespace aloni::nn::checkpoint::detail

#include <aloni/nn/layer_split.hpp>

#include <aloni/core/error.hpp>

#include <charconv>
#include <cstdint>
#include <system_error>

namespace aloni::nn {

using views::Dim;
using views::ProcessGrid;

LayerSplit LayerSplit::parse(std::string_view text) {
  const auto refuse = [&](const std::string& expectation) {
    throw InvalidArgument("aloni::nn::LayerSplit::parse", "text", "\"" + std::string(text) + "\"", expectation);
  };
  // Removes the letter f and its count. A process grid is left.
  const std::size_t at = text.find('f');
  if (at == std::string_view::npos) {
    try {
      return ProcessGrid::parse(text);
    } catch (const InvalidArgument& e) {
      refuse(text.empty() || e.expectation().starts_with("letters")
                 ? "letters of n, d, h, w, c, f, each once and followed by a positive count, such as n2h2, or 1"
                 : e.expectation());
    }
  }
  std::string rest(text.substr(0, at));
  const char* const first = text.data() + at + 1;
  const char* const end = text.data() + text.size();
  int filters = 0;
  const auto [behind, error] = std::from_chars(first, end, filters);
  if (error == std::errc::result_out_of_range) refuse("counts with at most 1073741824 blocks in all");
  if (error != std::errc{} || *first == '-' || filters < 1 || rest == "1") {
    refuse("letters of n, d, h, w, c, f, each once and followed by a positive count, such as n2h2, or 1");
  }
  rest.append(behind, end);
  if (rest.find('f') != std::string::npos) refuse("each letter at most once, but f occurs again");
  LayerSplit split;
  if (!rest.empty()) split = parse(rest == "1" ? "?" : rest);
  split.filters = filters;
  if (static_cast<std::int64_t>(split.grid.size()) * filters > (std::int64_t{1} << 30)) {
    refuse("at most 1073741824 blocks in all");
  }
  return split;
}

ProcessGrid LayerSplit::tensor_grid() const {
  ProcessGrid tensor = grid;
  tensor[Dim::channel] *= filters;
  return tensor;
}

std::string to_string(const LayerSplit& s) {
  const std::string text = to_string(s.grid);
  if (s.filters == 1) return text;
  return (text == "1" ? "" : text) + "f" + std::to_string(s.filters);
}

std::string_view name(Overlap overlap) {
  switch (overlap) {
    case Overlap::interior_first:
      break;
    case Overlap::blocking:
      return "blocking";
    case Overlap::recompute_halo:
      return "recompute_halo";
  }
  return "interior_first";
}

}  // namespace aloni::nn

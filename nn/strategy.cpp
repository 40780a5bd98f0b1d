#include <aloni/nn/strategy.hpp>

#include <aloni/core/error.hpp>
#include <aloni/core/text_file.hpp>
#include <aloni/nn/detail/layer_names.hpp>
#include <aloni/nn/layer_pattern.hpp>
#include <aloni/nn/operation.hpp>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <sstream>
#include <utility>

namespace aloni::nn {

using views::Dim;
using views::ProcessGrid;

namespace {

constexpr const char* parse_operation = "aloni::nn::Strategy::parse";
constexpr const char* read_operation = "aloni::nn::Strategy::read";
constexpr const char* resolve_operation = "aloni::nn::resolve";

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f'; }

bool is_wildcard(char c) { return c == '*' || c == '?'; }

bool is_pattern_character(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
         c == '-' || is_wildcard(c);
}

// Quotes a piece of a file of any content for a one-line error message.
std::string in_quotes(std::string_view text) {
  constexpr std::size_t longest = 40;
  std::string shown = "\"";
  for (char c : text.substr(0, longest)) shown += c >= ' ' && c <= '~' ? c : '?';
  return shown + (text.size() > longest ? "…\"" : "\"");
}

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  for (std::size_t i = 0; i < line.size();) {
    if (is_blank(line[i])) {
      ++i;
      continue;
    }
    std::size_t end = i;
    while (end < line.size() && !is_blank(line[end])) ++end;
    words.push_back(line.substr(i, end - i));
    i = end;
  }
  return words;
}

Overlap overlap_named(const std::string& where, std::string_view word) {
  for (const Overlap overlap : {Overlap::interior_first, Overlap::blocking, Overlap::recompute_halo}) {
    if (word == name(overlap)) return overlap;
  }
  throw InvalidArgument(
      parse_operation, where + ": overlap", in_quotes(word),
      word == "wide" ? "recompute_halo, the new name of \"wide\"" : "interior_first, blocking or recompute_halo");
}

std::string place(const Strategy& strategy, const StrategyRule& rule) {
  return rule.line > 0 ? strategy.source + ":" + std::to_string(rule.line) : strategy.source;
}

struct Refusal {
  std::string what, value, expectation;
};

/// The grids nearest to `split` with a number of blocks that divides the ranks: they differ in one dimension, the first
/// one that allows it. @pre `size`, the number of blocks of `split`, does not
std::vector<std::string> grids_near(const LayerSplit& split, std::int64_t size, int ranks) {
  std::vector<std::string> found;
  const auto try_dimension = [&](const std::function<int&(LayerSplit&)>& blocks_of) {
    LayerSplit near = split;
    int& blocks = blocks_of(near);
    const int before = std::exchange(blocks, 1);
    const std::int64_t others = size / before;
    if (before == 1 || others > ranks || ranks % others != 0) return;
    const int most = static_cast<int>(ranks / others);
    const auto add = [&](int b) {
      blocks = b;
      found.push_back(to_string(near));
    };
    int fewer = std::min(before - 1, most), more = before + 1;
    while (fewer > 1 && most % fewer != 0) --fewer;
    while (more < most && most % more != 0) ++more;
    if (fewer > 1 || (fewer == 1 && others > 1)) add(fewer);
    if (more <= most) add(more);
  };
  for (const Dim d : {Dim::height, Dim::width, Dim::depth, Dim::sample, Dim::channel})
    if (found.empty()) try_dimension([d](LayerSplit& s) -> int& { return s.grid[d]; });
  if (found.empty()) try_dimension([](LayerSplit& s) -> int& { return s.filters; });
  return found;
}

/// ": h2 or h4, or 3 or 6 ranks for h3". Empty for more blocks than any job has ranks.
std::string ways_out_of(const LayerSplit& split, std::int64_t blocks, int ranks) {
  constexpr std::int64_t most_blocks = std::int64_t{1} << 30;
  if (blocks > most_blocks) return {};
  std::string text;
  for (const std::string& grid : grids_near(split, blocks, ranks)) text += (text.empty() ? "" : " or ") + grid;
  if (!text.empty()) text += ", or ";
  if (const std::int64_t fewer = ranks / blocks * blocks; fewer > 0) text += std::to_string(fewer) + " or ";
  return ": " + text + std::to_string((ranks / blocks + 1) * blocks) + " ranks for " + to_string(split);
}

std::optional<Refusal> refusal_of(const LayerSplit& split, int spatial_rank, int ranks) {
  std::int64_t blocks = 1;
  const auto count = [&](int n) { blocks = std::min<std::int64_t>(blocks * n, std::int64_t{1} << 32); };
  for (Dim d : views::all_dims) {
    if (split.grid[d] < 1) {
      return Refusal{std::string(" blocks in ") + views::name(d), std::to_string(split.grid[d]), "at least 1"};
    }
    count(split.grid[d]);  // no overflow: the limit is far above any number of ranks
  }
  if (split.filters < 1) return Refusal{" blocks of filters", std::to_string(split.filters), "at least 1"};
  count(split.filters);
  const std::string text = to_string(split);
  for (int i = 0; i < 3 - spatial_rank; ++i) {
    const Dim d = views::spatial_dims[i];
    if (split.grid[d] > 1) {
      return Refusal{"", text,
                     std::string("no '") + views::letter(d) + "': the network has " + std::to_string(spatial_rank) +
                         " spatial dimensions"};
    }
  }
  if (blocks > ranks) {
    return Refusal{"", text,
                   "at most " + std::to_string(ranks) + " blocks, one per rank" + ways_out_of(split, blocks, ranks)};
  }
  if (ranks % blocks != 0) {
    return Refusal{
        "", text,
        "a number of blocks that divides the " + std::to_string(ranks) + " ranks" + ways_out_of(split, blocks, ranks)};
  }
  return std::nullopt;
}

/// Why a layer cannot use recompute_halo; empty if it can.
std::string refusal_of_recomputation(const Operation& op, const LayerSplit& split) {
  if (split.overlap != Overlap::recompute_halo) return {};
  const OperationProperties properties = properties_of(op);
  if (properties.has_statistics) {
    return "interior_first or blocking, as layers with statistics compute only the owned box";
  }
  const bool multiplies = properties.convolution || properties.convolution_if_split;
  if (multiplies && split.tensor_grid()[Dim::channel] > 1)
    return "interior_first or blocking, as its channels or filters are split";
  return {};
}

void check_split(const std::string& where, const LayerSplit& split, const NetworkDescription& network, int ranks) {
  if (const auto refusal = refusal_of(split, network.spatial_rank, ranks))
    throw InvalidArgument(resolve_operation, where + ": grid" + refusal->what, refusal->value, refusal->expectation);
}

}  // namespace

Strategy Strategy::uniform(const LayerSplit& split) {
  Strategy s;
  s.source = to_string(split);
  s.rules.push_back({"*", split, 0});
  return s;
}

Strategy Strategy::parse(std::string_view text, const std::string& source) {
  Strategy s;
  s.source = source;
  int number = 0;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    ++number;
    const std::string where = source + ":" + std::to_string(number);
    const std::vector<std::string_view> words = words_of(line.substr(0, line.find('#')));
    if (words.empty()) continue;
    if (words.size() != 2 && words.size() != 3) {
      throw InvalidArgument(parse_operation, where, in_quotes(line),
                            "a pattern and a process grid, such as \"conv* h2\", and optionally an overlap");
    }
    if (!std::all_of(words[0].begin(), words[0].end(), is_pattern_character)) {
      throw InvalidArgument(parse_operation, where + ": pattern", in_quotes(words[0]),
                            "letters, digits, '_', '.', '-', '*' and '?'");
    }
    try {
      s.rules.push_back({std::string(words[0]), LayerSplit::parse(words[1]), number});
    } catch (const InvalidArgument& e) {
      throw InvalidArgument(parse_operation, where + ": grid", in_quotes(words[1]), e.expectation());
    }
    if (words.size() == 3) s.rules.back().split.overlap = overlap_named(where, words[2]);
  }
  if (s.rules.empty()) throw InvalidArgument(parse_operation, source, "no rules", "at least one, such as \"* n2\"");
  return s;
}

Strategy Strategy::read(const std::string& path) {
  return parse(read_text_file(read_operation, path, "a strategy file"), path);
}

std::string to_string(const Strategy& s) {
  std::size_t width = 0;
  for (const auto& rule : s.rules) width = std::max(width, rule.pattern.size());
  std::string text;
  for (const auto& rule : s.rules) {
    text += rule.pattern + std::string(width - rule.pattern.size() + 2, ' ') + to_string(rule.split);
    if (rule.split.overlap != Overlap::interior_first) text += "  " + std::string(name(rule.split.overlap));
    text += "\n";
  }
  return text;
}

Support supports(const NetworkDescription& network, int layer, const LayerSplit& split, int ranks) {
  const LayerDescription& description = network.layers.at(static_cast<std::size_t>(layer));
  const auto refusal = refusal_of(split, network.spatial_rank, ranks);
  if (!refusal) {
    const std::string expectation = refusal_of_recomputation(description.operation, split);
    if (expectation.empty()) return {};
    return {"layer \"" + description.name + "\": overlap = recompute_halo: expected " + expectation};
  }
  return {"layer \"" + description.name + "\": split" + refusal->what + " = " + refusal->value + ": expected " +
          refusal->expectation};
}

std::vector<LayerSplit> resolve(const Strategy& strategy, const NetworkDescription& network, int ranks) {
  for (const auto& rule : strategy.rules) {
    const std::string where = place(strategy, rule);
    const bool names_one = std::none_of(rule.pattern.begin(), rule.pattern.end(), is_wildcard);
    const auto is_named = [&](const LayerDescription& layer) { return layer.name == rule.pattern; };
    if (names_one && std::none_of(network.layers.begin(), network.layers.end(), is_named)) {
      throw InvalidArgument(resolve_operation, where + ": layer", in_quotes(rule.pattern),
                            detail::layer_expected(network, rule.pattern));
    }
    check_split(where, rule.split, network, ranks);
  }

  std::vector<LayerSplit> splits;
  for (const LayerDescription& layer : network.layers) {
    const auto rule = std::find_if(strategy.rules.begin(), strategy.rules.end(),
                                   [&](const StrategyRule& r) { return matches_pattern(r.pattern, layer.name); });
    if (rule == strategy.rules.end()) {
      throw InvalidArgument(resolve_operation, strategy.source + ": layer", in_quotes(layer.name),
                            "a rule for every layer; a last line \"* n1\" covers all other layers");
    }
    const std::string expectation = refusal_of_recomputation(layer.operation, rule->split);
    if (!expectation.empty()) {
      throw InvalidArgument(resolve_operation, place(strategy, *rule) + ": overlap of layer " + in_quotes(layer.name),
                            "recompute_halo", expectation);
    }
    splits.push_back(rule->split);
  }
  return splits;
}

}  // namespace aloni::nn

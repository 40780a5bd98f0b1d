#include <aloni/nn/layer_pattern.hpp>

#include <aloni/core/error.hpp>
#include <aloni/core/nearest_name.hpp>

#include <algorithm>
#include <cstddef>

namespace aloni::nn {

// Backtracks to the last `*` only.
bool matches_pattern(std::string_view pattern, std::string_view name) {
  std::size_t p = 0, n = 0;
  std::size_t star = std::string_view::npos, resume = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++resume;
    } else {
      return false;
    }
  }
  return std::all_of(pattern.begin() + p, pattern.end(), [](char c) { return c == '*'; });
}

namespace {

std::vector<std::string_view> separated_by_commas(std::string_view text) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t end = text.find(',');
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

}  // namespace

std::vector<int> match_patterns(const std::string& patterns, const std::vector<std::string>& names,
                                const char* operation) {
  std::vector<int> pattern_of(names.size(), -1);
  int number = 0;
  for (const std::string_view pattern : separated_by_commas(patterns)) {
    bool matches = false;
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (pattern_of[i] >= 0 || !matches_pattern(pattern, names[i])) continue;
      pattern_of[i] = number;
      matches = true;
    }
    if (!matches) {
      throw InvalidArgument(
          operation, "pattern", '"' + std::string(pattern) + '"',
          "a pattern that matches the name of a layer that no earlier pattern matches" + did_you_mean(pattern, names));
    }
    ++number;
  }
  return pattern_of;
}

}  // namespace aloni::nn

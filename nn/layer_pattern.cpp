#include <aloni/nn/layer_pattern.hpp>

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

}  // namespace aloni::nn

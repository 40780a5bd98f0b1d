#include <aloni/core/nearest_name.hpp>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <vector>

namespace aloni {

namespace {

char lower(char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); }

/// Three rows of the table of distances between beginnings suffice.
std::size_t distance(std::string_view a, std::string_view b) {
  std::array<std::vector<std::size_t>, 3> rows;
  rows.fill(std::vector<std::size_t>(b.size() + 1));
  for (std::size_t j = 0; j <= b.size(); ++j) rows[0][j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    auto& row = rows[i % 3];
    const auto &above = rows[(i + 2) % 3], &above_that = rows[(i + 1) % 3];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const bool equal = lower(a[i - 1]) == lower(b[j - 1]);
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (equal ? 0 : 1)});
      if (i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) && lower(a[i - 2]) == lower(b[j - 1]))
        row[j] = std::min(row[j], above_that[j - 2] + 1);
    }
  }
  return rows[a.size() % 3][b.size()];
}

}  // namespace

std::string nearest_name(std::string_view name, std::span<const std::string> known) {
  constexpr std::size_t longest = 256;  // the table of longer texts takes time, and they are no names
  if (name.size() > longest) return {};
  std::string nearest;
  std::size_t least = 0;
  for (const std::string& candidate : known) {
    if (candidate.size() > longest) continue;
    const std::size_t changes = distance(name, candidate);
    if (changes > std::max<std::size_t>(1, std::max(name.size(), candidate.size()) / 3)) continue;
    if (nearest.empty() || changes < least) {
      nearest = candidate;
      least = changes;
    }
  }
  return nearest;
}

std::string did_you_mean(std::string_view name, std::span<const std::string> known) {
  const std::string nearest = nearest_name(name, known);
  return nearest.empty() ? "" : "; did you mean " + nearest + "?";
}

std::string one_of(std::string_view name, std::span<const std::string> known) {
  std::string text = "one of: ";
  for (std::size_t i = 0; i < known.size(); ++i) text += (i > 0 ? ", " : "") + known[i];
  return text + did_you_mean(name, known);
}

}  // namespace aloni

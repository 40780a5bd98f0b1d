#include <aloni/tools/text_table.hpp>

#include <fmt/format.h>

#include <algorithm>

namespace aloni::tools {

std::string text_table(const std::vector<std::vector<std::string>>& rows, std::size_t left) {
  std::vector<std::size_t> widths(rows.front().size(), 0);
  for (const auto& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      line += i == 0 ? "" : "  ";
      line += i < left ? fmt::format("{:<{}}", row[i], widths[i]) : fmt::format("{:>{}}", row[i], widths[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string text_table(std::vector<std::vector<std::string>> rows, std::size_t left, std::size_t extra,
                       std::size_t most) {
  std::string text = text_table(rows, left);
  std::size_t longest = 0;
  for (std::size_t begin = 0, end; begin < text.size(); begin = end + 1) {
    end = text.find('\n', begin);
    longest = std::max(longest, end - begin);
  }
  if (longest <= most) return text;
  for (std::vector<std::string>& row : rows) row.erase(row.begin() + static_cast<std::ptrdiff_t>(extra));
  return text_table(rows, left - 1);
}

std::string paragraph(const std::string& text, std::size_t indent, std::size_t most) {
  std::string lines, rest = text;
  std::size_t begins = 0;  // blanks at the begin of the line
  while (begins + rest.size() > most) {
    std::size_t end = rest.rfind(' ', most - begins);
    if (end == std::string::npos || end == 0) end = rest.find(' ', most - begins);
    if (end == std::string::npos) break;
    lines += std::string(begins, ' ') + rest.substr(0, end) + "\n";
    rest.erase(0, end + 1);
    begins = indent;
  }
  return lines + std::string(begins, ' ') + rest;
}

}  // namespace aloni::tools

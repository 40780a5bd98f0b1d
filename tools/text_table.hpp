#pragma once
// Columns of text for a terminal.
#include <cstddef>
#include <string>
#include <vector>

namespace aloni::tools {

/// One line for each row, without blanks at its end. Each column is as wide as its longest text. The first `left`
/// columns are aligned to the left, the others to the right. @pre all rows have as many columns as the first one
std::string text_table(const std::vector<std::vector<std::string>>& rows, std::size_t left);
/// The same without the column `extra`, if a line would have more than `most` columns of a terminal.
/// @pre `extra` is one of the first `left` columns
std::string text_table(std::vector<std::vector<std::string>> rows, std::size_t left, std::size_t extra,
                       std::size_t most = 100);

/// The text in lines of at most `most` columns, broken at blanks. All lines but the first begin with `indent` blanks.
/// Longer words stay whole. Without a line break at the end.
std::string paragraph(const std::string& text, std::size_t indent, std::size_t most = 100);

}  // namespace aloni::tools

#pragma once
// Reads the words of a small text, for the headers of data files. Each error names the file and the position.
// Private to nn/data.
#include <aloni/core/index.hpp>

#include <string>

namespace aloni::nn::detail {

class TextScanner {
 public:
  /// The arguments outlive the scanner.
  TextScanner(const char* operation, const std::string& path, const std::string& text)
      : operation_(operation), path_(path), text_(text) {}

  // Each skips white space first. All but accept() and next_is() throw FileError if the text goes on otherwise.
  bool next_is(char c);
  bool accept(char c);  ///< takes the character if it is next
  void require(char c);
  void require_end();
  /// The text between two of the characters in `quotes`. A backslash stands for nothing else and is refused.
  std::string quoted(const char* quotes);
  std::string word();  ///< letters and digits
  Index integer();     ///< at least 0, without sign

  /// Throws FileError: "`found` at position 7 of the header".
  [[noreturn]] void refuse(const std::string& found, const std::string& expectation) const;

 private:
  void skip_space();
  std::string next() const;  ///< for error texts

  const char* operation_;
  const std::string& path_;
  const std::string& text_;
  std::size_t at_ = 0;
};

}  // namespace aloni::nn::detail

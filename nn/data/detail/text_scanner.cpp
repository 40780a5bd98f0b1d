#include <aloni/nn/data/detail/text_scanner.hpp>

#include <aloni/core/error.hpp>
#include <aloni/core/printable.hpp>

#include <limits>

namespace aloni::nn::detail {

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

}  // namespace

void TextScanner::skip_space() {
  while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r'))
    ++at_;
}

std::string TextScanner::next() const {
  return at_ < text_.size() ? "\"" + printable(text_.substr(at_, 1)) + "\"" : "the end";
}

void TextScanner::refuse(const std::string& found, const std::string& expectation) const {
  throw FileError(operation_, path_, found + " at position " + std::to_string(at_) + " of the header", expectation);
}

bool TextScanner::next_is(char c) {
  skip_space();
  return at_ < text_.size() && text_[at_] == c;
}

bool TextScanner::accept(char c) {
  if (!next_is(c)) return false;
  ++at_;
  return true;
}

void TextScanner::require(char c) {
  if (!accept(c)) refuse(next(), std::string("\"") + c + "\"");
}

void TextScanner::require_end() {
  skip_space();
  if (at_ < text_.size()) refuse(next(), "the end of the header");
}

std::string TextScanner::quoted(const char* quotes) {
  skip_space();
  if (at_ >= text_.size() || std::string(quotes).find(text_[at_]) == std::string::npos) refuse(next(), "a quoted text");
  const char quote = text_[at_];
  const std::size_t end = text_.find(quote, at_ + 1);
  if (end == std::string::npos) refuse("a text without its second quote", "a quoted text");
  const std::string content = text_.substr(at_ + 1, end - at_ - 1);
  if (content.find('\\') != std::string::npos) refuse("a backslash in a text", "a text without backslash");
  at_ = end + 1;
  return content;
}

std::string TextScanner::word() {
  skip_space();
  const std::size_t start = at_;
  while (at_ < text_.size() && (is_letter(text_[at_]) || is_digit(text_[at_]))) ++at_;
  if (at_ == start) refuse(next(), "a word");
  return text_.substr(start, at_ - start);
}

Index TextScanner::integer() {
  skip_space();
  if (at_ >= text_.size() || !is_digit(text_[at_])) refuse(next(), "an integer of at least 0");
  Index value = 0;
  for (; at_ < text_.size() && is_digit(text_[at_]); ++at_) {
    const Index digit = text_[at_] - '0';
    if (value > (std::numeric_limits<Index>::max() - digit) / 10)
      refuse("an integer of more than 63 bits", "fewer bits");
    value = 10 * value + digit;
  }
  return value;
}

}  // namespace aloni::nn::detail

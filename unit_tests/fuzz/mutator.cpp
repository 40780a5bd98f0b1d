#include "mutator.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>
#include <utility>

namespace aloni::test {

namespace {

constexpr std::array<std::uint64_t, 14> integers{
    0, 1, 2, 127, 128, 255, 256, 0x7fff, 0x8000, 0xffff, 0x7fffffff, 0xffffffff, 1ULL << 62, 1ULL << 63};
constexpr std::array<std::string_view, 30> words{"0",
                                                 "-1",
                                                 "1",
                                                 "2",
                                                 "2147483647",
                                                 "2147483648",
                                                 "4294967296",
                                                 "9223372036854775807",
                                                 "-9223372036854775808",
                                                 "9223372036854775808",
                                                 "18446744073709551616",
                                                 "1e18",
                                                 "1e999",
                                                 "-0.0",
                                                 "0.1",
                                                 "1e-320",
                                                 "nan",
                                                 "inf",
                                                 "null",
                                                 "true",
                                                 "{}",
                                                 "[]",
                                                 "[[[[",
                                                 "\"\"",
                                                 "\"\\u0000\"",
                                                 "\"\\ud800\"",
                                                 "\n",
                                                 "\xff",
                                                 "#",
                                                 "*"};

bool is_in_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.' || c == '-' || c == '+';
}

/// Begin and end of the word at `at`; a character that is in no word is one of its own.
std::pair<std::size_t, std::size_t> word_at(const std::string& text, std::size_t at) {
  std::size_t begin = at, end = at + 1;
  if (!is_in_word(text[at])) return {begin, end};
  while (begin > 0 && is_in_word(text[begin - 1])) --begin;
  while (end < text.size() && is_in_word(text[end])) ++end;
  return {begin, end};
}

}  // namespace

std::string Mutator::input_of(const std::vector<std::string>& known, std::size_t most) {
  std::string input = known[below(known.size())];
  const std::string& other = known[below(known.size())];
  for (std::size_t changes = std::size_t{1} << below(4); changes > 0; --changes) change(input, other);
  if (input.size() > most) input.resize(most);
  return input;
}

void Mutator::change(std::string& input, const std::string& other) {
  if (input.empty()) {
    input = other.substr(0, below(other.size() + 1));
    return;
  }
  switch (below(3)) {
    case 0:
      return change_bytes(input);
    case 1:
      return change_parts(input, other);
    default:
      return change_words(input, other);
  }
}

void Mutator::change_bytes(std::string& input) {
  const std::size_t at = below(input.size());
  switch (below(3)) {
    case 0:
      input[at] = static_cast<char>(input[at] ^ 1 << below(8));
      break;
    case 1:
      input[at] = static_cast<char>(chance_());
      break;
    default: {  // an integer of 1, 2, 4 or 8 bytes, of either byte order, or the present one ± 1
      const std::size_t width = std::min(std::size_t{1} << below(4), input.size() - at);
      const std::uint64_t value = integers[below(integers.size())] + below(3) - 1;
      const bool is_big = below(2) == 0;
      for (std::size_t i = 0; i < width; ++i)
        input[at + (is_big ? width - 1 - i : i)] = static_cast<char>(value >> 8 * i);
    }
  }
}

void Mutator::change_parts(std::string& input, const std::string& other) {
  const std::size_t at = below(input.size()), length = 1 + below(std::min(input.size() - at, std::size_t{64}));
  switch (below(5)) {
    case 0:
      input.resize(at);
      break;
    case 1:
      input.erase(at, length);
      break;
    case 2:
      input.insert(below(input.size()), std::string(input, at, length));
      break;
    case 3: {  // a run of one part, for nested or repeated structures
      const std::string part(input, at, 1 + below(std::min(length, std::size_t{8})));
      std::string run;
      for (std::size_t count = std::size_t{1} << below(9); count > 0; --count) run += part;
      input.insert(at, run);
      break;
    }
    default:
      input.resize(at);
      input += other.substr(below(other.size() + 1));
  }
}

void Mutator::change_words(std::string& input, const std::string& other) {
  const auto [begin, end] = word_at(input, below(input.size()));
  std::string word(words[below(words.size())]);
  if (!other.empty() && below(2) == 0) {
    const auto [first, last] = word_at(other, below(other.size()));
    word = other.substr(first, last - first);
  }
  if (below(4) == 0)
    input.insert(begin, word);
  else
    input.replace(begin, end - begin, word);
}

}  // namespace aloni::test

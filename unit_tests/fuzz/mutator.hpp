#pragma once
// Makes inputs of known ones: changed bits and bytes, removed and copied parts, parts of two inputs joined, extreme
// integers in binary and in decimal, and exchanged words. The same seed gives the same inputs.
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace aloni::test {

class Mutator {
 public:
  explicit Mutator(std::uint64_t seed) : chance_(seed) {}

  /// An input made of one or two of `known` by 1 to 8 changes; of at most `most` bytes. @pre known is not empty
  std::string input_of(const std::vector<std::string>& known, std::size_t most);

 private:
  std::size_t below(std::size_t end) { return end == 0 ? 0 : chance_() % end; }
  void change(std::string& input, const std::string& other);
  void change_bytes(std::string& input);
  void change_parts(std::string& input, const std::string& other);
  void change_words(std::string& input, const std::string& other);

  std::mt19937_64 chance_;
};

}  // namespace aloni::test

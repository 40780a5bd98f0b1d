#pragma once
// Number of cases of a property test. Random ones: a quarter under a sanitizer (sanitizer.hpp), eight times as many in
// a nightly run, which sets ALONI_NIGHTLY. Of long lists of cases only a nightly run takes all.
#include <support/sanitizer.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <string_view>
#include <vector>

namespace aloni::test {

inline bool nightly() {
  const char* const text = std::getenv("ALONI_NIGHTLY");
  return text != nullptr && std::string_view(text) != "" && std::string_view(text) != "0";
}

inline int random_cases(int cases) { return (nightly() ? 8 : 1) * share_of(cases); }

/// Every n-th case of a list of more than `most`; all in a nightly run. n is a multiple of neither 2 nor 3: a list made
/// by loops over two, three or four values keeps each of these values.
template <class T>
std::vector<T> some_of(const std::vector<T>& list, std::size_t most) {
  std::size_t n = nightly() ? 1 : std::max<std::size_t>(1, (list.size() + most - 1) / most);
  while (n % 2 == 0 || n % 3 == 0) ++n;
  std::vector<T> some;
  for (std::size_t i = 0; i < list.size(); i += n) some.push_back(list[i]);
  return some;
}

}  // namespace aloni::test

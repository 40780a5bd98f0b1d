#pragma once
// Number of random cases of a property test: a quarter under a sanitizer (sanitizer.hpp), eight times as many in a
// nightly run, which sets ALONI_NIGHTLY.
#include <support/sanitizer.hpp>

#include <cstdlib>
#include <string_view>

namespace aloni::test {

inline bool nightly() {
  const char* const text = std::getenv("ALONI_NIGHTLY");
  return text != nullptr && std::string_view(text) != "" && std::string_view(text) != "0";
}

inline int random_cases(int cases) { return (nightly() ? 8 : 1) * share_of(cases); }

}  // namespace aloni::test

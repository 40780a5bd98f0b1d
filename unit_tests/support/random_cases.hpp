#pragma once
// Number of random cases of a property test: a quarter under a sanitizer (sanitizer.hpp), a quarter in the second run
// of a test with several threads per rank, eight times as many in a nightly run, which sets ALONI_NIGHTLY.
#include <support/sanitizer.hpp>

#include <cstdlib>
#include <string_view>

namespace aloni::test {

inline bool nightly() {
  const char* const text = std::getenv("ALONI_NIGHTLY");
  return text != nullptr && std::string_view(text) != "" && std::string_view(text) != "0";
}

/// Whether a rank has several threads. Such a run of a test comes after one with a single thread (ctest: THREADED).
inline bool has_threads() {
  const char* const text = std::getenv("OMP_NUM_THREADS");
  return text != nullptr && std::string_view(text) != "1";
}

inline int random_cases(int cases) {
  if (nightly()) return 8 * share_of(cases);
  return has_threads() ? (share_of(cases) + 3) / 4 : share_of(cases);
}

}  // namespace aloni::test

#pragma once
// --test_files=test_exchange,test_transfer runs only the tests of these source files. A program holds the tests of a
// folder; ctest runs it file by file.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>

namespace aloni::test {

/// After InitGoogleTest. False, with a line on stderr, when an argument is unknown or a file has no tests here.
inline bool choose_test_files(int argc, char** argv) {
  std::string filter;
  for (int i = 1; i < argc; ++i) {
    std::string_view names(argv[i]);
    constexpr std::string_view flag = "--test_files=";
    if (!names.starts_with(flag)) {
      std::fprintf(stderr, "unknown argument %s: expected --test_files=NAME,… or those of GoogleTest\n", argv[i]);
      return false;
    }
    for (names.remove_prefix(flag.size()); !names.empty();) {
      const std::string file = "/" + std::string(names.substr(0, names.find(','))) + ".cpp";
      names.remove_prefix(std::min(names.size(), file.size() - 4));
      const std::size_t before = filter.size();
      const testing::UnitTest& all = *testing::UnitTest::GetInstance();
      for (int s = 0; s < all.total_test_suite_count(); ++s) {
        const testing::TestSuite& suite = *all.GetTestSuite(s);
        for (int t = 0; t < suite.total_test_count(); ++t) {
          const testing::TestInfo& test = *suite.GetTestInfo(t);
          if (!("/" + std::string(test.file())).ends_with(file)) continue;
          filter += std::string(filter.empty() ? "" : ":") + suite.name() + "." + test.name();
        }
      }
      if (filter.size() == before) {
        std::fprintf(stderr, "no test in a file named %s\n", file.c_str() + 1);
        return false;
      }
    }
  }
  if (!filter.empty()) testing::GTEST_FLAG(filter) = filter;
  return true;
}

}  // namespace aloni::test

// Strategies in the folder of a cache: what one training keeps, the next one finds.
#include "support/temporary_folder.hpp"

#include <aloni/tools/strategy_cache.hpp>

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

namespace aloni::tools {
namespace test_strategy_cache {

KeptStrategy kept_strategy() {
  return {.strategy = nn::Strategy::parse("conv* h4\n* n4\n", "by layer"),
          .seconds = 0.25,
          .memory = {"auto", "conv1,conv2", Index{6} << 30},
          .rank_of = {0, 2, 1, 3}};
}

TEST(StrategyCache, FindsAllThatItHasKept) {
  const aloni::test::TemporaryFolder folder;
  const StrategyCache cache(folder.path("new/cache"));
  EXPECT_FALSE(cache.find("a training"));
  const KeptStrategy kept = kept_strategy();
  cache.keep("a training", kept);
  const auto found = cache.find("a training");
  ASSERT_TRUE(found);
  EXPECT_EQ(to_string(found->strategy), to_string(kept.strategy));
  EXPECT_EQ(found->strategy.source, "by layer");
  EXPECT_EQ(found->seconds, 0.25);
  EXPECT_EQ(found->memory.recompute, "auto");
  EXPECT_EQ(found->memory.offload, "conv1,conv2");
  EXPECT_EQ(found->memory.limit, Index{6} << 30);
  EXPECT_EQ(found->rank_of, kept.rank_of);
  EXPECT_FALSE(cache.find("another training"));
}

TEST(StrategyCache, FindsAStrategyWithoutALimit) {
  const aloni::test::TemporaryFolder folder;
  const StrategyCache cache(folder.path("cache"));
  cache.keep("a training", {.strategy = kept_strategy().strategy});
  const auto found = cache.find("a training");
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->memory.empty());
  EXPECT_TRUE(found->rank_of.empty());
}

TEST(StrategyCache, SaysWhyAFileDoesNotCount) {
  const aloni::test::TemporaryFolder folder;
  const StrategyCache cache(folder.path("cache"));
  const std::string key = "a training", path = cache.path_of(key);
  cache.keep(key, kept_strategy());
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  const std::string whole = text.str();
  const auto reason_with = [&](const std::string& old_text, const std::string& new_text) {
    std::string changed = whole;
    changed.replace(changed.find(old_text), old_text.size(), new_text);
    std::ofstream(path) << changed;
    std::string reason;
    EXPECT_FALSE(cache.find(key, &reason)) << new_text;
    return reason;
  };
  EXPECT_EQ(reason_with("\"aloni_strategy\": ", "\"aloni_strategy\": 1"), path + " is of another version");
  EXPECT_EQ(reason_with("a training", "b training"), path + " is of another training");
  EXPECT_EQ(reason_with("\"offload\"", "\"offloads\""), path + " is damaged");
  EXPECT_EQ(reason_with("6442450944", "\"6 GiB\""), path + " is damaged");
  EXPECT_EQ(reason_with("{", ""), path + " is damaged");
  EXPECT_EQ(reason_with("h4", "x4"), path + " cannot be used");
}

TEST(StrategyCache, KeepsNothingWithoutAFolder) {
  const StrategyCache cache("");
  cache.keep("a training", kept_strategy());
  EXPECT_FALSE(cache.find("a training"));
}

}  // namespace test_strategy_cache
}  // namespace aloni::tools

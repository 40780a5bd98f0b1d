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

ChoiceKey key_of(const std::string& training, const std::string& processor = "one") {
  return {training, {{"version", "1"}, {"processor", processor}, {"contents of the machine file", "none"}}};
}

TEST(StrategyCache, FindsAllThatItHasKept) {
  const aloni::test::TemporaryFolder folder;
  const StrategyCache cache(folder.path("new/cache"));
  EXPECT_FALSE(cache.find(key_of("a training")));
  const KeptStrategy kept = kept_strategy();
  cache.keep(key_of("a training"), kept);
  const auto found = cache.find(key_of("a training"));
  ASSERT_TRUE(found);
  EXPECT_EQ(to_string(found->strategy), to_string(kept.strategy));
  EXPECT_EQ(found->strategy.source, "by layer");
  EXPECT_EQ(found->seconds, 0.25);
  EXPECT_EQ(found->memory.recompute, "auto");
  EXPECT_EQ(found->memory.offload, "conv1,conv2");
  EXPECT_EQ(found->memory.limit, Index{6} << 30);
  EXPECT_EQ(found->rank_of, kept.rank_of);
  EXPECT_FALSE(cache.find(key_of("another training")));
}

TEST(StrategyCache, FindsAStrategyWithoutALimit) {
  const aloni::test::TemporaryFolder folder;
  const StrategyCache cache(folder.path("cache"));
  cache.keep(key_of("a training"), {.strategy = kept_strategy().strategy});
  const auto found = cache.find(key_of("a training"));
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->memory.empty());
  EXPECT_TRUE(found->rank_of.empty());
}

TEST(StrategyCache, SaysWhyAFileDoesNotCount) {
  const aloni::test::TemporaryFolder folder;
  const StrategyCache cache(folder.path("cache"));
  const ChoiceKey key = key_of("a training");
  const std::string path = cache.path_of(key);
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
  EXPECT_EQ(reason_with("\"aloni_strategy\": ", "\"aloni_strategy\": 1"), path + " is of another version of this file");
  EXPECT_EQ(reason_with("a training", "b training"), path + " is of another training");
  EXPECT_EQ(reason_with("\"offload\"", "\"offloads\""), path + " is damaged");
  EXPECT_EQ(reason_with("6442450944", "\"6 GiB\""), path + " is damaged");
  EXPECT_EQ(reason_with("{", ""), path + " is damaged");
  EXPECT_EQ(reason_with("h4", "x4"), path + " cannot be used");
}

TEST(StrategyCache, NamesTheConditionThatDiffers) {
  const aloni::test::TemporaryFolder folder;
  const StrategyCache cache(folder.path("cache"));
  const ChoiceKey one = key_of("a training"), two = key_of("a training", "two");
  std::string reason;
  EXPECT_FALSE(cache.find(two, &reason));
  EXPECT_EQ(reason, "");  // never chosen before
  cache.keep(one, kept_strategy());
  EXPECT_FALSE(cache.find(two, &reason));
  EXPECT_EQ(reason, cache.path_of(one) + " is of processor one, not two");
  EXPECT_FALSE(cache.find(key_of("another training", "two"), &reason));
  EXPECT_EQ(reason, "");
  cache.keep(two, kept_strategy());  // both stay
  EXPECT_TRUE(cache.find(one, &reason));
  EXPECT_TRUE(cache.find(two, &reason));
  ChoiceKey newer = two;
  newer.conditions.front().value = "2";
  EXPECT_FALSE(cache.find(newer, &reason));
  EXPECT_TRUE(reason.ends_with(" is of version 1, not 2")) << reason;
}

TEST(StrategyCache, KeepsNothingWithoutAFolder) {
  const StrategyCache cache("");
  cache.keep(key_of("a training"), kept_strategy());
  EXPECT_FALSE(cache.find(key_of("a training")));
}

}  // namespace test_strategy_cache
}  // namespace aloni::tools

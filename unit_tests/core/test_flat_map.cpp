// The table against std::unordered_map under random insertions, lookups and erasures.
#include <aloni/core/flat_map.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <random>
#include <unordered_map>
#include <vector>

namespace test_flat_map {

using aloni::FlatMap;

TEST(FlatMap, AgreesWithAStandardMapUnderRandomCalls) {
  std::mt19937_64 random(20261126);
  for (const std::uint64_t keys : {3u, 40u, 5000u}) {
    for (const int shift : {0, 40}) {  // dense keys, and keys that differ in their upper bits only
      FlatMap<std::uint64_t, std::uint64_t> map;
      std::unordered_map<std::uint64_t, std::uint64_t> expected;
      for (int call = 0; call < 20'000; ++call) {
        const std::uint64_t key = random() % keys << shift, value = random();
        switch (random() % 4) {
          case 0:
            map[key] = expected[key] = value;
            break;
          case 1: {
            const auto [at, is_new] = map.try_emplace(key);
            ASSERT_EQ(is_new, expected.try_emplace(key).second);
            ASSERT_EQ(at->first, key);
            ASSERT_EQ(at->second, expected[key]);
            break;
          }
          case 2:
            ASSERT_EQ(map.contains(key), expected.contains(key));
            break;
          default:
            if (const auto at = map.find(key); at != map.end()) {
              ASSERT_EQ(expected.erase(key), 1u);
              map.erase(at);
            } else {
              ASSERT_FALSE(expected.contains(key));
            }
        }
        ASSERT_EQ(map.size(), expected.size());
      }
      std::size_t visited = 0;
      for (const auto& [key, value] : map) {
        ASSERT_EQ(expected.at(key), value);
        ++visited;
      }
      EXPECT_EQ(visited, expected.size());
    }
  }
}

TEST(FlatMap, WithoutElementsHasNone) {
  FlatMap<std::uint32_t, int> map;
  EXPECT_TRUE(map.empty());
  EXPECT_FALSE(map.contains(0));
  EXPECT_TRUE(map.find(7) == map.end());
  EXPECT_TRUE(map.begin() == map.end());
  map[0] = 5;
  map.erase(map.find(0));
  EXPECT_TRUE(map.empty());
  EXPECT_EQ(map[0], 0);  // an erased value is forgotten
}

TEST(FlatMap, MovesElementsThatCannotBeCopied) {
  FlatMap<std::uint32_t, std::unique_ptr<int>> map;
  for (std::uint32_t key = 0; key < 100; ++key) map[key] = std::make_unique<int>(static_cast<int>(key));
  for (std::uint32_t key = 0; key < 100; key += 2) map.erase(map.find(key));
  for (std::uint32_t key = 1; key < 100; key += 2) EXPECT_EQ(*map.find(key)->second, static_cast<int>(key));
  const auto moved = std::move(map);
  EXPECT_EQ(moved.size(), 50u);
}

}  // namespace test_flat_map

// The texts of errors about memory, and the numbers of ranks that they name.
#include <aloni/nn/plan/memory_shortage.hpp>

#include <aloni/core/error.hpp>
#include <aloni/nn/models.hpp>
#include <aloni/nn/plan/largest_memory.hpp>

#include <gmock/gmock.h>

#include <string>
#include <vector>

namespace test_memory_shortage {

using namespace aloni;
using namespace aloni::nn;
using testing::AllOf;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

constexpr Index samples = 64;

NetworkDescription lenet() { return make_model("lenet5"); }

std::vector<LayerSplit> splits_of(const std::string& grid, int ranks) {
  return resolve(Strategy::uniform(LayerSplit::parse(grid)), lenet(), ranks);
}

Index peak_of(const std::string& grid, int ranks) {
  const NetworkPlan layers = plan_network(lenet(), splits_of(grid, ranks), ranks, samples);
  return largest_memory(lenet(), layers, {}, StepKind::training, {}).peak;
}

TEST(MemoryShortage, NamesTheBytesThatAreMissingAndTheLayerAtThePeak) {
  EXPECT_EQ(to_string(MemoryShortage{2500, 1000, "conv1"}),
            "at least 2500 bytes, 1500 bytes more than the limit; most are in use at layer conv1");
  EXPECT_THAT(to_string(MemoryShortage{2500, 1000, ""}), EndsWith("more than the limit"));
}

TEST(MemoryShortage, NamesTheWaysThatAreLeft) {
  const MachineDescription device{.on_host = false};
  EXPECT_EQ(to_string(ways_beside({}, device)),
            "Recomputation \"auto\", offloading \"auto\", a smaller mini-batch, more micro-batches, more ranks, or "
            "another strategy would help");
  EXPECT_THAT(to_string(ways_beside({}, {})), Not(HasSubstr("offloading"))) << "a host";
  EXPECT_THAT(to_string(ways_beside({.recompute = "auto"}, device)), testing::StartsWith("Offloading \"auto\", a "));
  EXPECT_EQ(to_string(WaysToNeedLess{.ranks_and_strategy = false}), "A smaller mini-batch would help");
  EXPECT_EQ(to_string(WaysToNeedLess{.micro_batches = true, .ranks_and_strategy = false}),
            "A smaller mini-batch or more micro-batches would help");
}

TEST(MemoryShortage, DoublesTheRanksAndThenBisects) {
  std::vector<int> tried;
  const auto from = [&](int least) {
    tried.clear();
    return [&tried, least](int ranks) {
      tried.push_back(ranks);
      return ranks >= least;
    };
  };
  const MoreRanks more = find_more_ranks(32, {.step = 8}, 1, from(84));
  EXPECT_EQ(more.ranks, 88);
  EXPECT_THAT(tried, ElementsAre(64, 128, 96, 80, 88));
  EXPECT_EQ(to_string(more), "88 ranks would do: the least multiple of 8 that was found");
  EXPECT_EQ(find_more_ranks(32, {.step = 8}, 3.5, from(84)).ranks, 88);
  EXPECT_THAT(tried, ElementsAre(128, 96, 80, 88)) << "64 ranks need half the memory at best";
  EXPECT_EQ(find_more_ranks(1009, {.step = 256}, 1, from(1010)).ranks, 1024);
  EXPECT_EQ(find_more_ranks(1, {}, 1, from(3)).ranks, 3);
}

TEST(MemoryShortage, TriesNoMoreRanksThanThereAre) {
  const MoreRanks six = find_more_ranks(4, {.most = 6}, 1, [](int ranks) { return ranks >= 6; });
  EXPECT_EQ(six.ranks, 6);
  EXPECT_EQ(to_string(six), "6 ranks would do: the least number that was found");
  const MoreRanks none = find_more_ranks(4, {.step = 2, .most = 19}, 1, [](int) { return false; });
  EXPECT_EQ(none.ranks, 0);
  EXPECT_EQ(to_string(none), "No multiple of 2 up to 18 ranks was found that would do");
  int tries = 0;
  EXPECT_EQ(find_more_ranks(4, {.tries = 3}, 1, [&](int) { return ++tries > 3; }).most, 32);
  EXPECT_EQ(to_string(find_more_ranks(4, {.most = 4}, 1, [](int) { return true; })), "");
}

TEST(MemoryShortage, FindsTheRanksWithMoreBlocksOfSamplesThatFit) {
  const NetworkDescription net = lenet();
  const std::vector<LayerSplit> splits = splits_of("n2", 2);
  const GivenStep step{.network = net, .splits = splits, .ranks = 2, .samples = samples};
  const Index limit = peak_of("n6", 6);
  ASSERT_GT(peak_of("n4", 4), limit);
  EXPECT_EQ(to_string(find_more_sample_blocks(step, {}, limit)),
            "6 ranks would do (with 3 times the blocks of samples): the least multiple of 2 that was found");
  EXPECT_EQ(to_string(find_more_sample_blocks(step, machine_of_nodes(2, 2), limit)),
            to_string(find_more_sample_blocks(step, {}, limit)));
  EXPECT_EQ(to_string(find_more_sample_blocks(step, {}, 1000)),
            "No multiple of 2 up to 64 ranks was found that would do (with more blocks of samples)");
  GivenStep again = step;
  again.wish.recompute = "auto";
  EXPECT_LE(find_more_sample_blocks(again, {}, limit).ranks, 6);
  const std::vector<LayerSplit> all = splits_of("n64", 64);
  EXPECT_EQ(find_more_sample_blocks({.network = net, .splits = all, .ranks = 64, .samples = samples}, {}, 1000).most,
            0);
}

TEST(MemoryShortage, OfAGivenStepNamesRanksAndWays) {
  const NetworkDescription net = lenet();
  const std::vector<LayerSplit> splits = splits_of("h2", 2);
  const GivenStep step{
      .network = net, .splits = splits, .ranks = 2, .samples = samples, .wish = {.limit = peak_of("n3h2", 6)}};
  const NetworkPlan layers = plan_network(net, splits, 2, samples);
  try {
    savings_or_ways_out(step, layers, {});
    FAIL() << "fits";
  } catch (const InvalidArgument& e) {
    const Index peak = peak_of("h2", 2);
    EXPECT_EQ(e.argument(), memory_limit_argument);
    EXPECT_THAT(e.expectation(),
                AllOf(HasSubstr("at least " + std::to_string(peak) + " bytes"),
                      HasSubstr(std::to_string(peak - *step.wish.limit) + " bytes more"), HasSubstr("at layer "),
                      HasSubstr("Recomputation \"auto\""), HasSubstr("6 ranks would do (with 3 times")));
  }
  EXPECT_THAT(ways_out(step, {}, *step.wish.limit), AllOf(HasSubstr("6 ranks would do"), HasSubstr("would help")));
  GivenStep fitting = step;
  fitting.wish.limit = peak_of("h2", 2);
  EXPECT_NO_THROW(savings_or_ways_out(fitting, layers, {}));
}

}  // namespace test_memory_shortage

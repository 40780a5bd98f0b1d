#include <aloni/model/choose_strategy.hpp>

#include <aloni/core/error.hpp>
#include <aloni/model/shipped_machines.hpp>
#include <aloni/model/simulate.hpp>
#include <aloni/nn/models.hpp>
#include <aloni/nn/plan/memory.hpp>

#include <gmock/gmock.h>
#include <nn/random_network.hpp>
#include <support/random_cases.hpp>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <regex>
#include <string>
#include <variant>

namespace aloni::model {
namespace test_choose_strategy {

using nn::LayerSplit;
using testing::HasSubstr;

/// A residual network: the layer `sum` reads both ends of a chain.
nn::NetworkDescription residual() {
  const nn::Window window = nn::square_window(2, 3, 1, 1);
  return {.spatial_rank = 2,
          .input = views::make_extents(1, {8, 8}, 4),
          .layers = {{"a", nn::Convolution{4, window}, {"input"}},
                     {"relu", nn::Relu{}, {"a"}},
                     {"b", nn::Convolution{4, window}, {"relu"}},
                     {"sum", nn::Add{}, {"b", "a"}},
                     {"mean", nn::GlobalAveragePooling{}, {"sum"}},
                     {"fc", nn::Dense{10}, {"mean"}}},
          .loss = nn::Loss::softmax_cross_entropy};
}

Machine machine_of(int ranks_per_node) {
  Machine machine = generic_machine();
  machine.ranks_per_node = ranks_per_node;
  return machine;
}

/// The search may save memory in any way to meet it.
nn::MemoryWish limited(double bytes) {
  return {.recompute = "auto", .offload = "auto", .limit = static_cast<Index>(bytes)};
}

/// The finalist with one grid for all layers.
std::optional<Finalist> finalist_named(const StrategyChoice& choice, const std::string& grid) {
  const auto found =
      std::ranges::find_if(choice.finalists, [&](const Finalist& f) { return f.strategy.source == grid; });
  return found == choice.finalists.end() ? std::nullopt : std::optional(*found);
}

TEST(ChooseStrategy, CountsASumOfGradientsOnceForAllMicroBatches) {
  const nn::NetworkDescription net = nn::make_model("lenet5");
  Machine machine = machine_of(1);
  machine.links[static_cast<std::size_t>(LinkKind::between_nodes)].seconds_per_byte = 1e-8;
  const auto choose = [&](int micro_batches) {
    return choose_strategy(net, machine, 2, {.samples = 16, .micro_batches = micro_batches, .simulated = 20});
  };
  const StrategyChoice one = choose(1), many = choose(50);
  // Another split moves fewer bytes than the gradients have, but in each micro-batch.
  const auto whole = finalist_named(one, "n2"), summed = finalist_named(many, "n2");
  ASSERT_TRUE(whole && summed);
  EXPECT_GT(whole->seconds, one.seconds);
  EXPECT_LT(summed->seconds, 50 * whole->seconds);
  EXPECT_DOUBLE_EQ(summed->seconds, many.seconds);
  EXPECT_NEAR(summed->bytes - whole->bytes, 61'706 * 4, 0.02 * 61'706 * 4);
  EXPECT_THROW(choose(0), InvalidArgument);
  EXPECT_THROW(choose_strategy(net, machine, 2, {.micro_batches = 2, .objective = Objective::inference_latency}),
               InvalidArgument);
}

/// Random prices, equal for equal arguments. The time of a step is their sum.
class RandomPrices {
 public:
  RandomPrices(const nn::NetworkDescription& net, unsigned seed) : net_(net), random_(seed) {}

  LayerPrice layer(int layer, LayerSplit split) {
    split.overlap = nn::Overlap::interior_first;
    const std::string key = std::to_string(layer) + to_string(split);
    auto [found, is_new] = layers_.try_emplace(key);
    if (is_new) found->second = {.seconds = draw(), .bytes = draw()};
    return found->second;
  }
  double edge(int from, const LayerSplit& a, int to, const LayerSplit& b) {
    if (from < 0 || a.tensor_grid() == b.tensor_grid()) return 0;
    const std::string key = std::to_string(from) + to_string(a) + " " + std::to_string(to) + to_string(b);
    auto [found, is_new] = edges_.try_emplace(key, 0);
    if (is_new) found->second = draw() / 2;
    return found->second;
  }
  double seconds(const std::vector<LayerSplit>& splits) {
    double sum = 0;
    for (int l = 0; l < static_cast<int>(splits.size()); ++l) {
      sum += layer(l, splits[static_cast<std::size_t>(l)]).seconds;
      for (const std::string& input : net_.layers[static_cast<std::size_t>(l)].inputs) {
        const int from = find_layer(net_, input);
        if (from >= 0)
          sum += edge(from, splits[static_cast<std::size_t>(from)], l, splits[static_cast<std::size_t>(l)]);
      }
    }
    return sum;
  }
  double bytes(const std::vector<LayerSplit>& splits) {
    double sum = 0;
    for (int l = 0; l < static_cast<int>(splits.size()); ++l)
      sum += layer(l, splits[static_cast<std::size_t>(l)]).bytes;
    return sum;
  }

  StrategyPrices functions() {
    return {[this](const LayerFacts& f, const LayerSplit& s) { return layer(f.layer, s); },
            [this](int from, const LayerSplit& a, int to, const LayerSplit& b) { return edge(from, a, to, b); },
            [this](const std::vector<LayerSplit>& s) { return seconds(s); },
            [this](const std::vector<LayerSplit>& s) { return bytes(s); }};
  }

 private:
  double draw() { return 1 + static_cast<double>(random_() % 100); }

  const nn::NetworkDescription& net_;
  std::mt19937 random_;
  std::map<std::string, LayerPrice> layers_;
  std::map<std::string, double> edges_;
};

/// Calls f(splits) for all choices of candidates.
void for_each_strategy(const StrategyChoice& choice, const std::function<void(const std::vector<LayerSplit>&)>& f) {
  std::vector<std::size_t> option(choice.layers.size(), 0);
  for (;;) {
    std::vector<LayerSplit> splits;
    const auto list = [&](std::size_t l) -> const std::vector<LayerSplit>& {
      return choice.candidates[static_cast<std::size_t>(choice.layers[l].candidates)].splits;
    };
    for (std::size_t l = 0; l < option.size(); ++l) splits.push_back(list(l)[option[l]]);
    f(splits);
    std::size_t l = 0;
    while (l < option.size() && ++option[l] == list(l).size()) option[l++] = 0;
    if (l == option.size()) return;
  }
}

TEST(ChooseStrategy, FindsTheBestOfAllStrategies) {
  const auto net = residual();
  const unsigned seed = std::random_device()();
  for (unsigned i = 0; i < static_cast<unsigned>(aloni::test::random_cases(20)); ++i) {
    SCOPED_TRACE("seed " + std::to_string(seed) + " + " + std::to_string(i));
    RandomPrices prices(net, seed + i);
    const Machine machine = machine_of(2);
    const StrategyChoice choice =
        choose_strategy(net, machine, 2, {.samples = 4, .memory = limited(1e9), .prices = prices.functions()});
    double least = 1e9, least_bytes = 1e9;
    for_each_strategy(choice, [&](const auto& splits) {
      least = std::min(least, prices.seconds(splits));
      least_bytes = std::min(least_bytes, prices.bytes(splits));
    });
    EXPECT_TRUE(choice.exact);
    EXPECT_LE(choice.seconds, least) << "a uniform strategy may have splits that are no candidates";
    EXPECT_DOUBLE_EQ(choice.seconds, prices.seconds(choice.splits));

    // With a limit of memory halfway.
    const double limit = (least_bytes + choice.bytes) / 2;
    const StrategyChoice small =
        choose_strategy(net, machine, 2, {.samples = 4, .memory = limited(limit), .prices = prices.functions()});
    double best = 1e9;
    for_each_strategy(choice, [&](const auto& splits) {
      if (prices.bytes(splits) <= limit) best = std::min(best, prices.seconds(splits));
    });
    EXPECT_LE(prices.bytes(small.splits), limit);
    EXPECT_GE(small.seconds, choice.seconds);
    // The limit of the sum is lowered in steps until the plans fit: not always to the best that fits.
    EXPECT_LE(small.seconds, best * 1.5);
  }
}

TEST(ChooseStrategy, NamesTheRunnerUpAndItsCost) {
  const auto net = residual();
  RandomPrices prices(net, 5);
  const StrategyChoice choice = choose_strategy(net, machine_of(2), 2, {.samples = 4, .prices = prices.functions()});
  for (std::size_t l = 0; l < choice.layers.size(); ++l) {
    const LayerChoice& layer = choice.layers[l];
    EXPECT_FALSE(layer.reason.empty());
    if (!layer.runner_up) continue;
    auto splits = choice.splits;
    for (LayerSplit& s : splits) s.overlap = nn::Overlap::interior_first;
    const double before = prices.seconds(splits);
    splits[l] = *layer.runner_up;
    EXPECT_NEAR(prices.seconds(splits) - before, layer.runner_up_seconds, 1e-9) << net.layers[l].name;
    EXPECT_THAT(layer.reason, HasSubstr(to_string(*layer.runner_up)));
    for (const LayerSplit& other : choice.candidates[static_cast<std::size_t>(layer.candidates)].splits) {
      if (other.grid == choice.splits[l].grid && other.filters == choice.splits[l].filters) continue;
      splits[l] = other;
      EXPECT_GE(prices.seconds(splits) - before, layer.runner_up_seconds - 1e-9);
    }
  }
}

double peak_bytes(const nn::NetworkDescription& net, const StrategyChoice& choice, const Machine& machine, int ranks) {
  const auto layers = plan_network(net, choice.splits, ranks, choice.samples);
  const MachineDescription description = description_of(machine, ranks);
  nn::StepOptions step;
  choice.savings.apply(step);
  Index most = 0;
  for (int r = 0; r < ranks; ++r)
    most = std::max(most,
                    memory_of(plan_step(net, layers, r, nn::StepKind::training, description, step), description).peak);
  return static_cast<double>(most);
}

TEST(ChooseStrategy, IsNeverSlowerThanOneSplitForAllLayers) {
  for (const auto& [model, ranks, samples] :
       {std::tuple{"lenet5", 2, 16}, std::tuple{"lenet5", 6, 6}, std::tuple{"cosmoflow", 4, 2}}) {
    const auto net = nn::make_model(
        model, {.input = std::string(model) == "cosmoflow" ? std::optional(views::Extents{{1, 32, 32, 32, 1}})
                                                           : std::nullopt});
    const Machine machine = machine_of(2);
    const MachineKernels kernels(machine, 2, 1);
    const StrategyChoice choice = choose_strategy(net, machine, ranks, {.samples = samples});
    EXPECT_TRUE(choice.simulated);
    ASSERT_TRUE(choice.uniform);
    EXPECT_LE(choice.seconds, choice.uniform->seconds) << model;
    const auto seconds_of = [&](const std::vector<LayerSplit>& splits) {
      return simulate(net, plan_network(net, splits, ranks, samples), machine, kernels).seconds;
    };
    EXPECT_DOUBLE_EQ(seconds_of(choice.splits), choice.seconds);
    for (const char* text : {"n2", "h2", "w2", "c2", "f2"}) {
      if (ranks != 2) break;
      const std::vector<LayerSplit> uniform(net.layers.size(), LayerSplit::parse(text));
      EXPECT_LE(choice.seconds, seconds_of(uniform) * 1.0001) << model << " " << text;
    }
    EXPECT_EQ(resolve(choice.strategy, net, ranks), choice.splits);
    EXPECT_EQ(resolve(nn::Strategy::parse(to_string(choice.strategy), "text"), net, ranks), choice.splits);
  }
}

TEST(ChooseStrategy, MixesSplitsWhereThatIsFaster) {
  // Large images first, then many weights: rows for the former, filters for the latter.
  const nn::Window window = nn::square_window(2, 3, 1, 1);
  const nn::NetworkDescription net{.spatial_rank = 2,
                                   .input = views::make_extents(1, {256, 256}, 4),
                                   .layers = {{"conv", nn::Convolution{8, window}, {"input"}},
                                              {"pool", nn::AdaptivePooling{.output = {1, 4, 4}}, {"conv"}},
                                              {"flatten", nn::Flatten{}, {"pool"}},
                                              {"fc1", nn::Dense{4096}, {"flatten"}},
                                              {"relu", nn::Relu{}, {"fc1"}},
                                              {"fc2", nn::Dense{4096}, {"relu"}},
                                              {"fc3", nn::Dense{10}, {"fc2"}}},
                                   .loss = nn::Loss::softmax_cross_entropy};
  const StrategyChoice choice = choose_strategy(net, machine_of(2), 8, {.samples = 8});
  ASSERT_TRUE(choice.uniform);
  EXPECT_LT(choice.seconds, 0.9 * choice.uniform->seconds);
  EXPECT_NE(choice.splits[0].tensor_grid(), choice.splits[5].tensor_grid());
}

TEST(ChooseStrategy, KeepsTheMemoryOfARank) {
  const auto net = nn::make_model("resnet18", {.input = views::Extents{{1, 1, 32, 32, 3}}});
  const Machine machine = machine_of(2);
  const StrategyChoice free = choose_strategy(net, machine, 4, {.samples = 64});
  EXPECT_DOUBLE_EQ(free.bytes, peak_bytes(net, free, machine, 4));
  const StrategyChoice tight = choose_strategy(net, machine, 4, {.samples = 64, .memory = limited(free.bytes * 0.96)});
  EXPECT_LE(tight.bytes, free.bytes * 0.96);
  EXPECT_DOUBLE_EQ(tight.bytes, peak_bytes(net, tight, machine, 4));
  EXPECT_GE(tight.seconds, 0.98 * free.seconds) << "only the best sums are simulated";
  Machine small = machine;
  small.memory_bytes = free.bytes * 0.96;
  EXPECT_EQ(choose_strategy(net, small, 4, {.samples = 64}).splits, tight.splits);
}

/// Bytes of a rank above which a strategy fits that keeps all activations; too large by at most 2 %.
double least_bytes_without_recomputation(const nn::NetworkDescription& net, const Machine& machine, int ranks,
                                         ChooseOptions options) {
  options.memory.recompute = options.memory.offload = "";
  double fits = choose_strategy(net, machine, ranks, options).bytes;
  while (true) {
    options.memory.limit = static_cast<Index>(0.98 * fits);
    try {
      fits = choose_strategy(net, machine, ranks, options).bytes;
    } catch (const InvalidArgument&) {
      return fits;
    }
  }
}

TEST(ChooseStrategy, RecomputesActivationsWhereNoSplitFits) {
  const auto net = nn::make_model("resnet18", {.input = views::Extents{{1, 1, 32, 32, 3}}});
  const Machine machine = machine_of(2);
  ChooseOptions options{.samples = 64, .simulated = 1};
  // The plans change over time, so the limit follows from the strategies that keep all activations.
  options.memory.limit = static_cast<Index>(0.97 * least_bytes_without_recomputation(net, machine, 2, options));
  const StrategyChoice choice = choose_strategy(net, machine, 2, options);
  ASSERT_FALSE(choice.savings.recomputation.blocks.empty());
  EXPECT_TRUE(choice.savings.offload.empty()) << "the machine is a host";
  EXPECT_EQ(choice.finalists.front().savings.recomputation.blocks, choice.savings.recomputation.blocks);
  EXPECT_THAT(choice.savings_reason, HasSubstr("layers are computed again"));
  const auto layers = plan_network(net, choice.splits, 2, 64);
  nn::StepOptions step;
  choice.savings.apply(step);
  EXPECT_DOUBLE_EQ(choice.bytes, peak_bytes(net, choice, machine, 2));
  EXPECT_LE(choice.bytes, static_cast<double>(*options.memory.limit));
  const MachineKernels kernels(machine, 2, 1);
  EXPECT_DOUBLE_EQ(simulate(net, layers, machine, kernels, {.step = step}).seconds, choice.seconds);
  options.memory.recompute = "";
  EXPECT_THROW(choose_strategy(net, machine, 2, options), InvalidArgument);
}

nn::NetworkDescription mesh() { return nn::make_model("mesh1k", {.input = views::Extents{{1, 1, 256, 256, 18}}}); }

TEST(ChooseStrategy, MovesActivationsToTheHostWhereNoSplitFits) {
  const auto net = mesh();
  const Machine machine = find_machine("lassen");  // its devices reach their hosts by NVLink
  ChooseOptions options{.samples = 8, .simulated = 1};
  options.memory.limit = static_cast<Index>(0.85 * choose_strategy(net, machine, 2, options).bytes);
  const StrategyChoice choice = choose_strategy(net, machine, 2, options);
  ASSERT_FALSE(choice.savings.offload.empty()) << choice.savings_reason;
  EXPECT_THAT(choice.savings_reason,
              testing::MatchesRegex(".* layers leave for host memory \\([0-9]+ MB\\), because .*"));
  EXPECT_DOUBLE_EQ(choice.bytes, peak_bytes(net, choice, machine, 2));
  EXPECT_LE(choice.bytes, static_cast<double>(*options.memory.limit));
  const auto layers = plan_network(net, choice.splits, 2, 8);
  // A training finds the same savings for the wish.
  const nn::MemorySavings again = nn::memory_savings_for(net, layers, description_of(machine, 2), {}, choice.wish);
  EXPECT_EQ(again.offload, choice.savings.offload);
  EXPECT_EQ(again.recomputation.blocks, choice.savings.recomputation.blocks);
  nn::StepOptions step;
  choice.savings.apply(step);
  const MachineKernels kernels(machine, 4, 1);
  EXPECT_DOUBLE_EQ(simulate(net, layers, machine, kernels, {.step = step}).seconds, choice.seconds);
  // The fastest of the ways is taken, so fewer ways are no faster.
  for (const auto& [recompute, offload] : {std::pair("auto", ""), std::pair("", "auto")}) {
    options.memory.recompute = recompute;
    options.memory.offload = offload;
    const StrategyChoice one = choose_strategy(net, machine, 2, options);
    EXPECT_GE(one.seconds, choice.seconds) << recompute;
    EXPECT_EQ(one.savings.recomputation.blocks.empty(), options.memory.recompute.empty());
    EXPECT_EQ(one.savings.offload.empty(), options.memory.offload.empty());
  }
}

TEST(ChooseStrategy, MovesNothingIfTheBandwidthToTheHostIsNotKnown) {
  const auto net = mesh();
  Machine machine = find_machine("lassen");
  machine.processor.host_bandwidth = 0;
  ChooseOptions options{.samples = 8, .simulated = 1};
  options.memory.limit = static_cast<Index>(0.85 * choose_strategy(net, machine, 2, options).bytes);
  const StrategyChoice choice = choose_strategy(net, machine, 2, options);
  EXPECT_TRUE(choice.savings.offload.empty());
  EXPECT_FALSE(choice.savings.recomputation.blocks.empty());
}

TEST(ChooseStrategy, EveryStrategySavesInTheLayersOfPatterns) {
  const auto net = mesh();
  const Machine machine = find_machine("lassen");
  const ChooseOptions options{.samples = 8, .memory = {.recompute = "*2_2", .offload = "*1_1"}, .simulated = 1};
  const StrategyChoice choice = choose_strategy(net, machine, 2, options);
  ASSERT_GT(choice.finalists.size(), 1U);
  for (const Finalist& finalist : choice.finalists) {
    EXPECT_EQ(finalist.savings.recomputation.blocks, nn::recomputed_blocks(net, "*2_2"));
    EXPECT_EQ(finalist.savings.offload, nn::offloaded_layers(net, "*1_1"));
    EXPECT_EQ(finalist.wish.recompute, "*2_2");
    EXPECT_EQ(finalist.wish.offload, "*1_1");
    EXPECT_FALSE(finalist.wish.limit);
  }
  EXPECT_EQ(choice.savings_reason, "");
  EXPECT_DOUBLE_EQ(choice.bytes, peak_bytes(net, choice, machine, 2));
  EXPECT_THROW(choose_strategy(net, machine, 2, {.memory = {.recompute = "no such layer"}}), InvalidArgument);
  EXPECT_THROW(choose_strategy(net, machine_of(2), 2, {.memory = {.offload = "*1_1"}}), Unsupported) << "a host";
}

TEST(ChooseStrategy, SplitsTheFiltersOfLargeDenseLayers) {
  const Machine lassen = find_machine("lassen");
  const auto net = nn::make_model("vgg16");
  const StrategyChoice choice = choose_strategy(net, lassen, 32, {.samples = 256, .simulated = 1});
  const LayerSplit first = choice.splits[static_cast<std::size_t>(find_layer(net, "conv1_1"))];
  const LayerSplit dense = choice.splits[static_cast<std::size_t>(find_layer(net, "fc1"))];
  EXPECT_EQ(to_string(first), "n32");
  EXPECT_GT(dense.grid[views::Dim::channel] * dense.filters, 1) << to_string(dense);
}

/// Where sums of gradients are not hidden, filters are better than space if there are many weights per pixel.
TEST(ChooseStrategy, PricesFiltersAndSpaceAsMeasuredOnClusters) {
  const Machine lassen = find_machine("lassen");
  const MachineKernels kernels(lassen, 4, 1);
  const auto seconds = [&](const char* model, const char* split) {
    const auto net = nn::make_model(model);
    const auto splits = resolve(nn::Strategy::uniform(LayerSplit::parse(split)), net, 32);
    return simulate(net, plan_network(net, splits, 32, 32), lassen, kernels).seconds;
  };
  EXPECT_LT(seconds("vgg16", "n8f4"), seconds("vgg16", "n8h4"));
  EXPECT_LT(seconds("resnet50", "n8h4"), seconds("resnet50", "n8f4"));
}

TEST(ChooseStrategy, SaysHowMuchMemoryIsMissing) {
  const auto net = nn::make_model("lenet5");
  const Machine machine = machine_of(2);
  try {
    choose_strategy(net, machine, 2, {.samples = 256, .memory = limited(4e6), .simulated = 1});
    FAIL() << "256 samples need more";
  } catch (const InvalidArgument& e) {
    EXPECT_EQ(e.value(), "4000000 bytes");
    EXPECT_THAT(e.expectation(), HasSubstr("at least "));
    EXPECT_THAT(e.expectation(), HasSubstr("layer"));
    EXPECT_THAT(e.expectation(), testing::ContainsRegex("[0-9]+ ranks would do"));
    EXPECT_THAT(e.expectation(), HasSubstr("bytes more than the limit"));
  }
}

// Relu, sums and batch normalisations have the candidates of the layers that they read, not reasons of their own.
TEST(ChooseStrategy, GivesTheRejectedSplitsOfLayersWithCandidatesOfTheirOwn) {
  for (const char* model : {"lenet5", "resnet18"}) {
    const auto net = nn::make_model(model);
    const auto facts = facts_of(net, 16);
    const StrategyChoice choice = choose_strategy(net, machine_of(4), 16, {.samples = 16, .simulated = 1});
    int own = 0, rejected = 0;
    for (std::size_t l = 0; l < choice.layers.size(); ++l) {
      const LayerChoice& layer = choice.layers[l];
      const bool visits_elements = std::holds_alternative<nn::Relu>(net.layers[l].operation) ||
                                   std::holds_alternative<nn::Add>(net.layers[l].operation);
      EXPECT_FALSE(visits_elements && layer.own_candidates) << net.layers[l].name;
      if (!layer.own_candidates) continue;
      ++own;
      const Candidates expected = candidates_of(facts[l], 16),
                       &list = choice.candidates.at(static_cast<std::size_t>(layer.candidates));
      // The search adds splits that other layers have.
      for (const Rejection& r : list.rejected) {
        EXPECT_THAT(expected.rejected, testing::Contains(r)) << net.layers[l].name << " " << to_string(r.split);
        EXPECT_THAT(list.splits, testing::Not(testing::Contains(r.split)));
        ++rejected;
      }
      for (const Rejection& r : expected.rejected)
        EXPECT_TRUE(std::ranges::count(list.rejected, r) + std::ranges::count(list.splits, r.split) == 1)
            << net.layers[l].name << " " << to_string(r.split);
    }
    EXPECT_GT(own, 3);
    EXPECT_GT(rejected, 50);
  }
}

std::string refusal_of_memory(const nn::NetworkDescription& net, const Machine& machine, int ranks,
                              const ChooseOptions& options) {
  try {
    choose_strategy(net, machine, ranks, options);
  } catch (const InvalidArgument& e) {
    EXPECT_EQ(e.argument(), memory_argument);
    return e.expectation();
  }
  return "fits";
}

TEST(ChooseStrategy, NamesTheLeastNumberOfRanksThatFits) {
  const auto net = nn::make_model("lenet5");
  const ChooseOptions options{.samples = 1024, .memory = {.limit = Index{2'600'000}}, .simulated = 1};
  const std::string text = refusal_of_memory(net, machine_of(1), 8, options);
  std::smatch found;
  ASSERT_TRUE(std::regex_search(text, found, std::regex("([0-9]+) ranks would do: the least multiple of 2 "))) << text;
  const int ranks = std::stoi(found[1]);
  EXPECT_EQ(refusal_of_memory(net, machine_of(1), ranks, options), "fits") << text;
  EXPECT_NE(ranks & (ranks - 1), 0) << "a power of two needs no bisection";
}

TEST(ChooseStrategy, SaysThatNoNumberOfRanksWasFoundAndWhatElseHelps) {
  Machine machine = find_machine("lassen");
  const auto net = nn::make_model("lenet5");
  ChooseOptions options{.samples = 64, .memory = {.limit = 1000}, .simulated = 1};
  EXPECT_THAT(refusal_of_memory(net, machine, 4, options),
              testing::AllOf(testing::ContainsRegex("No multiple of 4 up to [0-9]+ ranks was found that would do"),
                             HasSubstr("Recomputation \"auto\", offloading \"auto\", a smaller mini-batch, or more ")));
  options.memory = limited(1000);
  EXPECT_THAT(refusal_of_memory(net, machine, 4, options),
              testing::AllOf(HasSubstr("No choice of these meets the limit"), HasSubstr("A smaller mini-batch")));
  machine.most_nodes = 1;
  EXPECT_THAT(refusal_of_memory(net, machine, 4, options), testing::Not(HasSubstr("would do")));
}

TEST(ChooseStrategy, SaysWhichRanksRepeatBlocksForWantOfAGrid) {
  const auto net = nn::make_model("lenet5");
  const auto reason = [&](int ranks) {
    return choose_strategy(net, machine_of(4), ranks, {.samples = 256, .simulated = 1}).repeats_reason;
  };
  EXPECT_EQ(reason(1009),
            "12 of 12 layers, 100 % of the time of layers: all 1009 ranks compute the same blocks, because no grid has "
            "a block for each of 1009 ranks; one dimension would need a multiple of 1009 blocks; 1008 is the next "
            "smaller number without a prime factor above 7");
  EXPECT_EQ(reason(16), "");
}

TEST(ChooseStrategy, TakesLargerMiniBatchesForThroughput) {
  const auto net = nn::make_model("lenet5");
  const ChooseOptions latency{.samples = 2, .objective = Objective::inference_latency, .simulated = 1};
  ChooseOptions throughput = latency;
  throughput.objective = Objective::throughput;
  const StrategyChoice one = choose_strategy(net, machine_of(2), 2, latency);
  const StrategyChoice many = choose_strategy(net, machine_of(2), 2, throughput);
  EXPECT_EQ(one.samples, 2);
  EXPECT_GT(many.samples, 2);
  EXPECT_GT(static_cast<double>(many.samples) / many.seconds, static_cast<double>(one.samples) / one.seconds);
}

TEST(ChooseStrategy, RefusesArgumentsWithoutMeaning) {
  const auto net = nn::make_model("lenet5");
  EXPECT_THROW(choose_strategy(net, machine_of(2), 2, {.samples = 0}), InvalidArgument);
  EXPECT_THROW(choose_strategy(net, machine_of(2), 0, {.samples = 4}), InvalidArgument);
  Machine small = machine_of(2);
  small.most_nodes = 1;
  EXPECT_THROW(choose_strategy(net, small, 3, {.samples = 4}), InvalidArgument);
}

TEST(ChooseStrategy, ServesAllKindsOfLayers) {
  const unsigned seed = std::random_device()();
  for (int i = 0; i < aloni::test::random_cases(20); ++i) {
    SCOPED_TRACE("seed " + std::to_string(seed) + " + " + std::to_string(i));
    nn::test::Dice dice(seed + static_cast<unsigned>(i));
    const auto net = nn::test::random_network(dice, nn::test::Kinds::all);
    const int ranks = static_cast<int>(dice(1, 12));
    const Index samples = dice(1, 9);
    const StrategyChoice choice =
        choose_strategy(net, machine_of(static_cast<int>(dice(1, 4))), ranks, {.samples = samples, .simulated = 1});
    EXPECT_GT(choice.seconds, 0);
    EXPECT_EQ(resolve(choice.strategy, net, ranks), choice.splits);
    ASSERT_TRUE(choice.uniform);
    EXPECT_LE(choice.seconds, choice.uniform->seconds);
  }
}

/// Of 12 pixels 6 are left. The layer is priced on three of its blocks, which have no more pixels than the padding.
TEST(ChooseStrategy, ServesTransposedConvolutionsWithMuchPadding) {
  nn::NetworkDescription net;
  net.spatial_rank = 1;
  net.input = views::make_extents(1, {12}, 2);
  net.loss = nn::Loss::mean_squared_error;
  net.layers = {{"up", nn::TransposedConvolution{4, nn::square_window(1, 1, 1, 3)}, {"input"}}};
  const StrategyChoice choice = choose_strategy(net, machine_of(2), 6, {.samples = 1, .simulated = 1});
  EXPECT_GT(choice.seconds, 0);
}

TEST(ChooseStrategy, NeedsNoRunOfThousandsOfRanks) {
  if (aloni::test::sanitized) GTEST_SKIP() << "tens of seconds";
  const StrategyChoice choice =
      choose_strategy(nn::make_model("resnet50"), machine_of(4), 4096, {.samples = 256, .simulated = 0});
  EXPECT_TRUE(choice.exact);
  EXPECT_FALSE(choice.simulated);
  for (const Candidates& list : choice.candidates) EXPECT_LE(list.splits.size(), 64U);
}

}  // namespace test_choose_strategy
}  // namespace aloni::model

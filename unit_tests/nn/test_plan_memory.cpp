#include <aloni/core/error.hpp>
#include <aloni/nn/models.hpp>
#include <aloni/nn/plan/memory.hpp>
#include <aloni/nn/plan/plan_step.hpp>
#include <aloni/nn/strategy.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace aloni::nn {
namespace test_plan_memory {

using views::Box;

Box flat(Index elements) { return {{0, 0, 0, 0, 0}, {1, 1, 1, 1, elements}}; }

PlanBuffer buffer(const std::string& name, Index elements, int first, int last) {
  return {.name = name, .type = ElementType::float32, .box = flat(elements), .first = first, .last = last};
}

/// Each buffer is written at its first node and read at its last.
StepPlan plan_of(std::vector<PlanBuffer> buffers, std::size_t nodes) {
  StepPlan plan;
  plan.buffers = std::move(buffers);
  plan.nodes.resize(nodes);
  for (PlanNode& node : plan.nodes) node.work = WeightsWork{};
  for (std::size_t b = 0; b < plan.buffers.size(); ++b) {
    const PlanBuffer& buffer = plan.buffers[b];
    if (buffer.first < 0) continue;
    const PlanRegion all{static_cast<BufferId>(b), buffer.box};
    plan.nodes[static_cast<std::size_t>(buffer.first)].writes.push_back(all);
    plan.nodes[static_cast<std::size_t>(buffer.last)].reads.push_back(all);
  }
  return plan;
}

TEST(PlanMemory, SharesMemoryBetweenBuffersWhoseLifetimesDoNotMeet) {
  const PlanMemoryUse use =
      memory_of(plan_of({buffer("a", 16, 0, 1), buffer("b", 48, 1, 2), buffer("c", 32, 2, 3)}, 4));
  EXPECT_EQ(use.separate, 96 * 4);
  EXPECT_EQ(use.peak, 80 * 4);  // c takes the place of a, and more
  EXPECT_EQ(use.peak_node, 2);
}

TEST(PlanMemory, RoundsSharedPlacesUpToTheAlignment) {
  EXPECT_EQ(memory_of(plan_of({buffer("a", 10, 0, 1), buffer("b", 17, 1, 2)}, 3)).peak, 64 + 128);
}

TEST(PlanMemory, NamesTheFirstNodeOfThePeak) {
  const PlanMemoryUse use = memory_of(plan_of({buffer("a", 16, 1, 1), buffer("b", 16, 3, 3)}, 4));
  EXPECT_EQ(use.peak, 64);
  EXPECT_EQ(use.peak_node, 1);
}

TEST(PlanMemory, KeepsPersistentBuffersForTheWholeStep) {
  StepPlan plan = plan_of({buffer("a", 16, 0, 0), buffer("b", 32, 2, 2)}, 3);
  EXPECT_EQ(memory_of(plan).peak, 128);
  plan.buffers[0].persistent = true;
  EXPECT_EQ(memory_of(plan).peak, 192);
  EXPECT_EQ(memory_of(plan).peak_node, 2);
}

TEST(PlanMemory, GivesUnusedBuffersThePlaceOfOthers) {
  const PlanMemoryUse use = memory_of(plan_of({buffer("a", 32, 0, 0), buffer("never", 16, -1, -1)}, 1));
  EXPECT_EQ(use.separate, 192);
  EXPECT_EQ(use.peak, 128);
}

TEST(PlanMemory, CountsAliasesOnceAndForTheLifetimeOfAll) {
  StepPlan plan = plan_of({buffer("root", 16, 0, 2), buffer("alias", 16, 2, 2), buffer("other", 16, 1, 1)}, 3);
  plan.buffers[1].alias = 0;
  const PlanMemoryUse use = memory_of(plan);
  EXPECT_EQ(use.separate, 128);
  EXPECT_EQ(use.peak, 128);
  EXPECT_EQ(use.peak_node, 1);
}

TEST(PlanMemory, AddsUpRolesInBytesOfTheirTypes) {
  StepPlan plan = plan_of({buffer("a", 10, 0, 0), buffer("b", 10, 0, 0), buffer("c", 10, 0, 0)}, 1);
  plan.buffers[1].type = ElementType::float64;
  plan.buffers[1].role = BufferRole::optimiser;
  plan.buffers[2].type = ElementType::bfloat16;
  const PlanMemoryUse use = memory_of(plan);
  EXPECT_EQ(use.of(BufferRole::activation), 60);
  EXPECT_EQ(use.of(BufferRole::optimiser), 80);
  EXPECT_EQ(use.separate, 140);
}

TEST(PlanMemory, CountsPackedMessagesToRanksWithoutSharedMemory) {
  StepPlan plan = plan_of({buffer("x", 100, 0, 1)}, 2);
  plan.rank = 1;
  plan.ranks = 4;
  TransferWork work;
  TransferItemPlan item;
  item.source = item.destination = 0;
  item.plan.sends = {halo::Message{0, {}, 5}, halo::Message{2, {}, 6}};
  item.plan.receives = {halo::Message{3, {}, 10}};
  work.items = {item};
  plan.nodes[1].work = work;
  EXPECT_EQ(memory_of(plan).of(BufferRole::messages), 0);
  const PlanMemoryUse use = memory_of(plan, machine_of_nodes(4, 2));
  EXPECT_EQ(use.of(BufferRole::messages), 16 * 4);
  EXPECT_EQ(use.separate, 116 * 4);
  EXPECT_EQ(use.peak, 448 + 16 * 4);  // the place of x is rounded up
  EXPECT_EQ(use.peak_node, 0);
}

TEST(PlanMemory, OfAPlanWithoutNodesHasNoPeakNode) {
  StepPlan plan = plan_of({buffer("a", 16, -1, -1), buffer("b", 20, -1, -1)}, 0);
  plan.buffers[1].persistent = true;
  EXPECT_EQ(memory_of(plan).peak, 64 + 80);
  EXPECT_EQ(memory_of(plan).peak_node, -1);
}

NetworkDescription digits() { return lenet5(views::make_extents(1, {28, 28}, 1), 10); }

StepPlan step_of(const std::string& split, int ranks, int rank, Index samples, StepKind kind = StepKind::training,
                 const MachineDescription& machine = {}, const StepOptions& options = {}) {
  const NetworkDescription net = digits();
  const auto splits = resolve(Strategy::uniform(LayerSplit::parse(split)), net, ranks);
  return plan_step(net, plan_network(net, splits, ranks, samples), rank, kind, machine, options);
}

TEST(PlanMemory, OfLenet5HasTheSizesOfItsTensors) {
  const Index n = 16;
  const PlanMemoryUse use = memory_of(step_of("1", 1, 0, n));
  EXPECT_EQ(use.of(BufferRole::parameters), 61706 * 4);
  EXPECT_EQ(use.of(BufferRole::parameter_gradients), 61706 * 4);
  EXPECT_EQ(use.of(BufferRole::optimiser), 61706 * 4);
  EXPECT_EQ(use.of(BufferRole::input), n * 28 * 28 * 4 + n * 4);  // and labels
  // ReLUs work in place: conv1, pool1, conv2, pool2, flatten, three dense layers.
  const Index activations = 28 * 28 * 6 + 14 * 14 * 6 + 10 * 10 * 16 + 2 * 400 + 120 + 84 + 10;
  EXPECT_EQ(use.of(BufferRole::activation), n * activations * 4);
  EXPECT_EQ(use.of(BufferRole::gradient), n * activations * 4);
  EXPECT_EQ(use.of(BufferRole::ghosts), 0);
  EXPECT_EQ(use.of(BufferRole::messages), 0);
  EXPECT_LT(use.peak, use.separate);
  // All activations live until the backward pass, but for those in front of a max pooling.
  const Index pooled = 28 * 28 * 6 + 10 * 10 * 16;
  EXPECT_GE(use.peak, 3 * 61706 * 4 + n * (activations - pooled) * 4);
  const StepOptions unfused{.fuse_pooling = false};
  const Index peak = memory_of(step_of("1", 1, 0, n, StepKind::training, {}, unfused)).peak;
  EXPECT_GE(peak, 3 * 61706 * 4 + n * activations * 4);
  EXPECT_LT(use.peak, peak);
}

TEST(PlanMemory, CountsTheStateOfTheOptimiser) {
  const auto use = [](const StepOptions& options) {
    return memory_of(step_of("1", 1, 0, 16, StepKind::training, {}, options));
  };
  const PlanMemoryUse none = use({.update = false}), sgd = use({}), adam = use({.optimiser = OptimiserKind::adam});
  EXPECT_EQ(none.of(BufferRole::optimiser), 0);
  EXPECT_EQ(adam.of(BufferRole::optimiser), 2 * 61706 * 4);
  EXPECT_EQ(sgd.peak - none.peak, 61706 * 4);
  EXPECT_EQ(adam.peak - none.peak, 2 * 61706 * 4);
  const StepPlan plan = step_of("f4", 4, 1, 16, StepKind::training, {}, {.optimiser = OptimiserKind::adam});
  const PlanMemoryUse split = memory_of(plan);  // a rank keeps the state of its own weights only
  EXPECT_EQ(split.of(BufferRole::optimiser), 2 * split.of(BufferRole::parameters));
  EXPECT_LT(split.of(BufferRole::optimiser), adam.of(BufferRole::optimiser));
  EXPECT_EQ(plan.buffers[static_cast<std::size_t>(plan.find("conv1.weight.second_moment"))].box,
            plan.buffers[static_cast<std::size_t>(plan.find("conv1.weight"))].box);
}

TEST(PlanMemory, OfInferenceIsMuchSmallerThanOfTraining) {
  const PlanMemoryUse training = memory_of(step_of("1", 1, 0, 256)),
                      inference = memory_of(step_of("1", 1, 0, 256, StepKind::inference));
  EXPECT_EQ(inference.of(BufferRole::gradient), 0);
  EXPECT_LT(inference.separate, training.separate / 2);
  EXPECT_LT(inference.peak, inference.separate);
}

/// Of a training in which each convolution keeps its filters in the order of its kernels, as inference does.
TEST(PlanMemory, OfInferenceIsAtMostThreeTenthsOfThatOfTrainingInLargeNetworks) {
  for (const auto& [name, samples] : {std::pair<const char*, Index>{"mesh1k", 1}, {"resnet50", 8}}) {
    const NetworkDescription net = make_model(name);
    const NetworkPlan layers =
        plan_network(net, resolve(Strategy::uniform(LayerSplit::parse("1")), net, 1), 1, samples);
    const auto peak = [&](StepKind kind, std::optional<bool> keeps_filters = {}) {
      return static_cast<double>(memory_of(plan_step(net, layers, 0, kind, {}, {.keeps_filters = keeps_filters})).peak);
    };
    EXPECT_LE(peak(StepKind::inference), 0.3 * peak(StepKind::training, true)) << name;
    EXPECT_LE(peak(StepKind::inference), 0.33 * peak(StepKind::training)) << name;
    EXPECT_LT(peak(StepKind::inference, false), peak(StepKind::inference)) << name;
  }
}

TEST(PlanMemory, HasOrdersOfFiltersAndScratchForOnednnOnly) {
  using local::ConvolutionBackend;
  const auto more = [](StepKind kind, std::optional<bool> keeps_filters = {}) {
    const auto workspace = [&](ConvolutionBackend backend) {
      const StepOptions options{.backend = backend, .keeps_filters = keeps_filters};
      return memory_of(step_of("1", 1, 0, 16, kind, {}, options)).of(BufferRole::workspace);
    };
    return workspace(ConvolutionBackend::onednn) - workspace(ConvolutionBackend::direct);
  };
  const Index conv1 = 6 * 25 * 4, conv2 = 16 * 25 * 6 * 4, versions = 2 * 4;  // an element for each convolution
  EXPECT_EQ(more(StepKind::inference), conv1 + conv2 - versions);
  // All orders, and the gradients of filters, take turns in memory for those of conv2, the larger ones.
  EXPECT_EQ(more(StepKind::training), conv2);
  // Backward-data of conv2 has an order of its own. The gradient of its filters is scratch.
  EXPECT_EQ(more(StepKind::training, true), conv1 + 3 * conv2 - versions);
}

TEST(PlanMemory, LetsChunksOfPartialSumsTakeTurnsInTwoBuffers) {
  MachineDescription machine;
  machine.chunk_bytes = 1024;
  const StepPlan plan = step_of("c2", 2, 0, 64, StepKind::training, machine);
  std::vector<BufferId> roots;  // of the chunks of conv2
  for (const PlanNode& node : plan.nodes)
    if (const auto* work = std::get_if<ConvolutionWork>(&node.work); work && work->partial_sums && !work->backward)
      roots.push_back(plan.root(work->target));
  ASSERT_GT(roots.size(), 2u);
  EXPECT_NE(roots[0], roots[1]);  // one is sent while the other is computed
  EXPECT_EQ(roots[0], roots[2]);
}

TEST(PlanMemory, DoesNotExceedSeparateMemoryForAnySplit) {
  for (const std::string split : {"n4", "h4", "h2w2", "c4", "f4", "c2f2", "n2h2"}) {
    for (int r = 0; r < 4; ++r) {
      SCOPED_TRACE(split + ", rank " + std::to_string(r));
      const MachineDescription machine = machine_of_nodes(4, 1);
      const StepPlan plan = step_of(split, 4, r, 8, StepKind::training, machine);
      const PlanMemoryUse use = memory_of(plan, machine);
      EXPECT_GT(use.peak, 0);
      EXPECT_LE(use.peak, use.separate);
      EXPECT_GE(use.peak_node, 0);
      EXPECT_EQ(std::accumulate(use.by_role.begin(), use.by_role.end(), Index{0}), use.separate);
    }
  }
}

TEST(PlanMemory, GivesEachBufferToTheLayerWithItsName) {
  StepPlan plan = plan_of({buffer("conv1_y", 1, 0, 0), buffer("conv1_a_y", 2, 0, 0), buffer("conv1.weight", 4, 0, 0),
                           buffer("input", 8, 0, 0), buffer("conv1_dx_folded", 16, 0, 0)},
                          1);
  EXPECT_EQ(memory_by_layer(plan, {"conv1", "conv1_a"}), (std::vector<Index>{21 * 4, 2 * 4, 8 * 4}));
}

TEST(PlanMemory, OfAllLayersIsTheSum) {
  std::vector<std::string> names;
  for (const auto& layer : digits().layers) names.push_back(layer.name);
  const MachineDescription machine = machine_of_nodes(4, 2);
  const StepPlan plan =
      step_of("h4", 4, 1, 8, StepKind::training, machine, {.backend = local::ConvolutionBackend::onednn});
  const auto bytes = memory_by_layer(plan, names, machine);
  const PlanMemoryUse use = memory_of(plan, machine);
  EXPECT_GT(use.of(BufferRole::messages), 0);
  EXPECT_EQ(std::accumulate(bytes.begin(), bytes.end(), Index{0}), use.separate);
  const Index filters = plan.buffers[static_cast<std::size_t>(plan.find("convolution_filters"))].bytes();
  EXPECT_EQ(bytes.back(), use.of(BufferRole::input) + filters + 16);  // and the two sums of the loss
}

/// Kernels of two streams may run at the same time, so their scratch memory is not shared.
TEST(PlanMemory, HasAScratchMemoryForEachStreamOfKernels) {
  const MachineDescription machine = machine_of_nodes(4, 2);
  StepOptions options{.backend = local::ConvolutionBackend::onednn, .largest_overhead = 1000.0};
  const auto plan_on = [&](int streams) {
    options.streams = streams;
    return step_of("w4", 4, 1, 8, StepKind::training, machine, options);
  };
  const auto bytes_of_buffer = [](const StepPlan& plan, const std::string& name) {
    const auto found = std::ranges::find(plan.buffers, name, &PlanBuffer::name);
    return found == plan.buffers.end() ? Index{0} : found->bytes();
  };
  const StepPlan two = plan_on(2), three = plan_on(3);
  EXPECT_EQ(three.streams, 3);
  EXPECT_GT(bytes_of_buffer(three, "convolution_scratch_of_borders"), 0);
  EXPECT_EQ(bytes_of_buffer(two, "convolution_scratch_of_borders"), 0);
  EXPECT_GT(bytes_of_buffer(three, "convolution_filters_of_borders"), 0);
  EXPECT_EQ(bytes_of_buffer(two, "convolution_filters_of_borders"), 0);
  EXPECT_GT(bytes_of_buffer(two, "convolution_filters"), 0);
  // Each stream has its own order of the filters of a layer with a border.
  options.keeps_filters = true;
  const StepPlan keeping_two = plan_on(2), keeping_three = plan_on(3);
  EXPECT_EQ(bytes_of_buffer(keeping_three, "convolution_filters"), 0);
  EXPECT_GT(bytes_of_buffer(keeping_three, "convolution_scratch"), 0);
  Index filters_of_two = 0, filters_of_three = 0;
  for (const PlanBuffer& b : keeping_two.buffers)
    if (b.name.ends_with("_filters")) filters_of_two += b.bytes();
  for (const PlanBuffer& b : keeping_three.buffers)
    if (b.name.ends_with("_filters")) filters_of_three += b.bytes();
  EXPECT_GT(filters_of_three, filters_of_two);
  EXPECT_THROW((void)plan_on(0), InvalidArgument);
}

}  // namespace test_plan_memory
}  // namespace aloni::nn

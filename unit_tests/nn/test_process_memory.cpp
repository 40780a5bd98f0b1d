// By how much a resident set grows: pages, packed values, scratch memory and kernels, as arithmetic.
#include <aloni/nn/models.hpp>
#include <aloni/nn/plan/memory.hpp>
#include <aloni/nn/plan/plan_step.hpp>
#include <aloni/nn/plan/process_memory.hpp>
#include <aloni/nn/strategy.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace aloni::nn {
namespace test_process_memory {

using views::Box;

Box box(Index height, Index width, Index channels) { return {{0, 0, 0, 0, 0}, {1, 1, height, width, channels}}; }

TEST(ProcessMemory, TouchesThePagesOfContiguousRowsAndOneMore) {
  EXPECT_EQ(touched_bytes(box(2, 64, 32), box(100, 64, 32), 4, 4096), 2 * 64 * 32 * 4 + 4096);
  EXPECT_EQ(touched_bytes(Box{}, box(100, 64, 32), 4, 4096), 0);
}

TEST(ProcessMemory, TouchesAPageForEachPieceAcrossLargeGaps) {
  // A column: each row has 64 · 32 · 4 = 8192 bytes.
  EXPECT_EQ(touched_bytes(box(100, 1, 32), box(100, 64, 32), 4, 4096), 100 * (32 * 4 + 4096));
}

TEST(ProcessMemory, TouchesGapsThatAreShorterThanAPage) {
  // Rows have 8 · 16 · 4 = 512 bytes.
  EXPECT_EQ(touched_bytes(box(100, 1, 16), box(100, 8, 16), 4, 4096), 99 * 512 + 64 + 4096);
}

TEST(ProcessMemory, TouchesNoMoreThanTheTensorAndAPage) {
  for (Index width = 1; width <= 200; ++width)
    EXPECT_LE(touched_bytes(box(50, width, 16), box(50, 200, 16), 4, 4096), 50 * 200 * 16 * 4 + 4096) << width;
  EXPECT_EQ(touched_bytes(box(50, 200, 16), box(50, 200, 16), 4, 4096), 50 * 200 * 16 * 4 + 4096);
}

struct Plans {
  StepPlan training, inference;
  MemoryLayout layout;

  Plans(const NetworkDescription& net, const std::string& split, int ranks, Index samples,
        const MachineDescription& machine = {}) {
    const Strategy strategy = Strategy::uniform(LayerSplit::parse(split));
    const NetworkPlan layers = plan_network(net, resolve(strategy, net, ranks), ranks, samples);
    training = plan_step(net, layers, 0, StepKind::training, machine, {.update = false});
    inference = plan_step(net, layers, 0, StepKind::inference, machine, {.update = false});
    layout = lay_out_memory({&training, &inference}, machine);
  }
  ProcessMemory memory(const MachineDescription& machine = {}) const {
    return process_memory({&training, &inference}, layout, machine);
  }
};

NetworkDescription mesh() { return make_model("mesh1k", {.input = views::make_extents(1, {128, 128}, 18)}); }

TEST(ProcessMemory, OfOneRankHasNoPagesOfOthers) {
  const Plans plans(mesh(), "1", 1, 1);
  const ProcessMemory memory = plans.memory();
  EXPECT_EQ(memory.other_ranks, 0);
  EXPECT_EQ(memory.messages, 0);
  EXPECT_EQ(memory.network, bytes_of({&plans.training, &plans.inference}, plans.layout));
  EXPECT_EQ(memory.total(), memory.network + memory.kernels + memory.libraries);
  // 19 convolutions with three passes, the first without the gradient of its input; inference also computes ReLU.
  EXPECT_GE(memory.kernels, 56 * MachineDescription{}.kernel_bytes);
}

TEST(ProcessMemory, OfTwoRanksIncludesTheGradientsThatARankSumsForTheOther) {
  const ProcessMemory memory = Plans(mesh(), "h2", 2, 1).memory();
  const Index half_of_the_gradients = 7'843'521 / 2 * 4;
  EXPECT_GT(memory.other_ranks, half_of_the_gradients);
  EXPECT_LT(memory.other_ranks, 2 * half_of_the_gradients);
  MachineDescription apart = machine_of_nodes(2, 1);
  EXPECT_EQ(Plans(mesh(), "h2", 2, 1, apart).memory(apart).other_ranks, 0);
}

TEST(ProcessMemory, CountsMessagesTooShortToBeReadInPlace) {
  MachineDescription sends_all;
  sends_all.direct_bytes = Index{1} << 40;
  const Plans plans(mesh(), "h2", 2, 1, sends_all);
  EXPECT_GT(plans.memory(sends_all).messages, plans.memory().messages);
}

TEST(ProcessMemory, HasOneMemoryForFiltersAndTheirGradientsInTheOrderOfKernels) {
  const Plans plans(mesh(), "1", 1, 1);
  const PlanBuffer& filters =
      plans.training.buffers[static_cast<std::size_t>(plans.training.find("convolution_filters"))];
  EXPECT_TRUE(filters.by_kernels);
  EXPECT_EQ(filters.bytes(), 384 * 384 * 9 * 4);  // of the fifth block
  // No view has gaps.
  EXPECT_TRUE(std::ranges::none_of(plans.training.buffers,
                                   [](const PlanBuffer& buffer) { return buffer.name == "convolution_scratch"; }));
}

TEST(ProcessMemory, PartialSumsOfBatchNormalisationTakeNoMemoryOfTheirOwn) {
  const Plans plans(mesh(), "1", 1, 1);
  Index sums = 0;
  for (const PlanBuffer& buffer : plans.training.buffers)
    if (buffer.name.ends_with("partial_sums")) sums += buffer.bytes();
  EXPECT_GT(sums, 250'000);
  StepPlan without = plans.training;
  for (PlanBuffer& buffer : without.buffers)
    if (buffer.name.ends_with("partial_sums")) buffer.box = buffer.owned = Box{};
  EXPECT_LE(lay_out_memory({&plans.training}, {}).bytes() - lay_out_memory({&without}, {}).bytes(), sums / 8);
}

TEST(ProcessMemory, ScratchOfAStrideThatLeavesTheLastRowOutHasACopyOfTheInput) {
  local::ConvolutionProblem p{
      .samples = 2, .channels = 8, .filters = 16, .input = {1, 6, 6}, .output = {1, 3, 3}, .stride = {1, 2, 2}};
  const local::ConvolutionPasses forward{.forward = true, .dense_input = true, .dense_output = true};
  EXPECT_EQ(local::scratch_bytes(p, forward, 4, 4), 2 * 5 * 5 * 8 * 4);
  p.input = {1, 5, 5};
  EXPECT_EQ(local::scratch_bytes(p, forward, 4, 4), 0);
  EXPECT_EQ(local::scratch_bytes(p, {.backward_filter = true, .dense_input = true}, 4, 4),
            2 * 3 * 3 * 16 * 4 + 8 * 16 * 4);
}

}  // namespace test_process_memory
}  // namespace aloni::nn

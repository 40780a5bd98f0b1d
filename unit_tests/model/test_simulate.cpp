#include "round_times.hpp"

#include <aloni/core/error.hpp>
#include <aloni/model/communication.hpp>
#include <aloni/model/kernel_times.hpp>
#include <aloni/model/shipped_machines.hpp>
#include <aloni/model/simulate.hpp>
#include <aloni/nn/models.hpp>
#include <aloni/nn/plan/largest_memory.hpp>
#include <aloni/nn/plan/offloading.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <string>
#include <utility>
#include <variant>

namespace aloni::model {
namespace test_simulate {

nn::NetworkDescription digits() { return nn::make_model("lenet5"); }
nn::NetworkDescription resnet() { return nn::make_model("resnet18", {.input = views::make_extents(1, {32, 32}, 3)}); }

double sum_of(const std::vector<RankTime>& times) {
  return std::accumulate(times.begin(), times.end(), 0.0, [](double sum, const RankTime& t) { return sum + t.sum(); });
}

int kernels_in(const nn::NetworkDescription& net, const nn::NetworkPlan& layers, const Machine& machine) {
  const nn::StepPlan plan =
      nn::plan_step(net, layers, 0, nn::StepKind::training, description_of(machine, layers.input.ranks()));
  return static_cast<int>(
      std::ranges::count_if(plan.nodes, [](const auto& node) { return node.kind() == nn::NodeKind::kernel; }));
}

TEST(Simulate, OneRankTakesTheSumOfItsKernels) {
  const Machine machine = free_machine();
  const auto net = resnet();
  const auto layers = layers_of(net, "1", 1, 4);
  const SimulatedStep step = simulate(net, layers, machine, RoundTimes(0.25));
  EXPECT_DOUBLE_EQ(step.seconds, 0.25 * kernels_in(net, layers, machine));
  EXPECT_DOUBLE_EQ(step.exposed_communication, 0);
  EXPECT_DOUBLE_EQ(sum_of(step.layers), step.seconds);
  EXPECT_DOUBLE_EQ(step.phases[0].sum() + step.phases[1].sum() + step.phases[2].sum() + step.phases[3].sum(),
                   step.seconds);
  EXPECT_DOUBLE_EQ(step.sources[0], 1);
  EXPECT_DOUBLE_EQ(simulate(net, layers, machine, RoundTimes(0.25), {.kernel_scale = 3}).seconds, 3 * step.seconds);
}

/// Convolutions are learned, copies have the roofline, and all others are measured.
class TimesOfThreeSources final : public KernelTimes {
 public:
  Estimate of(const KernelProblem& problem) const override {
    const KernelKind kind = problem.calls.empty() ? KernelKind::copy : problem.calls.front().kind;
    if (kind == KernelKind::copy) return {1e-3, KernelSource::roofline, 0.4};
    const bool is_forward = kind == KernelKind::convolution_forward;
    return {2e-3, is_forward ? KernelSource::learned : KernelSource::measured, is_forward ? 0.2 : 0.01};
  }
};

TEST(Simulate, EachLayerHasTheSourcesOfItsKernels) {
  const Machine machine = free_machine();
  const auto net = digits();
  const auto layers = layers_of(net, "h2", 2, 4);
  for (const int micro_batches : {1, 3}) {
    SimulationOptions options;
    options.micro_batches = micro_batches;
    const SimulatedStep step = simulate(net, layers, machine, TimesOfThreeSources(), options);
    ASSERT_EQ(step.kernels.size(), step.layers.size());
    KernelSeconds all;
    for (std::size_t l = 0; l < step.layers.size(); ++l) {
      EXPECT_NEAR(step.kernels[l].sum(), step.layers[l].kernels, 1e-12) << l;
      all += step.kernels[l];
    }
    for (std::size_t s = 0; s < kernel_sources; ++s)
      EXPECT_NEAR(step.sources[s], all.by_source[s] / all.sum(), 1e-12) << name(static_cast<KernelSource>(s));
    const KernelSeconds& first = step.kernels[0];  // conv1: its forward kernels and that of the gradient of its filters
    const double learned = first.by_source[1], measured = first.by_source[0];
    EXPECT_GT(learned, 0);
    EXPECT_GT(measured, 0);
    EXPECT_NEAR(first.relative_error().value(), (0.2 * learned + 0.01 * measured) / (learned + measured), 1e-12);
    EXPECT_DOUBLE_EQ(step.kernels[2].relative_error().value(), 0.01) << "pool1 has no convolution";
  }
}

// --- micro-batches ---

SimulationOptions in_micro_batches(int number) { return {.micro_batches = number}; }

TEST(Simulate, MicroBatchesAreComputedInTurnAndUpdatedOnce) {
  const Machine machine = free_machine();
  const auto net = resnet();
  const auto layers = layers_of(net, "1", 1, 4);
  const nn::StepPlan plan =
      nn::plan_step(net, layers, 0, nn::StepKind::training, description_of(machine, 1), {.accumulates = true});
  const auto updates = std::ranges::count(plan.nodes, nn::StepPhase::update, &nn::PlanNode::phase);
  const auto additions = std::ranges::count_if(plan.nodes, &nn::PlanNode::accumulates);
  const auto all = kernels_in(net, layers, machine) + additions;
  ASSERT_GT(updates, 0);
  ASSERT_GT(additions, 0);
  SimulationOptions options = in_micro_batches(3);
  options.timeline = true;
  const SimulatedStep step = simulate(net, layers, machine, RoundTimes(0.25), options);
  EXPECT_DOUBLE_EQ(step.seconds, 0.25 * static_cast<double>(3 * (all - updates) + updates));
  EXPECT_DOUBLE_EQ(sum_of(step.layers), step.seconds);
  EXPECT_DOUBLE_EQ(step.phases[3].sum(), 0.25 * static_cast<double>(updates));
  EXPECT_DOUBLE_EQ(step.sources[0], 1);
  EXPECT_EQ(std::ranges::count(step.actions, nn::StepActionKind::run, &SimulatedAction::kind),
            3 * (all - updates) + updates);
  EXPECT_DOUBLE_EQ(step.actions.back().end, step.seconds);
}

TEST(Simulate, MicroBatchesSumTheirGradientsOverRanksOnce) {
  Machine machine = free_machine();
  const auto net = digits();
  const auto layers = layers_of(net, "n2", 2, 4);
  const auto seconds = [&] { return simulate(net, layers, machine, RoundTimes(1e-3), in_micro_batches(5)).seconds; };
  const double free = seconds();
  machine.combine_seconds_per_byte = 1e-7;
  const double paid = seconds();
  EXPECT_NEAR(paid - free, 61'706 * 4 * 1e-7, 0.01 * (paid - free));
}

TEST(Simulate, MicroBatchesExchangeTheirHalos) {
  Machine machine = free_machine();
  machine.exchange_seconds = 1e-3;
  const auto net = digits();
  const auto layers = layers_of(net, "h2", 2, 4);
  const auto halos = [&](int micro_batches) {
    const SimulatedStep step = simulate(net, layers, machine, RoundTimes(1e-3), in_micro_batches(micro_batches));
    double seconds = 0;
    for (const CommunicationTime& time : step.communication) seconds += time.halos;
    return seconds;
  };
  EXPECT_GT(halos(1), 0);
  EXPECT_DOUBLE_EQ(halos(4), 4 * halos(1));
}

// The sums of the last micro-batch are as exposed as those of a single one.
TEST(Simulate, MicroBatchesHideTheSumsOfGradientsBesideTheLastBackwardPass) {
  Machine machine = free_machine();
  machine.planning.nodes = {0, 1};
  machine.planning.bucket_bytes = 1;
  machine.links[static_cast<std::size_t>(LinkKind::between_nodes)].seconds_per_byte = 1e-9;
  const auto net = resnet();
  const auto layers = layers_of(net, "n2", 2, 4);
  const auto exposed = [&](const SimulationOptions& options) {
    return simulate(net, layers, machine, RoundTimes(1e-3), options).exposed_communication;
  };
  SimulationOptions behind = in_micro_batches(4);
  behind.step.sums = nn::GradientSums::after_backward;
  EXPECT_GT(exposed(in_micro_batches(4)), 0);
  EXPECT_LE(exposed(in_micro_batches(4)), exposed(in_micro_batches(1)));
  EXPECT_LT(exposed(in_micro_batches(4)), 0.5 * exposed(behind));
}

TEST(Simulate, OfMicroBatchesNeedsATrainingStep) {
  const Machine machine = free_machine();
  const auto net = digits();
  const auto layers = layers_of(net, "1", 1, 4);
  SimulationOptions inference = in_micro_batches(2);
  inference.kind = nn::StepKind::inference;
  for (const SimulationOptions& wrong : {in_micro_batches(0), inference})
    EXPECT_THROW(simulate(net, layers, machine, RoundTimes(1), wrong), InvalidArgument);
}

// --- ranks ---

// A rank with 2 of 3 samples works longer, and the other one waits for it at the sums of gradients.
TEST(Simulate, RanksWaitForTheSlowestOne) {
  const Machine machine = free_machine();
  const auto net = digits();
  const auto split = layers_of(net, "n2", 2, 3), whole = layers_of(net, "1", 1, 2);
  const RoundTimes times(0, 1e-9);
  const SimulatedStep two = simulate(net, split, machine, times, {.timeline = true});
  const SimulatedStep one = simulate(net, whole, machine, times);
  EXPECT_NEAR(two.seconds, one.seconds, 1e-3 * one.seconds);  // both compute two samples
  double waited = 0;
  for (const SimulatedAction& a : two.actions)
    if (a.rank == 1 && a.kind == nn::StepActionKind::finish) waited += a.end - a.start;
  EXPECT_NEAR(waited, 0.5 * one.seconds, 0.1 * one.seconds);
}

TEST(Simulate, SumsOverRanksAddTheirTimeOnAHost) {
  Machine machine = free_machine();
  const auto net = digits();
  const auto layers = layers_of(net, "n2", 2, 4);
  const double free = simulate(net, layers, machine, RoundTimes(1e-3)).seconds;
  machine.combine_seconds_per_byte = 1e-7;
  const double paid = simulate(net, layers, machine, RoundTimes(1e-3)).seconds;
  // 61,706 gradients of 4 bytes and the sums of the loss.
  EXPECT_NEAR(paid - free, 61'706 * 4 * 1e-7, 0.01 * (paid - free));
}

TEST(Simulate, SumsTakeTheFitOfAsManyRanks) {
  Machine machine = free_machine();
  const auto net = digits();
  const auto layers = layers_of(net, "n2", 2, 4);
  const auto run = [&] { return simulate(net, layers, machine, RoundTimes(1e-3)); };
  machine.combine_seconds_per_byte = 1e-7;
  const SimulatedStep links = run();
  EXPECT_EQ(links.sum_sources, (std::array<double, 3>{0, 0, 1}));
  for (const comm::CollectiveVariant& variant : comm::collective_variants)
    for (const bool shared : {false, true})
      machine.collectives.push_back({.operation = variant.operation,
                                     .method = variant.method,
                                     .shared_data = shared,
                                     .ranks = 4,
                                     .nodes = 1,
                                     .seconds_per_call = shared ? 0.5 : 0.25,
                                     .rates = {{1024, 1}}});
  EXPECT_EQ(run().seconds, links.seconds);  // of four ranks
  for (CollectiveFit& fit : machine.collectives) fit.ranks = 2;
  const SimulatedStep fitted = run();
  EXPECT_EQ(fitted.sum_sources, (std::array<double, 3>{1, 0, 0}));
  // One bucket, in shared memory. Each rank adds half of it.
  EXPECT_NEAR(fitted.seconds - links.seconds, 0.5 - 61'706 * 4 * 1e-7 / 2, 1e-3);
}

TEST(Simulate, ADeviceHidesSumsBehindTheBackwardPass) {
  Machine machine = free_machine();
  machine.planning.on_host = false;
  machine.planning.bucket_bytes = 4096;
  machine.links[static_cast<std::size_t>(LinkKind::within_node)].seconds_per_byte = 1e-9;
  const auto net = resnet();
  const auto layers = layers_of(net, "n2", 2, 4);
  const SimulatedStep slow = simulate(net, layers, machine, RoundTimes(1e-2));
  const double kernels = 1e-2 * kernels_in(net, layers, machine);
  // 45 MB at 1 GB/s take 45 ms; the last bucket alone is visible.
  EXPECT_GT(slow.seconds, kernels);
  EXPECT_LT(slow.seconds, kernels + 0.02);
}

// Free kernels start all sums at once. Together they may not exceed the bandwidth of the link.
TEST(Simulate, CopiesToHostMemoryRunBesideTheKernelsOfADevice) {
  Machine machine = free_machine();
  const auto net = resnet();
  const auto layers = layers_of(net, "1", 1, 4);
  SimulationOptions offloading;
  for (int i = 0; i < static_cast<int>(net.layers.size()); ++i) offloading.step.offload.push_back(i);
  const RoundTimes times(1e-3);
  const auto run = [&](const SimulationOptions& options) { return simulate(net, layers, machine, times, options); };
  const auto with_copies =
      nn::plan_step(net, layers, 0, nn::StepKind::training, description_of(machine, 1), offloading.step);
  double bytes = 0;  // that leave; as many return
  int copies = 0;
  for (const nn::PlanNode& node : with_copies.nodes) {
    const auto* copy = std::get_if<nn::OffloadWork>(&node.work);
    if (!copy) continue;
    ++copies;
    if (!copy->back) bytes += static_cast<double>(with_copies.buffers[static_cast<std::size_t>(copy->buffer)].bytes());
  }
  ASSERT_GT(copies, 40);

  // A host copies by kernels, one after the other.
  EXPECT_NEAR(run(offloading).seconds, run({}).seconds + 1e-3 * copies, 1e-9);

  machine.planning.on_host = false;
  try {
    run(offloading);
    FAIL() << "a device without a bandwidth to its host";
  } catch (const InvalidArgument& e) {
    EXPECT_NE(std::string(e.what()).find("host_bandwidth"), std::string::npos) << e.what();
  }
  const SimulatedStep kept = run({});
  machine.processor.host_bandwidth = bytes / 1e-6;
  const SimulatedStep fast = run(offloading);
  EXPECT_NEAR(fast.seconds, kept.seconds, 1e-4);
  EXPECT_DOUBLE_EQ(sum_of(fast.layers), fast.seconds);
  machine.processor.host_bandwidth = bytes / (10 * kept.seconds);
  const SimulatedStep slow = run(offloading);
  EXPECT_GT(slow.seconds, 20 * kept.seconds);  // both ways
  EXPECT_LT(slow.seconds, 21 * kept.seconds);
  EXPECT_NEAR(slow.exposed_communication, slow.seconds - kept.seconds, 1e-4);
}

/// Buffers that returned before their layers, with the copies of weights, would need memory and delay the others.
TEST(Simulate, KernelsHideTheCopiesOfAFastLink) {
  const Machine machine = find_machine("lassen");
  const auto net = nn::make_model("mesh1k", {.input = views::Extents{{1, 1, 256, 256, 18}}});
  const auto layers = nn::plan_network(net, nn::resolve(nn::Strategy::uniform({}), net, 1), 1, 4);
  SimulationOptions kept, offloading;
  offloading.step.offload = nn::offloaded_layers(net, "*");
  const MachineKernels kernels(machine, 1, 1);
  const double seconds = simulate(net, layers, machine, kernels, kept).seconds;
  EXPECT_LE(simulate(net, layers, machine, kernels, offloading).seconds, 1.001 * seconds);
  const auto peak = [&](const nn::StepOptions& step) {
    const MachineDescription description = description_of(machine, 1);
    return static_cast<double>(nn::largest_memory(net, layers, description, nn::StepKind::training, step).peak);
  };
  EXPECT_LT(peak(offloading.step), 0.75 * peak(kept.step));
}

TEST(Simulate, SumsOfManyBucketsShareTheLink) {
  Machine machine = free_machine();
  machine.planning.on_host = false;
  machine.planning.bucket_bytes = 4096;
  machine.links[static_cast<std::size_t>(LinkKind::within_node)].seconds_per_byte = 1e-9;
  const double seconds = simulate(resnet(), layers_of(resnet(), "n2", 2, 4), machine, RoundTimes(0)).seconds;
  EXPECT_NEAR(seconds, 11.17e6 * 4 * 1e-9, 0.02 * seconds);  // two ranks: each byte crosses the link once
}

struct NormalisationWaits {
  double waits = 0, seconds = 0;  ///< of the sums of normalisations in the backward pass, and of the step
};
NormalisationWaits waits_of_normalisations(const nn::NetworkDescription& net, const Machine& machine, double kernel) {
  const auto layers = layers_of(net, "n2", 2, 4);
  const SimulatedStep step = simulate(net, layers, machine, RoundTimes(kernel), {.timeline = true});
  const nn::StepPlan plan = nn::plan_step(net, layers, 0, nn::StepKind::training, description_of(machine, 2));
  NormalisationWaits found{.seconds = step.seconds};
  for (const SimulatedAction& a : step.actions) {
    const nn::PlanNode& node = plan.nodes[static_cast<std::size_t>(a.node)];
    const auto* const sum = std::get_if<nn::ReductionWork>(&node.work);
    if (a.rank == 0 && a.kind == nn::StepActionKind::finish && node.phase == nn::StepPhase::backward && sum &&
        sum->segment < 0)
      found.waits += a.end - a.start;
  }
  return found;
}

// Between two hosts the few values of a normalisation leave behind the buckets that have started before.
TEST(Simulate, SumsOfNormalisationsWaitForBucketsBetweenHosts) {
  Machine machine = free_machine();
  machine.planning.bucket_bytes = 4096;
  machine.ranks_per_node = 1;
  machine.links[static_cast<std::size_t>(LinkKind::between_nodes)].seconds_per_byte = 1e-9;
  const auto net = resnet();
  const auto layers = layers_of(net, "n2", 2, 4);
  const auto waits_of_normalisation = [&](double kernel) { return waits_of_normalisations(net, machine, kernel); };
  // All bytes of gradients cross the link once, and are not faster than that.
  const double link = 11.17e6 * 4 * 1e-9;
  const auto [waits, seconds] = waits_of_normalisation(0);
  EXPECT_GE(seconds, link);
  EXPECT_LT(seconds, 1.01 * link);
  EXPECT_GT(waits, 0.5 * link);
  // With parts of 256 KiB they wait for two parts of each bucket only.
  machine.all_reduces.push_back({.ranks = 2, .nodes = 2, .seconds_per_byte = 1e-9});
  machine.all_reduces.back().measurements = {{comm::AllReduceAlgorithm::rabenseifner, 1024, 1.024e-6, 256 << 10}};
  const auto [short_waits, short_seconds] = waits_of_normalisation(3e-4);
  machine.all_reduces.clear();
  const auto [long_waits, later] = waits_of_normalisation(3e-4);
  EXPECT_LT(short_waits, 0.9 * long_waits);
  EXPECT_LT(short_seconds, later);
  // Kernels of 0.1 s let each bucket through before the next sum of a normalisation.
  const auto [few, long_seconds] = waits_of_normalisation(0.1);
  EXPECT_LT(few, 0.01 * link);
  EXPECT_NEAR(long_seconds, 0.1 * kernels_in(net, layers, machine), 0.01 * long_seconds);
}

// Devices run all sums in the order of their starts.
TEST(Simulate, SumsOfNormalisationsWaitForBucketsOnADevice) {
  Machine machine = free_machine();
  machine.planning.bucket_bytes = 4096;
  machine.links[static_cast<std::size_t>(LinkKind::within_node)].seconds_per_byte = 1e-9;
  const auto net = resnet();
  const double link = 11.17e6 * 4 * 1e-9;
  EXPECT_LT(waits_of_normalisations(net, machine, 0).waits, 0.01 * link);  // hosts of one node
  machine.planning.on_host = false;
  const NormalisationWaits device = waits_of_normalisations(net, machine, 0);
  EXPECT_GT(device.waits, 0.5 * link);
  EXPECT_NEAR(device.seconds, link, 0.02 * link);
}

// Chunks that are on the way together share the bandwidth of the link.
TEST(Simulate, MessagesBetweenNodesTakeTurns) {
  Machine machine = free_machine();
  machine.ranks_per_node = 1;
  machine.links[static_cast<std::size_t>(LinkKind::between_nodes)].seconds_per_byte = 1e-9;
  const auto layers = layers_of(resnet(), "f2", 2, 4);
  const auto seconds = [&](double chunk_bytes) {
    machine.planning.chunk_bytes = chunk_bytes;
    return simulate(resnet(), layers, machine, RoundTimes(0), {.kind = nn::StepKind::inference}).seconds;
  };
  const double whole = seconds(1 << 30);
  EXPECT_NEAR(seconds(16 << 10), whole, 0.01 * whole);
}

TEST(Simulate, MessagesAndBucketsShareTheLinkBetweenHosts) {
  Machine machine = free_machine();
  machine.planning.bucket_bytes = 4096;
  machine.ranks_per_node = 1;
  machine.links[static_cast<std::size_t>(LinkKind::between_nodes)].seconds_per_byte = 1e-9;
  const SimulatedStep step = simulate(resnet(), layers_of(resnet(), "h2", 2, 16), machine, RoundTimes(0));
  double halos = 0, sums = 0;
  for (const CommunicationTime& layer : step.communication) {
    halos += layer.halos;
    sums += layer.sums;
  }
  EXPECT_GT(halos, 0.05 * sums);
  EXPECT_GT(step.seconds, 0.97 * (halos + sums));  // no kernel hides them
  EXPECT_LT(step.seconds, 1.05 * (halos + sums));
}

TEST(Simulate, GhostsArriveBesideTheInterior) {
  Machine machine = free_machine();
  machine.ranks_per_node = 1;
  machine.links[static_cast<std::size_t>(LinkKind::between_nodes)].latency = 1e-3;
  const auto net = nn::make_model("mesh1k", {.input = views::make_extents(1, {512, 512}, 18)});
  const auto layers = layers_of(net, "h2", 2, 1);
  // Kernels that take longer than a message hide it in the forward pass; short ones do not.
  const auto exposed = [&](double seconds) {
    const SimulatedStep step = simulate(net, layers, machine, RoundTimes(seconds));
    return step.phases[0].waits;
  };
  EXPECT_GT(exposed(1e-6), 5e-3);
  EXPECT_LT(exposed(0.5), 0.9 * exposed(1e-6));
}

TEST(Simulate, ThousandsOfRanksAreAFewClasses) {
  Machine machine = generic_machine();
  machine.ranks_per_node = 4;
  const auto net = nn::make_model("resnet50");
  const auto layers = layers_of(net, "n1024h2w2", 4096, 32'768);
  const MachineKernels kernels(machine, 4, 1);
  const SimulatedStep step = simulate(net, layers, machine, kernels, {.timeline = true});
  EXPECT_GT(step.seconds, 0);
  std::vector<int> ranks;
  for (const SimulatedAction& a : step.actions) ranks.push_back(a.rank);
  std::ranges::sort(ranks);
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  EXPECT_LT(ranks.size(), 64u);
}

TEST(Simulate, TheRanksOfANodeShareItsLink) {
  Machine machine = free_machine();
  machine.links[static_cast<std::size_t>(LinkKind::between_nodes)].seconds_per_byte = 1e-6;
  const auto net = nn::make_model("mesh1k", {.input = views::make_extents(1, {64, 64}, 18)});
  const auto seconds = [&](const std::string& split, int ranks, int per_node) {
    machine.ranks_per_node = per_node;
    return simulate(net, layers_of(net, split, ranks, 1), machine, RoundTimes(0)).phases[0].waits;
  };
  // h2 on two nodes: one rank each. h2w2 with two columns per node: both ranks of a node send half as much.
  const double alone = seconds("h2", 2, 1), shared = seconds("h2w2", 4, 2);
  EXPECT_GT(alone, 0);
  EXPECT_NEAR(shared, alone, 0.15 * alone);
}

}  // namespace test_simulate
}  // namespace aloni::model

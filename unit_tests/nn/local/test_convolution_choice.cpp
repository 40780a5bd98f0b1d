// Which implementation a convolution gets: by the rule of plans, and as oneDNN has it on this processor.
#include "support/random_cases.hpp"

#include <aloni/nn/local/convolution.hpp>
#include <aloni/nn/local/convolution_choice.hpp>
#include <aloni/nn/models.hpp>
#include <aloni/nn/plan/plan_step.hpp>
#include <aloni/nn/strategy.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace aloni::nn::local::test {
namespace test_convolution_choice {

using Host = Kokkos::DefaultHostExecutionSpace;

constexpr auto forward = ConvolutionPass::forward, backward_data = ConvolutionPass::backward_data,
               backward_filter = ConvolutionPass::backward_filter;
constexpr auto direct = ConvolutionBackend::direct, onednn = ConvolutionBackend::onednn,
               kokkos_kernels = ConvolutionBackend::kokkos_kernels, reference = ConvolutionBackend::reference;
constexpr auto float32 = ElementType::float32;

ConvolutionProblem of(Index channels, Index filters, Index kernel, Index groups = 1) {
  return {.samples = 2,
          .channels = channels,
          .filters = filters,
          .groups = groups,
          .input = {1, 32, 32},
          .output = {1, 32, 32},
          .kernel = {1, kernel, kernel},
          .offset = {0, -(kernel / 2), -(kernel / 2)}};
}

TEST(ConvolutionChoice, FollowsTheShapeOnTheHost) {
  const MachineDescription host;
  EXPECT_EQ(choose_backend(of(64, 64, 3), forward, float32, host), onednn);
  EXPECT_EQ(choose_backend(of(3, 64, 7), forward, float32, host), onednn);
  EXPECT_EQ(choose_backend(of(1, 16, 5), forward, float32, host), direct);
  EXPECT_EQ(choose_backend(of(18, 128, 5), forward, float32, host), onednn);
  EXPECT_EQ(choose_backend(of(18, 128, 5), backward_data, float32, host), direct);  // 18 channels are no whole vectors
  EXPECT_EQ(choose_backend(of(64, 64, 3, 64), forward, float32, host), direct);     // depthwise
  EXPECT_EQ(choose_backend(of(64, 64, 3), forward, ElementType::float64, host), direct);
  EXPECT_EQ(choose_backend(of(3, 6, 5), backward_filter, ElementType::bfloat16, host), onednn);
}

TEST(ConvolutionChoice, FollowsTheCacheInBackwardFilter) {
  const ConvolutionProblem p = of(64, 64, 3);  // sums of 144 KiB
  MachineDescription machine;
  EXPECT_EQ(choose_backend(p, backward_filter, float32, machine), direct);
  machine.filter_gradient_bytes = 144 * 1024 - 1;
  EXPECT_EQ(choose_backend(p, backward_filter, float32, machine), onednn);
  machine.filter_gradient_bytes = 144 * 1024;
  EXPECT_EQ(choose_backend(p, backward_filter, float32, machine), direct);
}

TEST(ConvolutionChoice, FollowsTheImplementationsOfTheMachine) {
  MachineDescription machine{.onednn = false};
  EXPECT_EQ(choose_backend(of(64, 64, 3), forward, float32, machine), direct);
  machine.on_host = false;
  EXPECT_EQ(choose_backend(of(64, 64, 3), forward, float32, machine), kokkos_kernels);
  EXPECT_EQ(choose_backend(of(64, 64, 3, 64), forward, float32, machine), reference);
  EXPECT_EQ(choose_backend(of(64, 64, 3, 64), backward_filter, float32, machine), kokkos_kernels);
  machine.kokkos_kernels = false;
  EXPECT_EQ(choose_backend(of(64, 64, 3), forward, float32, machine), reference);
  machine.cudnn = true;
  EXPECT_EQ(choose_backend(of(64, 64, 3, 64), forward, float32, machine), ConvolutionBackend::cudnn);
  machine.on_host = true;
  EXPECT_EQ(choose_backend(of(64, 64, 3), forward, float32, machine), direct);
}

TEST(ConvolutionChoice, RefusesWhatOnednnComputesWrongly) {
  ConvolutionProblem p = of(64, 64, 5);
  p.offset[2] = -4;  // two columns read padding more than half a kernel deep
  EXPECT_EQ(choose_backend(p, forward, float32, {}), direct);
  EXPECT_EQ(choose_backend(p, backward_data, float32, {}), onednn);
  p = of(64, 64, 3);
  p.samples = Index{1} << 20;  // beyond 32 bits
  EXPECT_EQ(choose_backend(p, forward, float32, {}), direct);
}

ConvolutionCase forward_case(const ConvolutionProblem& problem) { return {.problem = problem}; }

/// A host with measured times. The limit of the workspace is 1000 bytes.
MachineDescription measured_host(const std::vector<std::pair<ConvolutionCase, std::vector<ImplementationTime>>>& all) {
  MeasuredImplementations::Times times;
  for (const auto& [c, list] : all) times[numbers_of(c)] = list;
  MachineDescription machine;
  machine.convolutions = MeasuredImplementations(std::move(times), 1000);
  return machine;
}
ImplementationTime time_of(const std::string& implementation, double seconds, Index workspace = 0) {
  return {.implementation = implementation, .seconds = seconds, .runs = 10, .workspace_bytes = workspace};
}
ConvolutionChoice chosen(ConvolutionBackend backend, ChoiceSource source, std::int64_t engine = -1) {
  return {{backend, engine}, source};
}

TEST(MeasuredChoice, TakesTheFastestMeasuredImplementation) {
  const ConvolutionCase c = forward_case(of(64, 64, 3));  // the rules take oneDNN
  MachineDescription machine = measured_host({{c, {time_of("onednn", 2e-3), time_of("direct", 1.5e-3)}}});
  EXPECT_EQ(choose_convolution(c, machine), chosen(direct, ChoiceSource::measured));
  EXPECT_EQ(explain_choice(c, machine), "measured: direct 1.5 ms, onednn 2 ms");
  machine = measured_host({{c, {time_of("onednn", 2e-4), time_of("direct", 1.5e-3)}}});
  EXPECT_EQ(choose_convolution(c, machine), chosen(onednn, ChoiceSource::measured));
  EXPECT_EQ(explain_choice(c, machine), "measured: onednn 200 us, direct 1.5 ms");
}

TEST(MeasuredChoice, KeepsThatOfTheRulesWithinTheNoise) {
  const ConvolutionCase c = forward_case(of(64, 64, 3));
  const MachineDescription machine = measured_host({{c, {time_of("onednn", 1.00), time_of("direct", 0.96)}}});
  EXPECT_EQ(choose_convolution(c, machine), chosen(onednn, ChoiceSource::measured));
  EXPECT_EQ(explain_choice(c, machine), "measured: onednn 1e+03 ms, direct 960 ms");
  const MachineDescription faster = measured_host({{c, {time_of("onednn", 1.00), time_of("direct", 0.94)}}});
  EXPECT_EQ(choose_convolution(c, faster), chosen(direct, ChoiceSource::measured));
}

TEST(MeasuredChoice, TakesNothingThatCannotRun) {
  ConvolutionCase wrong = forward_case(of(64, 64, 5));
  wrong.problem.offset[2] = -4;  // oneDNN computes it wrongly
  MachineDescription machine = measured_host({{wrong, {time_of("onednn", 1), time_of("direct", 2)}}});
  EXPECT_EQ(choose_convolution(wrong, machine), chosen(direct, ChoiceSource::measured));
  // Nor does the near problem that oneDNN can run say that it can run this one.
  machine = measured_host({{forward_case(of(64, 64, 5)), {time_of("onednn", 1), time_of("direct", 2)}}});
  EXPECT_EQ(choose_convolution(wrong, machine), chosen(direct, ChoiceSource::near));

  const ConvolutionCase c = forward_case(of(64, 64, 3));
  machine = measured_host({{c, {time_of("onednn", 1), time_of("kokkos_kernels", 2), time_of("cudnn engine 3", 0.1)}}});
  machine.onednn = false;
  EXPECT_EQ(choose_convolution(c, machine), chosen(kokkos_kernels, ChoiceSource::measured));
  machine.kokkos_kernels = false;
  EXPECT_EQ(choose_convolution(c, machine), chosen(direct, ChoiceSource::rule));
  EXPECT_EQ(explain_choice(c, machine), "rule: no measured implementation can run here");
  machine.on_host = false;
  machine.cudnn = true;
  EXPECT_EQ(choose_convolution(c, machine), chosen(ConvolutionBackend::cudnn, ChoiceSource::measured, 3));
}

TEST(MeasuredChoice, TakesTheFastestEngineAndKeepsTheWorkspaceWithinItsLimit) {
  const ConvolutionCase c = forward_case(of(64, 64, 3));
  MachineDescription machine = measured_host({{c,
                                               {time_of("cudnn engine 1", 3), time_of("cudnn engine 7", 1, 1001),
                                                time_of("cudnn engine 5", 2, 1000), time_of("kokkos_kernels", 4)}}});
  machine.on_host = false;
  machine.cudnn = true;
  EXPECT_EQ(choose_convolution(c, machine), chosen(ConvolutionBackend::cudnn, ChoiceSource::measured, 5));
  EXPECT_EQ(explain_choice(c, machine),
            "measured: cudnn engine 5 2e+03 ms, cudnn engine 1 3e+03 ms, kokkos_kernels 4e+03 ms");
}

TEST(MeasuredChoice, NearProblemsCountAndFarOnesDoNot) {
  ConvolutionCase c = forward_case(of(64, 64, 3)), twice = c, most = c;
  twice.problem.samples = 4;
  most.problem.samples = 5;
  const MachineDescription machine = measured_host({{c, {time_of("onednn", 2), time_of("direct", 1)}}});
  EXPECT_EQ(choose_convolution(twice, machine), chosen(direct, ChoiceSource::near));
  EXPECT_EQ(explain_choice(twice, machine),
            "near: the times of " + to_string(c) + ": direct 1e+03 ms, onednn 2e+03 ms");
  EXPECT_EQ(choose_convolution(most, machine), chosen(onednn, ChoiceSource::rule));
  EXPECT_EQ(explain_choice(most, machine), "rule: the nearest measured problem is 2.5 times as large or small");
  ConvolutionCase other = c;
  other.input_gaps = true;
  EXPECT_EQ(explain_choice(other, machine), "rule: no measured problem of this kind");
  EXPECT_EQ(explain_choice(c, {}), "rule: no measured times");
}

TEST(MeasuredChoice, TheNearestProblemDecides) {
  ConvolutionCase c = forward_case(of(64, 64, 3)), nearer = c, farther = c;
  c.problem.samples = 10;
  nearer.problem.samples = 12;
  farther.problem.samples = 8;
  const MachineDescription machine = measured_host({{farther, {time_of("onednn", 1), time_of("direct", 2)}},
                                                    {nearer, {time_of("onednn", 2), time_of("direct", 1)}}});
  EXPECT_EQ(choose_convolution(c, machine), chosen(direct, ChoiceSource::near));  // 1.2 times, not 1.25 times
}

TEST(MeasuredChoice, IsMeasuredForWhatCanRun) {
  const MachineDescription host;
  const auto backends = [](auto... b) { return std::vector<ConvolutionBackend>{b...}; };
  ConvolutionCase c = forward_case(of(64, 64, 3));
  EXPECT_EQ(implementations_to_measure(c, host), backends(direct, onednn, kokkos_kernels));
  c.type = ElementType::float64;
  EXPECT_EQ(implementations_to_measure(c, host), backends(direct, kokkos_kernels));
  c.type = ElementType::bfloat16;
  EXPECT_EQ(implementations_to_measure(c, host), backends(onednn));
  MachineDescription device{.on_host = false};
  device.cudnn = true;
  c = forward_case(of(64, 64, 3, 64));
  EXPECT_EQ(implementations_to_measure(c, device), backends(ConvolutionBackend::cudnn, kokkos_kernels, reference));
}

/// All passes of the convolutions of a training step, by the text of their problem.
std::map<std::string, std::pair<ConvolutionCall, ConvolutionPass>> convolutions_of(const NetworkDescription& network,
                                                                                   const std::string& strategy,
                                                                                   int ranks) {
  std::map<std::string, std::pair<ConvolutionCall, ConvolutionPass>> all;
  const NetworkPlan layers =
      plan_network(network, resolve(Strategy::parse("* " + strategy, "test"), network, ranks), ranks, ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    const StepPlan plan = plan_step(network, layers, rank, StepKind::training, {});
    const auto add = [&](const std::vector<ConvolutionCall>& calls, ConvolutionPass pass) {
      for (const ConvolutionCall& call : calls)
        if (call.computes)
          all.try_emplace(std::string(name(pass)) + ' ' + to_string(call.problem), std::pair{call, pass});
    };
    for (const PlanNode& node : plan.nodes) {
      if (const auto* work = std::get_if<ConvolutionWork>(&node.work)) {
        add(work->calls, work->gathers ? forward : backward_data);
      } else if (const auto* gradient = std::get_if<FilterGradientWork>(&node.work)) {
        add(gradient->calls, backward_filter);
      }
    }
  }
  return all;
}

/// A plan names the kernels that run: with AVX-512 oneDNN has its own for all that the rule gives it. With less it
/// lacks a few for large volumes, and the kernel says which one runs instead.
TEST(ConvolutionChoice, OfPlansIsWhatRuns) {
  if (!machine_of_this_build(true).onednn) GTEST_SKIP() << "this build has no oneDNN";
  const Host exec;
  std::map<ConvolutionBackend, int> seen;
  bool has_avx512 = false;
  std::vector<std::string> lacking;
  std::vector<std::string> models{"lenet5", "resnet18", "mesh1k"};
  if (aloni::test::nightly()) models.insert(models.end(), {"densenet121", "unet2d", "unet3d", "cosmoflow"});
  for (const std::string& model : models) {
    ModelOptions small;
    if (model == "mesh1k") small.input = views::make_extents(1, {64, 64}, 18);
    if (model == "resnet18") small.input = views::make_extents(1, {32, 32}, 3);
    for (const auto& [strategy, ranks] : std::map<std::string, int>{{"n1", 1}, {"h2", 2}, {"c2", 2}, {"h2w2", 4}}) {
      for (const auto& [text, planned] : convolutions_of(make_model(model, small), strategy, ranks)) {
        const auto& [call, pass] = planned;
        ++seen[call.backend];
        EXPECT_EQ((automatic_backend<float, Host>(call.problem, pass)), call.backend);
        EXPECT_EQ(call.chosen_by, ChoiceSource::rule);
        if (call.backend != onednn) continue;
        const ConvolutionPasses passes{.forward = pass == forward,
                                       .backward_data = pass == backward_data,
                                       .backward_filter = pass == backward_filter};
        const auto kernel = make_local_convolution<float, Host>(onednn, call.problem, exec, passes);
        const std::string runs = kernel->implementation(pass);
        EXPECT_THAT(runs, testing::AnyOf(testing::StartsWith("onednn "), testing::HasSubstr("(oneDNN has ")));
        if (runs.starts_with("onednn ")) {
          has_avx512 = has_avx512 || runs.find("avx512") != std::string::npos;
        } else {
          lacking.push_back(model + ' ' + text + ": " + runs);
        }
      }
    }
  }
  if (has_avx512) {
    EXPECT_THAT(lacking, testing::IsEmpty());
  }
  EXPECT_GT(seen[onednn], 50);
  EXPECT_GT(seen[direct], 50);
}

}  // namespace test_convolution_choice
}  // namespace aloni::nn::local::test

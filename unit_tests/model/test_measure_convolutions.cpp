// Measured implementations of convolutions: their tasks, what is measured again, and the plans that follow.
#include <aloni/core/error.hpp>
#include <aloni/model/machine_file.hpp>
#include <aloni/model/measure_convolutions.hpp>
#include <aloni/nn/models.hpp>
#include <aloni/nn/network_plan.hpp>
#include <aloni/nn/plan/convolution_cases.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

namespace aloni::model {
namespace test_measure_convolutions {

using nn::local::ChoiceSource;
using nn::local::ConvolutionBackend;
using nn::local::ConvolutionCase;
using testing::ElementsAre;
using testing::HasSubstr;

PlannedNetwork resnet(const std::string& split, int ranks, nn::StepKind kind = nn::StepKind::training) {
  return {nn::make_model("resnet18", {.input = views::make_extents(1, {32, 32}, 3)}),
          nn::Strategy::uniform(nn::LayerSplit::parse(split)), ranks, 8, kind};
}

Machine host() {
  Machine machine = generic_machine();
  machine.ranks_per_node = 4;
  return machine;
}

nn::StepPlan plan_of(const PlannedNetwork& n, int rank, const Machine& machine) {
  const auto layers = nn::plan_network(n.network, nn::resolve(n.strategy, n.network, n.ranks), n.ranks, n.samples);
  return nn::plan_step(n.network, layers, rank, n.kind, description_of(machine, n.ranks), n.step);
}

bool always(const ConvolutionProgress&) { return true; }

/// Times by name: the seconds of each implementation. Counts its calls.
struct Clock {
  std::map<ConvolutionBackend, double> seconds{{ConvolutionBackend::direct, 1},
                                               {ConvolutionBackend::onednn, 2},
                                               {ConvolutionBackend::kokkos_kernels, 3},
                                               {ConvolutionBackend::cudnn, 10}};
  int calls = 0;

  MeasuredKernel operator()(const nn::StepPlan& plan, int node) {
    ++calls;
    const auto all = nn::convolutions_of(plan, plan.nodes[static_cast<std::size_t>(node)]);
    double sum = 0;
    for (const auto& c : all)
      sum += seconds.at(c.call->backend) / (c.call->engine < 0 ? 1.0 : 1.0 + static_cast<double>(c.call->engine));
    return {.seconds = sum, .spread = 0.01, .runs = 10};
  }
};

TEST(MeasureConvolutions, TasksAreTheConvolutionsOfAllRanksOnceEach) {
  const Machine machine = host();
  const std::vector<PlannedNetwork> networks{resnet("h4", 4), resnet("n2", 2), resnet("h4", 4)};
  std::set<MeasuredImplementations::Problem> expected;
  for (const PlannedNetwork& n : networks)
    for (int rank = 0; rank < n.ranks; ++rank) {
      const nn::StepPlan plan = plan_of(n, rank, machine);
      for (const nn::PlanNode& node : plan.nodes)
        for (const auto& c : nn::convolutions_of(plan, node)) expected.insert(numbers_of(c.convolution));
    }
  std::vector<MeasuredImplementations::Problem> found;
  for (const ConvolutionTask& task : convolution_tasks(networks, machine))
    found.push_back(numbers_of(task.convolution));
  EXPECT_EQ(found.size(), expected.size());
  EXPECT_EQ(std::set(found.begin(), found.end()), expected);
  EXPECT_GT(found.size(), 20u);
}

TEST(MeasureConvolutions, ResumeWithTheTablesAndMeasureNothingTwice) {
  Machine machine = host();
  const std::vector<PlannedNetwork> networks{resnet("h2", 2)};
  const auto tasks = convolution_tasks(networks, machine);
  Clock clock;
  measure_convolutions(tasks, machine, std::ref(clock), {}, [](const ConvolutionProgress& p) { return p.done < 5; });
  const int first = clock.calls;
  EXPECT_EQ(machine.convolutions.front().measured.size(), 5u);
  EXPECT_EQ(machine.kernels.front().times.size(), static_cast<std::size_t>(first));
  machine = parse_machine(to_json_text(machine), "again");
  measure_convolutions(tasks, machine, std::ref(clock), {}, always);
  EXPECT_EQ(machine.convolutions.front().measured.size(), tasks.size());
  EXPECT_EQ(machine.kernels.front().times.size(), static_cast<std::size_t>(clock.calls));
  const int all = clock.calls;
  measure_convolutions(convolution_tasks(networks, machine), machine, std::ref(clock), {}, always);
  EXPECT_EQ(clock.calls, all);
  machine.convolutions.clear();  // the table of kernels has all times
  measure_convolutions(tasks, machine, std::ref(clock), {}, always);
  EXPECT_EQ(clock.calls, all);
  EXPECT_EQ(machine.convolutions.front().measured.size(), tasks.size());
}

TEST(MeasureConvolutions, PlansTakeTheFastestAndKnowItsTime) {
  Machine machine = host();
  for (const auto& [fastest, split] :
       std::map<ConvolutionBackend, std::string>{{ConvolutionBackend::direct, "h2"},
                                                 {ConvolutionBackend::onednn, "c2"},
                                                 {ConvolutionBackend::kokkos_kernels, "n2"}}) {
    const std::vector<PlannedNetwork> networks{resnet(split, 2), resnet(split, 2, nn::StepKind::inference)};
    Clock clock;
    clock.seconds[fastest] = 0.5;
    const auto tasks = convolution_tasks(networks, machine);
    measure_convolutions(tasks, machine, std::ref(clock), {}, always);
    int taken = 0, all = 0;
    for (const PlannedNetwork& n : networks)
      for (int rank = 0; rank < 2; ++rank) {
        const nn::StepPlan plan = plan_of(n, rank, machine);
        for (const nn::PlanNode& node : plan.nodes)
          for (const auto& c : nn::convolutions_of(plan, node)) {
            EXPECT_EQ(c.call->chosen_by, ChoiceSource::measured) << to_string(c.convolution);
            ++all;
            taken += c.call->backend == fastest ? 1 : 0;
          }
      }
    EXPECT_GT(all, 50);
    EXPECT_GT(taken, all - (fastest == ConvolutionBackend::onednn ? 20 : 1));  // oneDNN is not given some of them
    machine.convolutions.clear();
    machine.kernels.clear();
  }
}

TEST(MeasureConvolutions, TheTimeOfANodeIsDividedAmongItsCalls) {
  Machine machine = host();
  const auto tasks = convolution_tasks({resnet("h2", 2), resnet("h2w2", 4)}, machine);
  Clock clock;
  measure_convolutions(tasks, machine, std::ref(clock), {}, always);
  int several = 0;
  for (const ConvolutionTask& task : tasks) {
    several += task.calls > 1 ? 1 : 0;
    for (const ImplementationTime& t : machine.convolutions.front().measured.times().at(numbers_of(task.convolution)))
      EXPECT_DOUBLE_EQ(t.seconds, clock.seconds.at(nn::local::convolution_backend_named(t.implementation).value()));
  }
  EXPECT_GT(several, 0);
}

TEST(MeasureConvolutions, MeasureEachEngineAndNoLargeWorkspace) {
  Machine machine = host();
  machine.planning.on_host = false;
  machine.planning.cudnn = true;
  machine.planning.compute_capability = 90;
  const std::vector<PlannedNetwork> networks{resnet("n2", 2)};
  const auto tasks = convolution_tasks(networks, machine);
  Clock clock;
  MeasureConvolutionsOptions options{.most_workspace_bytes = 500};
  options.list = [](const ConvolutionCase&) {
    return std::vector<ImplementationToMeasure>{{{ConvolutionBackend::cudnn, 4}, 500},
                                                {{ConvolutionBackend::cudnn, 9}, 501},
                                                {{ConvolutionBackend::cudnn, 0}, 0},
                                                {{ConvolutionBackend::kokkos_kernels}, 0}};
  };
  measure_convolutions(tasks, machine, std::ref(clock), options, always);
  ASSERT_EQ(machine.convolutions.size(), 1u);
  EXPECT_EQ(machine.convolutions.front().compute_capability, 90);
  for (const auto& [problem, times] : machine.convolutions.front().measured.times()) {
    std::vector<std::string> names;
    for (const ImplementationTime& t : times) names.push_back(t.implementation);
    EXPECT_THAT(names, ElementsAre("cudnn engine 4", "cudnn engine 0", "kokkos_kernels"));
  }
  const nn::StepPlan plan = plan_of(networks.front(), 0, machine);
  std::set<std::string> runs;
  for (const nn::PlanNode& node : plan.nodes)
    if (const std::string text = nn::implementations(node.work); !text.empty()) runs.insert(text);
  EXPECT_THAT(runs, ElementsAre("cudnn engine 4"));  // 10 / (1 + 4) seconds
  // Another device does not know these times.
  machine.planning.compute_capability = 80;
  EXPECT_TRUE(description_of(machine, 2).convolutions.empty());
}

TEST(MeasureConvolutions, KeepTheResultsBeforeAFailure) {
  Machine machine = host();
  const auto tasks = convolution_tasks({resnet("n1", 1)}, machine);
  Clock clock;
  const auto measure = [&](const nn::StepPlan& plan, int node) {
    if (clock.calls == 4) return MeasuredKernel{.seconds = 0};
    return clock(plan, node);
  };
  try {
    measure_convolutions(tasks, machine, measure, {}, always);
    FAIL();
  } catch (const InvalidArgument& e) {
    EXPECT_THAT(e.argument(), HasSubstr("seconds of "));
  }
  EXPECT_EQ(machine.convolutions.front().measured.size(), 1u);  // three times each
  EXPECT_EQ(machine.kernels.front().times.size(), 4u);
}

TEST(MeasureConvolutions, ProgressEndsWithAllTasks) {
  Machine machine = host();
  const auto tasks = convolution_tasks({resnet("n1", 1)}, machine);
  ConvolutionProgress last;
  Clock clock;
  measure_convolutions(tasks, machine, std::ref(clock), {}, [&](const ConvolutionProgress& p) {
    last = p;
    return true;
  });
  EXPECT_EQ(last.done, tasks.size());
  EXPECT_EQ(last.next, nullptr);
}

/// The plan of every network of the zoo, split in several ways: without measured times all choices are those of the
/// rules, and the case that a plan shows is the one by which it chose.
TEST(MeasureConvolutions, WithoutTimesTheRulesDecideForTheWholeZoo) {
  const Machine machine = host();
  int all = 0;
  for (const std::string& model : nn::model_names()) {
    for (const auto& [split, ranks] : std::map<std::string, int>{{"n1", 1}, {"h2", 2}}) {
      SCOPED_TRACE(model + ' ' + split);
      const PlannedNetwork n{nn::make_model(model), nn::Strategy::uniform(nn::LayerSplit::parse(split)), ranks, 2};
      const MachineDescription description = description_of(machine, ranks);
      const nn::StepPlan plan = plan_of(n, ranks - 1, machine);
      for (const nn::PlanNode& node : plan.nodes)
        for (const auto& c : nn::convolutions_of(plan, node)) {
          ++all;
          EXPECT_EQ(c.call->chosen_by, ChoiceSource::rule);
          EXPECT_EQ(c.call->engine, -1);
          EXPECT_EQ(c.call->backend, nn::local::choose_backend(c.convolution.problem, c.convolution.pass,
                                                               c.convolution.type, description));
        }
    }
  }
  EXPECT_GT(all, 1000);
}

}  // namespace test_measure_convolutions
}  // namespace aloni::model

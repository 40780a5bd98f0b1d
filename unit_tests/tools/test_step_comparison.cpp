#include <aloni/core/error.hpp>
#include <aloni/model/shipped_machines.hpp>
#include <aloni/nn/models.hpp>
#include <aloni/nn/strategy.hpp>
#include <aloni/tools/step_comparison.hpp>
#include <aloni/tools/train_output.hpp>

#include <gmock/gmock.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

namespace aloni::tools {
namespace test_step_comparison {

using testing::HasSubstr;

/// LeNet-5 on two ranks, split by height.
struct Prediction {
  nn::NetworkDescription network = nn::make_model("lenet5");
  nn::NetworkPlan layers =
      nn::plan_network(network, nn::resolve(nn::Strategy::uniform(nn::LayerSplit::parse("h2")), network, 2), 2, 64);
  model::Machine machine = model::find_machine("x86_server");
  StepPrediction step = predict_step(network, layers, machine, {}, 1);

  /// Steps whose nodes take the predicted time, times a factor for each step. `flops`: of the whole step.
  void add_step(nn::StepTimes& times, double factor, double flops) const {
    auto nodes = std::make_shared<std::vector<nn::TimedNode>>();
    for (const PredictedNode& node : step.nodes) nodes->emplace_back().label = node.label;
    nodes->front().cost.flops = flops;
    times.begin(nodes);
    std::int64_t now = 0;
    for (int n = 0; n < static_cast<int>(step.nodes.size()); ++n) {
      const double seconds = factor * step.nodes[static_cast<std::size_t>(n)].seconds;
      const auto end = now + static_cast<std::int64_t>(std::llround(1e9 * seconds));
      times.add(nn::StepTimes::Action{n, nn::StepActionKind::run, now, end});
      now = end;
    }
    times.add(nn::StepTimes::Span{nn::StepTimes::Row::input, "mini-batch", now, now + 1'000'000});
  }
};

double sum_of(const std::vector<ComparedTime>& times, double ComparedTime::*member) {
  return std::accumulate(times.begin(), times.end(), 0.0,
                         [&](double sum, const ComparedTime& t) { return sum + t.*member; });
}

TEST(StepComparison, PredictsEachNodeOfTheRank) {
  const Prediction p;
  const nn::StepPlan plan = nn::plan_step(p.network, p.layers, 1, nn::StepKind::training, description_of(p.machine, 2));
  ASSERT_EQ(p.step.nodes.size(), plan.nodes.size());
  double sum = 0;
  for (std::size_t n = 0; n < plan.nodes.size(); ++n) {
    EXPECT_EQ(p.step.nodes[n].label, plan.nodes[n].label);
    sum += p.step.nodes[n].seconds;
  }
  EXPECT_NEAR(sum, p.step.seconds, 0.01 * p.step.seconds);
  const auto seconds_of_kind = [&](const std::string& kind) {
    double seconds = 0;
    for (const PredictedNode& node : p.step.nodes)
      if (kinds_of_work()[node.kind] == kind) seconds += node.seconds;
    return seconds;
  };
  for (const char* kind : {"halo", "collective", "dense", "pooling"}) EXPECT_GT(seconds_of_kind(kind), 0) << kind;
  EXPECT_EQ(seconds_of_kind("normalisation"), 0);
}

TEST(StepComparison, TakesMediansOfTheStepsWithAFullMiniBatch) {
  const Prediction p;
  nn::StepTimes times;
  for (const double factor : {1.0, 50.0, 2.0}) p.add_step(times, factor, 100);
  for (int i = 0; i < 5; ++i) p.add_step(times, 0.1, 60);  // the rest of an epoch
  const std::vector<double> flops = flops_of_steps(times);
  EXPECT_EQ(flops, (std::vector<double>{100, 100, 100, 60, 60, 60, 60, 60}));
  const MeasuredStep measured = measure_step(times, flops);
  EXPECT_EQ(measured.steps, 3);
  EXPECT_DOUBLE_EQ(measured.input, 1e-3);
  for (std::size_t n = 0; n < p.step.nodes.size(); ++n)
    EXPECT_NEAR(measured.nodes[n], 2 * p.step.nodes[n].seconds, 2e-9);
}

TEST(StepComparison, SumsNodesByPhaseKindAndLayer) {
  const Prediction p;
  nn::StepTimes times;
  p.add_step(times, 2, 100);
  StepComparison c = compare(p.step, measure_step(times, flops_of_steps(times)), 0.25);
  EXPECT_DOUBLE_EQ(c.step.measured, 0.25 - 1e-3);
  EXPECT_EQ(c.step.predicted, p.step.seconds);
  const double predicted = sum_of(c.nodes, &ComparedTime::predicted);
  for (const auto* times_of : {&c.phases, &c.kinds, &c.layers}) {
    EXPECT_NEAR(sum_of(*times_of, &ComparedTime::predicted), predicted, 1e-12);
    EXPECT_NEAR(sum_of(*times_of, &ComparedTime::measured), 2 * predicted, 1e-6);
  }
  EXPECT_EQ(c.layers.size(), 13U);
  EXPECT_EQ(c.phases[2].name, "backward");
  EXPECT_GT(c.phases[2].predicted, c.phases[0].predicted);
  EXPECT_NEAR(c.mean_error(), 0.5, 1e-3);
  c.layers[3].predicted = 0;
  c.layers[4].predicted = 1e3 * c.layers[4].measured;
  c.layers[4].measured *= 1e-6;  // below one per cent of the time
  ASSERT_NE(c.worst_layer(), nullptr);
  EXPECT_EQ(c.worst_layer()->name, c.layers[3].name);
  EXPECT_EQ(c.worst_layer()->error(), -1);
}

TEST(StepComparison, RefusesStepsOfAnotherPlan) {
  const Prediction p;
  nn::StepTimes times;
  p.add_step(times, 1, 100);
  MeasuredStep measured = measure_step(times, flops_of_steps(times));
  measured.labels[2] += " of another plan";
  EXPECT_THROW(compare(p.step, measured, 1), InvalidArgument);
}

TEST(StepComparison, HasTheSameFiguresInTextAndJson) {
  const Prediction p;
  nn::StepTimes times;
  p.add_step(times, 2, 100);
  const StepComparison c = compare(p.step, measure_step(times, flops_of_steps(times)), 0.25);
  const std::string text = to_text(c);
  EXPECT_THAT(text, HasSubstr("Machine x86_server beside 1 timed step on 1 rank"));
  EXPECT_THAT(text, HasSubstr("error       50.0 % of the time of layers"));
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100U) << line;
  const auto json = nlohmann::json::parse(to_json(nn::TrainReport{}, TrainRun{}, &c))["comparison"];
  EXPECT_EQ(json["machine"], "x86_server");
  EXPECT_EQ(json["mean_error"], c.mean_error());
  EXPECT_EQ(json["worst_layer"], c.worst_layer()->name);
  EXPECT_EQ(json["step"]["measured_seconds"], c.step.measured);
  for (const char* list : {"phases", "kinds", "layers", "nodes"}) EXPECT_GT(json[list].size(), 3U) << list;
  EXPECT_EQ(json["nodes"][5]["predicted_seconds"], c.nodes[5].predicted);
  EXPECT_FALSE(nlohmann::json::parse(to_json(nn::TrainReport{}, TrainRun{})).contains("comparison"));
}

}  // namespace test_step_comparison
}  // namespace aloni::tools

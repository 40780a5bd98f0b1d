#include "svg_text.hpp"

#include <aloni/model/shipped_machines.hpp>
#include <aloni/nn/models.hpp>
#include <aloni/nn/strategy.hpp>
#include <aloni/tools/simulation_drawing.hpp>

#include <gmock/gmock.h>

#include <string>
#include <vector>

namespace aloni::tools {
namespace test_simulation_drawing {

using svg_text::count;
using svg_text::xml_fault;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

SimulationRequest request(const std::string& model, const std::vector<SimulationCase>& cases) {
  return {.model = model, .network = nn::make_model(model), .machine = model::find_machine("lassen"), .cases = cases};
}
SimulationCase of_samples(int ranks, Index batch = 64) {
  return {.ranks = ranks,
          .batch = batch,
          .strategy = nn::Strategy::uniform(nn::LayerSplit::parse("n" + std::to_string(ranks)))};
}
std::string svg_of(const SimulationRequest& r) {
  std::vector<SimulatedCase> results;
  for (const SimulationCase& c : r.cases) results.push_back(simulate_case(r, c));
  std::string svg = to_svg(r, results);
  EXPECT_EQ(xml_fault(svg), "");
  return svg;
}
std::size_t dots(const std::string& svg, const std::string& line) { return count(svg, "<title>" + line + ", "); }

TEST(SimulationDrawing, ShowsTheStepItsKernelsAndExposedCommunicationOverRanks) {
  const std::string svg =
      svg_of(request("lenet5", {of_samples(2), of_samples(4), of_samples(8), of_samples(16), of_samples(32)}));
  for (const char* line : {"step", "kernels", "exposed communication"}) EXPECT_EQ(dots(svg, line), 5u) << line;
  EXPECT_THAT(svg, AllOf(HasSubstr(">ranks (logarithmic)</text>"), HasSubstr("lenet5, float, on lassen"),
                         HasSubstr(">time of a step"), HasSubstr(">32</text>"), Not(HasSubstr("Hollow"))));
}

TEST(SimulationDrawing, ShowsTheMeanAndThePercentileOfAVariation) {
  SimulationRequest r = request("lenet5", {of_samples(2), of_samples(4)});
  r.variation = model::Variation{.straggler_sigma = 0.1, .draws = 5};
  const std::string svg = svg_of(r);
  EXPECT_EQ(dots(svg, "mean with variation"), 2u);
  EXPECT_EQ(dots(svg, "95 % of steps with variation"), 2u);
}

TEST(SimulationDrawing, HasACurveForEachCombinationOfTheOtherQuantities) {
  std::vector<SimulationCase> cases;
  for (const int ranks : {1, 2})
    for (const Index batch : {64, 128, 256})
      for (const double links : {1.0, 4.0}) {
        cases.push_back(of_samples(ranks, batch));
        cases.back().factors.link_bandwidth = links;
      }
  const std::string svg = svg_of(request("lenet5", cases));
  EXPECT_THAT(svg, HasSubstr(">mini-batch, samples</text>"));  // has most values
  for (const char* name : {"ranks 1, links × 1", "ranks 1, links × 4", "ranks 2, links × 1", "ranks 2, links × 4"}) {
    EXPECT_EQ(dots(svg, name + std::string(", step")), 3u) << name;
    EXPECT_EQ(count(svg, name + std::string(", step</text>")), 1u) << name;
  }
  EXPECT_EQ(dots(svg, "ranks 2, links × 1, exposed"), 3u);
}

TEST(SimulationDrawing, SaysWhenItLeavesOutCombinations) {
  std::vector<SimulationCase> cases;
  for (int batch = 1; batch <= 9; ++batch)
    for (int ranks = 1; ranks <= 10; ++ranks) {
      cases.push_back(of_samples(ranks, 16 * batch));
    }
  SimulationRequest r = request("lenet5", cases);
  const std::vector<SimulatedCase> results(cases.size());  // nothing fits
  const std::string svg = to_svg(r, results);
  EXPECT_EQ(xml_fault(svg), "");
  EXPECT_THAT(svg, AllOf(HasSubstr("the first 8 of 9 combinations are drawn"), HasSubstr("No values."),
                         HasSubstr("Without a dot: 90 of 90 steps")));
}

TEST(SimulationDrawing, MarksStepsThatDoNotFit) {
  SimulationRequest r = request("resnet18", {of_samples(1, 1024), of_samples(16, 1024)});
  r.memory.limit = Index{2} << 30;
  const std::string svg = svg_of(r);
  EXPECT_EQ(count(svg, "c0 hollow"), 1u);
  EXPECT_THAT(svg, HasSubstr("Hollow dots: the step needs more memory than a rank has."));
}

TEST(SimulationDrawing, ShowsPhasesAndLayersOfASingleStep) {
  SimulationRequest r = request("lenet5", {of_samples(4)});
  const SimulatedCase result = simulate_case(r, r.cases.front());
  const std::string svg = to_svg(r, {result});
  EXPECT_EQ(xml_fault(svg), "");
  EXPECT_EQ(count(svg, "<g><title>"), 1 + 4 + r.network.layers.size() + 1);
  for (const char* label : {"training step", "forward", "loss", "backward", "update", "conv1", "fc3", "no layer"})
    EXPECT_EQ(count(svg, "<title>" + std::string(label) + ": "), 1u) << label;
  EXPECT_THAT(svg, AllOf(HasSubstr(">exposed communication</text>"), HasSubstr(">kernels of update</text>"),
                         HasSubstr(">copies and sums</text>"), HasSubstr(">n4</text>"), Not(HasSubstr("infeasible"))));
  // The parts of the bar of the step are all of its time.
  double sum = result.step.exposed_communication;
  for (const model::RankTime& phase : result.step.phases) sum += phase.kernels;
  EXPECT_NEAR(sum, result.step.seconds, 1e-6 * result.step.seconds);
}

TEST(SimulationDrawing, SaysWhyASingleStepCannotRun) {
  SimulationRequest r = request("lenet5", {of_samples(1)});
  r.memory.limit = 1000;
  EXPECT_THAT(svg_of(r), AllOf(HasSubstr("infeasible: "), HasSubstr("conv1")));
  r.cases[0].strategy = std::nullopt;
  EXPECT_THAT(svg_of(r), AllOf(HasSubstr("infeasible: "), Not(HasSubstr("conv1:"))));
}

}  // namespace test_simulation_drawing
}  // namespace aloni::tools

#include <aloni/core/error.hpp>
#include <aloni/model/kernel.hpp>
#include <aloni/model/shipped_machines.hpp>
#include <aloni/nn/models.hpp>
#include <aloni/nn/network_plan.hpp>
#include <aloni/nn/plan/plan_step.hpp>
#include <aloni/tools/plan_summary.hpp>
#include <aloni/tools/quantity_text.hpp>
#include <aloni/tools/simulation.hpp>

#include <gmock/gmock.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

namespace aloni::tools {
namespace test_simulation {

using testing::AllOf;
using testing::HasSubstr;

SimulationRequest request(const std::string& model, const std::string& machine = "x86_server") {
  return {.model = model, .network = nn::make_model(model), .machine = model::find_machine(machine)};
}
SimulationCase on_ranks(int ranks, const std::string& split, Index batch = 64) {
  return {.ranks = ranks, .batch = batch, .strategy = nn::Strategy::uniform(nn::LayerSplit::parse(split))};
}
SimulatedCase simulated(const SimulationRequest& r, const SimulationCase& c) { return simulate_case(r, c); }

/// The request with these cases, and their results.
std::pair<SimulationRequest, std::vector<SimulatedCase>> sweep(SimulationRequest r, std::vector<SimulationCase> cases) {
  r.cases = std::move(cases);
  std::vector<SimulatedCase> results;
  for (const SimulationCase& c : r.cases) results.push_back(simulate_case(r, c));
  return {r, results};
}

std::size_t longest_line(const std::string& text) {
  std::istringstream lines(text);
  std::size_t longest = 0;
  for (std::string line; std::getline(lines, line);) longest = std::max(longest, line.size());
  return longest;
}

TEST(Simulation, HasTheMemoryOfThePlan) {
  const SimulatedCase result = simulated(request("lenet5"), on_ranks(4, "h2w2"));
  const PlanSummary plan = summarise({.model = "lenet5",
                                      .network = nn::make_model("lenet5"),
                                      .strategy = nn::Strategy::uniform(nn::LayerSplit::parse("h2w2")),
                                      .batch = 64,
                                      .ranks = 4});
  EXPECT_EQ(result.memory_bytes, plan.peak_bytes);
  EXPECT_EQ(result.separate_bytes, plan.memory.separate);
  EXPECT_EQ(result.reason, "");
}

TEST(Simulation, OfMicroBatchesHasTheMemoryOfOneAndASumOfGradients) {
  SimulationRequest r = request("lenet5");
  const SimulatedCase whole = simulated(r, on_ranks(2, "n2", 64)), small = simulated(r, on_ranks(2, "n2", 16));
  r.accumulate = 4;
  const SimulatedCase accumulated = simulated(r, on_ranks(2, "n2", 64));
  constexpr Index gradients = 61'706 * 4;
  EXPECT_NEAR(static_cast<double>(accumulated.memory_bytes - small.memory_bytes), gradients, 0.02 * gradients);
  EXPECT_LT(accumulated.memory_bytes, whole.memory_bytes);
  EXPECT_GT(accumulated.step.seconds, whole.step.seconds);
  EXPECT_LT(accumulated.step.seconds, 4 * small.step.seconds);
  SimulationCase automatic = on_ranks(2, "n2", 64);
  automatic.strategy = std::nullopt;
  EXPECT_LE(simulated(r, automatic).step.seconds, accumulated.step.seconds);
  const auto [one, result] = sweep(r, {on_ranks(2, "n2", 64)});
  EXPECT_THAT(to_text(one, result), HasSubstr("batch 64 in 4 micro-batches\n"));
  EXPECT_EQ(nlohmann::json::parse(to_json(one, result))["run"]["accumulate"], 4);
  EXPECT_EQ(nlohmann::json::parse(to_json(one, result))["batch"], 64);
}

TEST(Simulation, IsFasterWithMoreOfTheResourceThatLimits) {
  const SimulationRequest r = request("resnet18");
  const auto seconds = [&](const model::MachineFactors& factors) {
    SimulationCase c = on_ranks(64, "n64");
    c.factors = factors;
    return simulated(r, c).step.seconds;
  };
  const double before = seconds({});
  EXPECT_LT(seconds({.flops = 2}), before);
  EXPECT_LT(seconds({.memory_bandwidth = 2}), before);
  EXPECT_DOUBLE_EQ(seconds({.link_bandwidth = 2}), before);  // one node
  EXPECT_GT(seconds({.flops = 0.5}), before);
}

TEST(Simulation, HasThePlacementOfRanks) {
  SimulationRequest r = request("mesh1k");
  r.network = nn::make_model("mesh1k", {.input = views::make_extents(1, {512, 512}, 18)});
  r.machine.ranks_per_node = 4;
  r.machine.links[static_cast<std::size_t>(model::LinkKind::between_nodes)] = {1e-6, 1e-8, 1e-7};
  // A job with ranks that are dealt to nodes one by one.
  for (int i = 0; i < 16; ++i) r.machine.planning.nodes.push_back(i % 4);
  r.cases = {{.ranks = 16, .batch = 4}};
  const SimulatedCase chosen = simulate_case(r, r.cases.front());
  ASSERT_EQ(chosen.rank_of.size(), 16U) << chosen.placement_reason;
  const auto json = nlohmann::json::parse(to_json(r, {chosen}));
  EXPECT_EQ(json["placement"]["rank_of"], chosen.rank_of);
  EXPECT_EQ(json["placement"]["node_of_rank"], description_of(r.machine, 16, chosen.rank_of).nodes);
  EXPECT_THAT(to_text(r, {chosen}), AllOf(HasSubstr("placement  placed: "), HasSubstr("limits     by x86_server:")));
  EXPECT_LE(longest_line(to_text(r, {chosen})), 100U);

  const SimulatedCase given = simulate_case(r, on_ranks(16, "n4h2w2", 4));
  EXPECT_TRUE(given.rank_of.empty());
  EXPECT_EQ(given.placement_reason, "in order: the strategy is given");
  EXPECT_LT(chosen.step.seconds, given.step.seconds);
}

TEST(Simulation, OfAShareOfANodeDoesNotShareItsMemoryWithAbsentRanks) {
  const SimulationRequest r = request("resnet18");
  EXPECT_LT(simulated(r, on_ranks(1, "1", 1)).step.seconds, simulated(r, on_ranks(64, "n64", 64)).step.seconds);
}

TEST(Simulation, SaysWhichRankAndNodeNeedTooMuchMemory) {
  SimulationRequest r = request("resnet18");
  r.memory.limit = 1 << 20;
  const SimulatedCase result = simulated(r, on_ranks(2, "n2"));
  EXPECT_GT(result.step.seconds, 0);
  EXPECT_THAT(result.reason, AllOf(HasSubstr("rank 0 needs "), HasSubstr(bytes_text(result.memory_bytes)),
                                   HasSubstr("more than its 1024.0 KiB"), HasSubstr("\""),
                                   HasSubstr("ranks was found that would do"), HasSubstr("Recomputation \"auto\"")));
  r.memory.limit = result.memory_bytes * 4 / 5;
  EXPECT_THAT(simulated(r, on_ranks(2, "n2")).reason, HasSubstr("4 ranks would do (with 2 times the blocks"));
  r.cases = {on_ranks(2, "n2")};
  EXPECT_LE(longest_line(to_text(r, {result})), 100U);
}

TEST(Simulation, TakesTheMemoryOfTheMachineAsTheLimitAndZeroAsNone) {
  SimulationRequest r = request("resnet18");
  r.machine.memory_bytes = 1e6;
  EXPECT_NE(simulated(r, on_ranks(2, "n2")).reason, "");
  r.machine.memory_bytes = 0;
  EXPECT_EQ(simulated(r, on_ranks(2, "n2")).reason, "");
}

TEST(Simulation, RecomputesToFitIntoTheMemoryOrAsMuchAsItCan) {
  SimulationRequest r = request("resnet18");
  const SimulatedCase before = simulated(r, on_ranks(1, "1"));
  r.memory.recompute = "auto";
  r.memory.limit = before.memory_bytes * 9 / 10;
  const SimulatedCase fitting = simulated(r, on_ranks(1, "1"));
  EXPECT_EQ(fitting.reason, "");
  EXPECT_LE(fitting.memory_bytes, *r.memory.limit);
  EXPECT_GT(fitting.step.seconds, before.step.seconds);
  r.memory.limit = 1 << 20;
  const SimulatedCase least = simulated(r, on_ranks(1, "1"));
  EXPECT_NE(least.reason, "");
  EXPECT_LT(least.memory_bytes, fitting.memory_bytes);
}

TEST(Simulation, ChoosesAStrategyThatIsNotSlowerThanOneGrid) {
  const SimulationRequest r = request("lenet5");
  SimulationCase automatic{.ranks = 4, .batch = 64};
  const SimulatedCase chosen = simulated(r, automatic);
  EXPECT_EQ(chosen.strategy, "auto");
  for (const char* grid : {"n4", "h4", "h2w2", "n2h2"})
    EXPECT_LE(chosen.step.seconds, simulated(r, on_ranks(4, grid)).step.seconds * (1 + 1e-9)) << grid;
}

TEST(Simulation, SaysThatRanksRepeatBlocksForWantOfAGrid) {
  SimulationRequest r = request("lenet5");
  r.cases = {{.ranks = 1009, .batch = 64}};
  const std::vector<SimulatedCase> results{simulated(r, r.cases[0])};
  const std::string text = to_text(r, results);
  EXPECT_THAT(text, HasSubstr("repeats    12 of 12 layers"));
  EXPECT_LE(longest_line(text), 100U);
  EXPECT_EQ(nlohmann::json::parse(to_json(r, results))["repeats_reason"], results[0].repeats_reason);
}

TEST(Simulation, OfInferenceHasNoBackwardPass) {
  SimulationRequest r = request("lenet5");
  const SimulationCase automatic{.ranks = 2, .batch = 4};
  const SimulatedCase training = simulated(r, automatic);
  r.objective = model::Objective::inference_latency;
  r.timeline = true;
  const auto [inference, results] = sweep(r, {automatic});
  const SimulatedCase& latency = results.front();
  EXPECT_EQ(latency.batch, 4);
  EXPECT_LT(latency.step.seconds, 0.8 * training.step.seconds);
  EXPECT_LT(latency.memory_bytes, training.memory_bytes);
  const auto json = nlohmann::json::parse(to_json(inference, results));
  EXPECT_EQ(json["backward_seconds"], 0.0);
  EXPECT_EQ(json["update_seconds"], 0.0);
  EXPECT_EQ(json["run"]["objective"], "latency");
  EXPECT_FALSE(json.contains("requested_batch"));
  EXPECT_THAT(to_text(inference, results),
              AllOf(HasSubstr("in one inference step"), testing::Not(HasSubstr("phases"))));
  EXPECT_THAT(trace_text(inference, automatic, latency), testing::Not(HasSubstr("backward")));
}

TEST(Simulation, SaysWhichMiniBatchHasMostThroughput) {
  SimulationRequest r = request("lenet5");
  const SimulationCase automatic{.ranks = 2, .batch = 2};
  r.objective = model::Objective::inference_latency;
  const double slower = 2 / simulated(r, automatic).step.seconds;
  r.objective = model::Objective::throughput;
  const auto [request, results] = sweep(r, {automatic});
  const Index batch = results.front().batch;
  EXPECT_GT(batch, 2);
  EXPECT_EQ(batch % 2, 0);
  const auto json = nlohmann::json::parse(to_json(request, results));
  EXPECT_EQ(json["batch"], batch);
  EXPECT_EQ(json["requested_batch"], 2);
  EXPECT_GT(json["samples_per_second"], slower);
  EXPECT_DOUBLE_EQ(json["samples_per_second"], static_cast<double>(batch) / json["step_seconds"].get<double>());
  EXPECT_THAT(to_text(request, results),
              HasSubstr("batch " + std::to_string(batch) + " (" + std::to_string(batch / 2) + " x --batch 2)\n"));
  const auto [both, several] = sweep(r, {automatic, {.ranks = 4, .batch = 4}});
  EXPECT_THAT(to_text(both, several), AllOf(HasSubstr(" " + std::to_string(batch) + " "),
                                            HasSubstr("batch: the mini-batch with most samples per second")));
}

TEST(Simulation, SaysThatNoStrategyFitsIntoTheMemory) {
  SimulationRequest r = request("lenet5");
  r.memory.limit = 64 << 10;
  r.cases = {{.ranks = 2, .batch = 4}};
  const std::vector<SimulatedCase> results{simulated(r, r.cases[0])};
  EXPECT_FALSE(results[0].was_simulated());
  EXPECT_THAT(results[0].reason, AllOf(HasSubstr("65536 bytes"), HasSubstr("at least ")));
  EXPECT_THAT(to_text(r, results), HasSubstr("infeasible 65536 bytes"));
  const auto json = nlohmann::json::parse(to_json(r, results));
  EXPECT_TRUE(json["step_seconds"].is_null());
  EXPECT_EQ(json["feasible"], false);
  EXPECT_EQ(json["reason"], results[0].reason);
  r.cases.push_back(on_ranks(2, "n2", 4));
  EXPECT_THAT(to_text(r, {results[0], simulated(r, r.cases[1])}),
              AllOf(HasSubstr("- *"), HasSubstr("* needs more than the 64.0 KiB of a rank")));
}

/// test_traffic of nn compares these counts with real steps.
TEST(Simulation, ListsTheMessagesBetweenFewRanks) {
  SimulationRequest r = request("lenet5");
  r.messages = true;
  const auto messages_of = [&](const SimulationCase& which) {
    const auto [given, results] = sweep(r, {which});
    return nlohmann::json::parse(to_json(given, results))["messages"];
  };
  EXPECT_EQ(messages_of(on_ranks(4, "n4")), nlohmann::json::array()) << "no transfers, only sums of gradients";
  const auto once = messages_of(on_ranks(4, "h4", 8));
  const auto net = nn::make_model("lenet5");
  const auto splits = nn::resolve(nn::Strategy::uniform(nn::LayerSplit::parse("h4")), net, 4);
  const nn::NetworkPlan layers = nn::plan_network(net, splits, 4, 8);
  const MachineDescription machine = model::description_of(r.machine, 4);
  Index bytes = 0, planned = 0;
  for (int rank = 0; rank < 4; ++rank)
    for (const nn::PeerMessages& m :
         nn::messages_by_peer(nn::plan_step(net, layers, rank, nn::StepKind::training, machine), machine)) {
      const auto found =
          std::ranges::find_if(once, [&](const auto& json) { return json["from"] == m.peer && json["to"] == rank; });
      ASSERT_NE(found, once.end()) << "from " << m.peer << " to " << rank;
      EXPECT_EQ((*found)["messages"], m.messages_received);
      EXPECT_EQ((*found)["bytes"], m.bytes_received);
      planned += m.bytes_received;
    }
  for (const auto& json : once) bytes += json["bytes"].get<Index>();
  EXPECT_EQ(bytes, planned);
  EXPECT_GT(bytes, 0);
  r.accumulate = 2;
  const auto twice = messages_of(on_ranks(4, "h4", 16));
  ASSERT_EQ(twice.size(), once.size());
  for (std::size_t i = 0; i < once.size(); ++i)
    EXPECT_EQ(twice[i]["messages"], 2 * once[i]["messages"].get<Index>()) << "two micro-batches of 8 samples";
  r.accumulate = 1;
  EXPECT_TRUE(messages_of(on_ranks(9, "n9")).is_null()) << "too many ranks for a list";
}

TEST(Simulation, RefusesMoreRanksThanTheMachineHasAndGridsOfOtherSizes) {
  EXPECT_THROW(simulated(request("lenet5", "lassen"), on_ranks(2601, "n2601")), InvalidArgument);
  EXPECT_THROW(simulated(request("lenet5"), on_ranks(4, "h3")), InvalidArgument);
}

TEST(Simulation, WritesTheFieldsOfACaseAtTheTopIfItIsTheOnlyOne) {
  const auto [r, results] = sweep(request("lenet5"), {on_ranks(2, "h2")});
  const auto json = nlohmann::ordered_json::parse(to_json(r, results));
  std::vector<std::string> names;
  for (const auto& [name, value] : json.items()) names.push_back(name);
  EXPECT_THAT(names, testing::ElementsAre("ranks", "batch", "strategy", "flops_factor", "memory_bandwidth_factor",
                                          "link_bandwidth_factor", "step_seconds", "forward_seconds",
                                          "backward_seconds", "update_seconds", "exposed_communication_seconds",
                                          "samples_per_second", "memory_bytes_per_rank", "separate_bytes_per_rank",
                                          "feasible", "reason", "savings_reason", "repeats_reason", "placement",
                                          "limits", "kernel_sources", "kernel_error", "sum_sources", "transfer_sources",
                                          "layers", "messages", "cases", "run"));
  for (const char* of : {"sum_sources", "transfer_sources"})
    EXPECT_EQ(json[of], (nlohmann::ordered_json{{"fit", 0.0}, {"measured", 0.0}, {"links", 1.0}})) << of;
  EXPECT_EQ(json["cases"].size(), 1U);
  EXPECT_EQ(json["cases"][0]["step_seconds"], json["step_seconds"]);
  EXPECT_EQ(json["step_seconds"], results[0].step.seconds);
  EXPECT_EQ(json["memory_bytes_per_rank"], results[0].memory_bytes);
  EXPECT_EQ(json["feasible"], true);
  EXPECT_EQ(json["layers"].size(), 12U);
  EXPECT_EQ(json["layers"][0]["grid"], "h2");
  EXPECT_EQ(json["run"]["machine"], "x86_server");
  const auto [all, several] = sweep(request("lenet5"), {on_ranks(1, "1"), on_ranks(2, "h2")});
  const auto of_several = nlohmann::json::parse(to_json(all, several));
  EXPECT_FALSE(of_several.contains("step_seconds"));
  EXPECT_EQ(of_several["cases"][1]["step_seconds"], json["step_seconds"]);
}

/// A table with the kernels of a layer on one rank: 1 s each, with a spread of 2 %.
model::KernelTable table_of(const SimulationRequest& r, const std::string& layer, Index batch) {
  const auto splits = nn::resolve(nn::Strategy::uniform(nn::LayerSplit()), r.network, 1);
  const MachineDescription machine = description_of(r.machine, 1);
  const nn::StepPlan plan =
      nn::plan_step(r.network, nn::plan_network(r.network, splits, 1, batch), 0, nn::StepKind::training, machine);
  model::KernelTable table{.ranks_per_node = 1, .threads_per_rank = r.machine.threads_per_rank};
  for (const nn::PlanNode& node : plan.nodes)
    if (node.kind() == nn::NodeKind::kernel && node.layer == find_layer(r.network, layer))
      table.times[model::kernel_of(plan, node).key] = {1, 0.02, 10};
  return table;
}

TEST(Simulation, SaysHowSureTheTimesOfKernelsAre) {
  SimulationRequest r = request("lenet5");
  const SimulationCase one = on_ranks(1, "1", 8);
  const auto [rough, of_rough] = sweep(r, {one});
  const auto unknown = nlohmann::json::parse(to_json(rough, of_rough));
  EXPECT_TRUE(unknown["kernel_error"].is_null()) << "a roofline has no known error";
  EXPECT_EQ(unknown["kernel_sources"]["roofline"], 1.0);
  EXPECT_EQ(unknown["layers"][0]["kernel_source"], "roofline");
  EXPECT_EQ(unknown["layers"][0]["kernel_source_share"], 1.0);
  EXPECT_TRUE(unknown["layers"][0]["kernel_error"].is_null());
  EXPECT_THAT(
      to_text(rough, of_rough),
      HasSubstr("kernels    100 % roofline\n           expected error not known: no time is measured or learned\n"));

  r.machine.kernels = {table_of(r, "conv1", 8)};
  const auto [measured, of_measured] = sweep(r, {one});
  const auto known = nlohmann::json::parse(to_json(measured, of_measured));
  EXPECT_DOUBLE_EQ(known["kernel_error"], 0.02);
  EXPECT_LT(known["kernel_sources"]["measured"], 1.0);
  EXPECT_EQ(known["layers"][0]["kernel_source"], "measured");
  EXPECT_DOUBLE_EQ(known["layers"][0]["kernel_error"], 0.02);
  EXPECT_EQ(known["layers"][3]["name"], "conv2");
  EXPECT_EQ(known["layers"][3]["kernel_source"], "roofline");
  EXPECT_TRUE(known["layers"][3]["kernel_error"].is_null());
  EXPECT_THAT(
      to_text(measured, of_measured),
      AllOf(HasSubstr("measured 2.0 %"), HasSubstr("0 % roofline\n           expected error 2.0 % of measured and "
                                                   "learned times; not known for the roofline\n")));
}

TEST(Simulation, PrintsAtMostAHundredColumns) {
  const auto [one, result] = sweep(request("resnet50", "lassen"), {on_ranks(128, "n32h2w2", 1024)});
  EXPECT_LE(longest_line(to_text(one, result)), 100U);
  std::vector<SimulationCase> cases{on_ranks(4, "n4"), on_ranks(128, "n32h2w2", 1024)};
  cases[1].factors = {2.5, 0.25, 1.5};
  const auto [several, results] = sweep(request("lenet5", "lassen"), cases);
  const std::string text = to_text(several, results);
  EXPECT_LE(longest_line(text), 100U);
  for (const char* heading : {"x flops", "x memory", "x links", "samples/s"}) EXPECT_THAT(text, HasSubstr(heading));
  SimulationRequest varied = several;
  varied.variation = {.straggler_sigma = 0.1, .draws = 2};
  const std::string with_means = to_text(varied, sweep(varied, cases).second);
  EXPECT_LE(longest_line(with_means), 100U);
  for (const char* heading : {"x links", "mean", "95 %", "exposed"}) EXPECT_THAT(with_means, HasSubstr(heading));
}

TEST(Simulation, ShowsFactorsOnlyWhereTheyDiffer) {
  const auto [r, results] = sweep(request("lenet5"), {on_ranks(1, "1"), on_ranks(2, "n2")});
  EXPECT_THAT(to_text(r, results), AllOf(testing::Not(HasSubstr("x ")), HasSubstr("backward")));
}

// One process for each rank that was walked; its slices fill the step as those of a timed one do.
TEST(Simulation, DrawsTheTimeLineOfEachWalkedRank) {
  SimulationRequest r = request("lenet5");
  EXPECT_TRUE(simulated(r, on_ranks(2, "h2")).traces.empty());
  r.timeline = true;
  const SimulationCase two = on_ranks(2, "h2");
  const SimulatedCase result = simulated(r, two);
  ASSERT_EQ(result.traces.size(), 2U);
  double communication = 0, kernels = 0;
  const Trace& slowest = result.traces[static_cast<std::size_t>(result.step.slowest_rank)];
  for (const TraceSlice& slice : slowest.slices) {
    const double seconds = 1e-9 * static_cast<double>(slice.end - slice.start);
    if (slowest.rows[static_cast<std::size_t>(slice.row)] == "compute") kernels += seconds;
    if (slowest.rows[static_cast<std::size_t>(slice.row)] == "communication") communication += seconds;
  }
  EXPECT_NEAR(communication, result.step.exposed_communication, 1e-6);
  EXPECT_NEAR(kernels + communication, result.step.seconds, 0.01 * result.step.seconds);
  const auto json = nlohmann::json::parse(trace_text(r, two, result));
  EXPECT_EQ(json["otherData"]["machine"], "x86_server");
  double earliest = 1;
  std::vector<std::string> names;
  for (const auto& event : json["traceEvents"]) {
    if (event["ph"] == "X") earliest = std::min(earliest, event["ts"].get<double>());
    if (event["ph"] == "X") names.push_back(event["name"]);
  }
  EXPECT_EQ(earliest, 0);
  EXPECT_THAT(names, testing::IsSupersetOf({"step", "forward conv1", "backward conv2: filters"}));
  const SimulatedCase many = simulated(r, on_ranks(64, "n64"));
  ASSERT_LT(many.traces.size(), 64U);
  EXPECT_THAT(many.traces[0].name, HasSubstr(" like it"));
}

}  // namespace test_simulation
}  // namespace aloni::tools

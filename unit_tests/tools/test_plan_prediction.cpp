#include <aloni/core/error.hpp>
#include <aloni/model/kernel_times.hpp>
#include <aloni/model/shipped_machines.hpp>
#include <aloni/nn/models.hpp>
#include <aloni/tools/placement_text.hpp>
#include <aloni/tools/plan_prediction.hpp>
#include <aloni/tools/plan_summary.hpp>

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>

namespace aloni::tools {
namespace test_plan_prediction {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

PlanRequest request(const std::string& model, const std::string& split, const model::Machine& machine, int ranks) {
  PlanRequest r{.model = model,
                .network = nn::make_model(model),
                .strategy = nn::Strategy::uniform(nn::LayerSplit::parse(split)),
                .batch = 64,
                .ranks = ranks};
  r.ranks_per_node = machine.ranks_per_node;
  r.machine = description_of(machine, ranks);
  return r;
}

/// Conv1 and its followers split by height, the others by sample: values move between them.
nn::Strategy mixed() { return nn::Strategy::parse("*1 h4\n* n4\n", "mixed"); }

PlanSummary predicted(PlanRequest& r, const model::Machine& machine, bool chooses) {
  std::optional<PlanChoice> choice;
  if (chooses) choice = choose(r, machine);
  PlanSummary summary = summarise(r);
  summary.prediction = predict(r, summary, machine, choice);
  return summary;
}

TEST(PlanPrediction, AddsUpToTheStep) {
  const model::Machine machine = model::find_machine("x86_server");
  PlanRequest r = request("lenet5", "h4", machine, 4);
  const PlanPrediction p = *predicted(r, machine, false).prediction;
  ASSERT_EQ(p.layers.size(), 13U);
  double sum = 0;
  for (const PredictedTime& layer : p.layers) sum += layer.seconds();
  EXPECT_DOUBLE_EQ(sum, p.total.seconds());
  EXPECT_NEAR(sum, p.step_seconds, 0.01 * p.step_seconds);
  EXPECT_GT(p.total.exposed, 0);
}

/// A step of one rank, chosen for less memory than it takes otherwise.
struct Limited {
  PlanRequest r;
  Index limit;  ///< four fifths of the peak without one
  PlanSummary summary;

  explicit Limited(const model::Machine& machine)
      : r(request("resnet18", "n1", machine, 1)), limit(summarise(r).peak_bytes * 4 / 5) {
    r.memory.limit = limit;
    summary = predicted(r, machine, true);
  }
};

TEST(PlanPrediction, AChosenRecomputationIsPlanned) {
  const auto [r, limit, summary] = Limited(model::find_machine("x86_server"));
  EXPECT_EQ(r.memory.recompute, "auto");
  EXPECT_FALSE(summary.savings.recomputation.blocks.empty());
  EXPECT_LE(summary.peak_bytes, *r.memory.limit);
}

TEST(PlanPrediction, AChosenOffloadingIsPlanned) {
  const auto [r, limit, summary] = Limited(model::find_machine("lassen"));
  EXPECT_EQ(r.memory.offload, "auto");
  EXPECT_GT(summary.savings.moved_bytes, 0);
  EXPECT_LE(summary.peak_bytes, limit);
  EXPECT_EQ(r.memory.limit, limit);
  const std::string text = to_text(r, summary);
  EXPECT_THAT(text, AllOf(HasSubstr("savings    "), HasSubstr("layers leave for host memory (")));
  EXPECT_EQ(nlohmann::json::parse(to_json(r, summary))["savings_reason"], summary.prediction->savings_reason);
}

TEST(PlanPrediction, TellsHalosFromRedistributionsAndSums) {
  const model::Machine machine = model::find_machine("x86_server");
  const auto total_of = [&](const std::string& split, const std::optional<nn::Strategy>& strategy) {
    PlanRequest r = request("lenet5", split, machine, 4);
    if (strategy) r.strategy = *strategy;
    return predicted(r, machine, false).prediction->total.communication;
  };
  const auto samples = total_of("n4", {}), height = total_of("h4", {}), both = total_of("h4", mixed());
  const auto filters = total_of("f4", {}), channels = total_of("c4", {});
  EXPECT_EQ(samples.halos, 0);
  EXPECT_EQ(samples.redistributions, 0);
  EXPECT_GT(samples.sums, 0);  // of gradients
  EXPECT_GT(height.halos, 0);
  EXPECT_GT(both.halos, 0);
  EXPECT_GT(both.redistributions, height.redistributions);
  EXPECT_GT(channels.sums, 0);  // partial sums of outputs
  EXPECT_GT(filters.sums + filters.halos, 0);
}

TEST(PlanPrediction, NamesTheRunnerUpAndWhyItLostOnlyWhereTheModelChose) {
  const model::Machine machine = model::find_machine("lassen");
  PlanRequest given = request("lenet5", "n4", machine, 4), chosen = given;
  const PlanSummary of_given = predicted(given, machine, false), of_chosen = predicted(chosen, machine, true);
  EXPECT_LE(of_chosen.prediction->step_seconds, of_given.prediction->step_seconds);
  EXPECT_THAT(to_text(given, of_given), AllOf(HasSubstr("on machine lassen"), Not(HasSubstr("why it lost"))));
  EXPECT_EQ(of_given.prediction->reasons[0].text, "given: n4");
  const std::string text = to_text(chosen, of_chosen);
  EXPECT_THAT(text, AllOf(HasSubstr("why it lost"), HasSubstr("with the best grid for all layers")));
  for (const SplitReason& reason : of_chosen.prediction->reasons) EXPECT_THAT(text, HasSubstr(reason.text));
  const SplitReason& first = of_chosen.prediction->reasons[0];
  ASSERT_TRUE(first.runner_up);
  EXPECT_THAT(first.text, HasSubstr(*first.runner_up));
}

TEST(PlanPrediction, HasTheSameFiguresInJson) {
  const model::Machine machine = model::find_machine("lassen");
  PlanRequest r = request("lenet5", "n4", machine, 4);
  PlanSummary summary = predicted(r, machine, true);
  auto json = nlohmann::json::parse(to_json(r, summary));
  const PlanPrediction& p = *summary.prediction;
  EXPECT_EQ(json["step_seconds"], p.step_seconds);
  EXPECT_EQ(json["run"]["machine"], "lassen");
  EXPECT_EQ(json["feasible"], true);
  for (std::size_t i = 0; i < p.reasons.size(); ++i) {
    const auto& layer = json["layers"][i];
    EXPECT_EQ(layer["split"], layer["grid"]);
    EXPECT_EQ(layer["seconds"], layer["compute_seconds"].get<double>() + layer["exposed_seconds"].get<double>());
    EXPECT_EQ(layer["halo_seconds"], p.layers[i].communication.halos);
    EXPECT_EQ(layer["redistribution_seconds"], p.layers[i].communication.redistributions);
    EXPECT_EQ(layer["collective_seconds"], p.layers[i].communication.sums);
    EXPECT_EQ(layer["reason"], p.reasons[i].text);
    EXPECT_EQ(layer["runner_up"].is_null(), !p.reasons[i].runner_up);
  }
  summary.prediction.reset();
  json = nlohmann::json::parse(to_json(r, summary));
  EXPECT_FALSE(json.contains("step_seconds"));
  EXPECT_FALSE(json["layers"][0].contains("seconds"));
}

TEST(PlanPrediction, HasTheSourcesOfItsTimes) {
  model::Machine machine = model::find_machine("lassen");
  PlanRequest r = request("lenet5", "n4", machine, 4);
  PlanSummary summary = predicted(r, machine, false);
  PlanPrediction& p = *summary.prediction;
  ASSERT_EQ(p.sources.kernels.size(), p.layers.size());
  for (std::size_t i = 0; i < p.layers.size(); ++i)
    EXPECT_NEAR(p.sources.kernels[i].sum(), p.layers[i].compute, 1e-12) << i;
  EXPECT_THAT(to_text(r, summary),
              AllOf(HasSubstr("kernels    100 % roofline\n"), HasSubstr("sums       100 % links\n")));
  const auto rough = nlohmann::json::parse(to_json(r, summary));
  EXPECT_EQ(rough["kernel_sources"]["roofline"], 1.0);
  EXPECT_EQ(rough["sum_sources"]["links"], 1.0);
  EXPECT_TRUE(rough["kernel_error"].is_null());
  EXPECT_TRUE(rough["layers"][0]["kernel_error"].is_null());
  p.sources.kernels[0] = {};
  p.sources.kernels[0].add(1, {1, model::KernelSource::learned, 0.25});
  const auto learned = nlohmann::json::parse(to_json(r, summary));
  EXPECT_EQ(learned["kernel_error"], 0.25);
  EXPECT_EQ(learned["layers"][0]["kernel_source"], "learned");
  EXPECT_EQ(learned["layers"][0]["kernel_source_share"], 1.0);
  EXPECT_EQ(learned["layers"][0]["kernel_error"], 0.25);
  EXPECT_EQ(learned["layers"][3]["kernel_source"], "roofline");
  EXPECT_THAT(to_text(r, summary), AllOf(HasSubstr("conv1     learned 25.0 %  "), HasSubstr("conv2     roofline  ")));
}

TEST(PlanPrediction, PlansAnInferenceStepForLatencyAndThroughput) {
  const model::Machine machine = model::find_machine("x86_server");
  PlanRequest training = request("lenet5", "n2", machine, 2);
  training.batch = 2;
  PlanRequest latency = training, throughput = training;
  latency.objective = model::Objective::inference_latency;
  throughput.objective = model::Objective::throughput;
  const PlanSummary of_training = predicted(training, machine, true);
  const PlanSummary of_latency = predicted(latency, machine, true),
                    of_throughput = predicted(throughput, machine, true);
  EXPECT_LT(of_latency.flops, 0.5 * of_training.flops);
  EXPECT_LT(of_latency.peak_bytes, of_training.peak_bytes);
  EXPECT_EQ(of_latency.gradient_bytes, 0);
  EXPECT_LT(of_latency.prediction->step_seconds, of_training.prediction->step_seconds);
  EXPECT_EQ(latency.batch, 2);
  EXPECT_THAT(to_text(latency, of_latency), HasSubstr("in one inference step"));
  EXPECT_EQ(nlohmann::json::parse(to_json(latency, of_latency))["run"]["objective"], "latency");

  EXPECT_GT(throughput.batch, 2);
  EXPECT_EQ(throughput.requested_batch, 2);
  EXPECT_GT(static_cast<double>(throughput.batch) / of_throughput.prediction->step_seconds,
            2 / of_latency.prediction->step_seconds);
  EXPECT_THAT(heading(throughput, of_throughput), testing::EndsWith(" x --batch 2)"));
  const auto json = nlohmann::json::parse(to_json(throughput, of_throughput));
  EXPECT_EQ(json["run"]["batch"], throughput.batch);
  EXPECT_EQ(json["run"]["requested_batch"], 2);
}

TEST(PlanPrediction, ListsTheSplitsThatTheSearchHasRejected) {
  const model::Machine machine = model::find_machine("lassen");
  PlanRequest chosen = request("lenet5", "n16", machine, 16), given = chosen;
  chosen.batch = given.batch = 4;
  const auto json = nlohmann::json::parse(to_json(chosen, predicted(chosen, machine, true)));
  EXPECT_EQ(json["candidates"].size(), json["rejected"].size());
  const auto& conv2 = json["layers"][3];
  ASSERT_EQ(conv2["name"], "conv2");
  EXPECT_EQ(conv2["rejected"], conv2["candidates"]);
  const auto& candidates = json["candidates"].at(conv2["candidates"].get<std::size_t>());
  EXPECT_THAT(candidates, testing::Contains(conv2["split"]));
  const nlohmann::json too_many{{"split", "n16"}, {"reason", "16 blocks of samples are more than 4 samples"}};
  EXPECT_THAT(json["rejected"].at(conv2["rejected"].get<std::size_t>()), testing::Contains(too_many));
  const auto& relu2 = json["layers"][4];
  EXPECT_TRUE(relu2["rejected"].is_null()) << "it has the candidates of conv2";
  EXPECT_THAT(json["candidates"].at(relu2["candidates"].get<std::size_t>()), testing::Contains(relu2["split"]));
  given.strategy = nn::Strategy::uniform(nn::LayerSplit::parse("n4h4"));
  const auto without = nlohmann::json::parse(to_json(given, predicted(given, machine, false)));
  EXPECT_FALSE(without.contains("rejected"));
  EXPECT_FALSE(without["layers"][0].contains("rejected"));
}

/// Nodes of four ranks. A byte between nodes takes far longer than one within a node.
model::Machine slow_network() {
  model::Machine machine = model::find_machine("x86_server");
  machine.ranks_per_node = 4;
  machine.links[static_cast<std::size_t>(model::LinkKind::between_nodes)] = {1e-6, 1e-8, 1e-7};
  return machine;
}

nn::NetworkDescription plane() {
  const nn::Window window = nn::square_window(2, 3, 1, 1);
  return {.spatial_rank = 2,
          .input = views::make_extents(1, {256, 256}, 4),
          .layers = {{"a", nn::Convolution{4, window}, {"input"}}, {"b", nn::Convolution{4, window}, {"a"}}},
          .loss = nn::Loss::mean_squared_error};
}

TEST(PlanPrediction, PlansTheRanksThatTheSearchHasPlaced) {
  const model::Machine machine = slow_network();
  PlanRequest r = request("lenet5", "1", machine, 16);
  r.network = plane();
  r.batch = 1;
  const PlanSummary summary = predicted(r, machine, true);
  const PlanPrediction& p = *summary.prediction;
  ASSERT_EQ(p.rank_of.size(), 16U) << p.placement_reason;
  EXPECT_EQ(r.machine->nodes, description_of(machine, 16, p.rank_of).nodes);
  const auto json = nlohmann::json::parse(to_json(r, summary));
  EXPECT_EQ(json["placement"]["rank_of"], p.rank_of);
  EXPECT_EQ(json["placement"]["node_of_rank"], r.machine->nodes);
  EXPECT_EQ(json["placement"]["reason"], p.placement_reason);
  EXPECT_THAT(to_text(r, summary), AllOf(HasSubstr("placement  placed: "), HasSubstr("node 0: ranks 0 ")));

  PlanRequest given = request("lenet5", "h4w4", machine, 16);
  given.network = plane();
  const PlanSummary in_order = predicted(given, machine, false);
  EXPECT_TRUE(in_order.prediction->rank_of.empty());
  EXPECT_EQ(in_order.prediction->placement_reason, "in order: the strategy is given");
}

TEST(PlanPrediction, SaysHowGhostsTravel) {
  EXPECT_EQ(transfers_text(2048, 0, 2, 1),
            "copies     ranks of a node copy ghosts of 2048 B or more, and send shorter ones to each other\n");
  EXPECT_EQ(transfers_text(0, 4096, 2, 2), "copies     ranks of a node copy all ghosts from each other's memory\n");
  EXPECT_EQ(transfers_text(0, 4096, 1, 1), "");
  const std::string sent = "copies     ranks of a node send all ghosts to each other\n";
  const auto between_nodes = [](Index below) { return transfers_text(unlimited_bytes, below, 4, 2); };
  EXPECT_EQ(between_nodes(0), sent + "messages   from a node to another stay separate\n");
  EXPECT_EQ(between_nodes(2048), sent +
                                     "messages   from a node to another are joined into one if their mean is below "
                                     "2048 B\n");
  EXPECT_EQ(between_nodes(unlimited_bytes), sent + "messages   from a node to another are joined into one\n");
}

TEST(PlanPrediction, SaysWhoDecidedTheLimits) {
  model::Machine machine = slow_network();
  machine.name = "x86";
  machine.ranks_per_node = 1;
  machine.links[static_cast<std::size_t>(model::LinkKind::between_nodes)] = {1e-2, 1e-12, 0};
  PlanRequest chosen = request("resnet18", "n4", machine, 4), given = chosen, without = chosen;
  const PlanSummary of_chosen = predicted(chosen, machine, true), of_given = predicted(given, machine, false);
  const PlanPrediction& p = *of_chosen.prediction;
  EXPECT_GT(p.limits.bucket_bytes, machine.planning.bucket_bytes) << p.limits.reason;  // the latency is high
  EXPECT_EQ(chosen.machine->bucket_bytes, p.limits.bucket_bytes);
  EXPECT_THAT(to_text(chosen, of_chosen), HasSubstr("limits     by "));
  EXPECT_THAT(to_text(chosen, of_chosen), HasSubstr("copies     ranks of a node copy ghosts of 16.0 KiB or more"));
  EXPECT_EQ(nlohmann::json::parse(to_json(chosen, of_chosen))["limits"]["direct_bytes"], default_direct_bytes);
  EXPECT_EQ(nlohmann::json::parse(to_json(chosen, of_chosen))["limits"]["consolidate_below"],
            default_consolidate_below);
  EXPECT_EQ(nlohmann::json::parse(to_json(chosen, of_chosen))["limits"]["bucket_bytes"], p.limits.bucket_bytes);
  EXPECT_EQ(of_given.prediction->limits.bucket_bytes, machine.planning.bucket_bytes);
  EXPECT_THAT(to_text(given, of_given), HasSubstr("limits     by x86: those of its file"));
  EXPECT_THAT(to_text(without, summarise(without)), HasSubstr("limits     constants, no machine"));
}

TEST(PlanPrediction, SaysThatTheMachineHasTooLittleMemory) {
  model::Machine machine = model::find_machine("lassen");
  machine.memory_bytes = 1e6;
  PlanRequest r = request("lenet5", "n4", machine, 4);
  const PlanSummary summary = predicted(r, machine, false);
  EXPECT_FALSE(summary.prediction->feasible());
  EXPECT_THAT(to_text(r, summary), HasSubstr("infeasible"));
  machine.memory_bytes = 1000;
  machine.most_nodes = 1;  // the error looks for more ranks that would do
  EXPECT_THROW(predicted(r, machine, true), InvalidArgument);
}

TEST(PlanPrediction, FitsIntoAHundredColumns) {
  const model::Machine machine = model::find_machine("lassen");
  PlanRequest r = request("resnet18", "n8", machine, 8);
  const PlanSummary summary = predicted(r, machine, true);
  std::istringstream lines(to_text(*summary.prediction, r.network));
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100U) << line;
}

}  // namespace test_plan_prediction
}  // namespace aloni::tools

#include <aloni/core/error.hpp>
#include <aloni/nn/models.hpp>
#include <aloni/nn/plan/cost.hpp>
#include <aloni/nn/plan/plan_step.hpp>
#include <aloni/tools/memory_arguments.hpp>
#include <aloni/tools/plan_summary.hpp>

#include <gmock/gmock.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

namespace aloni::tools {
namespace test_plan_summary {

using testing::HasSubstr;

PlanRequest request(const std::string& split, int ranks, int ranks_per_node = 0) {
  return {.model = "lenet5",
          .network = nn::lenet5(views::make_extents(1, {28, 28}, 1), 10),
          .strategy = nn::Strategy::uniform(nn::LayerSplit::parse(split)),
          .batch = 64,
          .ranks = ranks,
          .ranks_per_node = ranks_per_node};
}

TEST(PlanSummary, OfOneRankSendsNothing) {
  const PlanSummary s = summarise(request("1", 1));
  EXPECT_EQ(s.parameters, 61706);
  EXPECT_EQ(s.bytes_sent, 0);
  EXPECT_EQ(s.messages, 0);
  ASSERT_EQ(s.layers.size(), 12u);
  EXPECT_EQ(s.layers[3].flops, 3 * 2.0 * 64 * 10 * 10 * 25 * 6 * 16);
  EXPECT_GT(s.memory.separate, s.peak_bytes);
  EXPECT_NE(s.peak_node, "");
}

TEST(PlanSummary, ShowsTheGhostsOfTheRankThatReadsMost) {
  const PlanSummary s = summarise(request("h4", 4));
  EXPECT_EQ(s.layers[0].owned, views::make_extents(64, {7, 28}, 1));
  EXPECT_EQ(s.layers[0].ghosted, views::make_extents(64, {11, 28}, 1));
  EXPECT_EQ(s.layers[0].halo_bytes, 64 * 4 * 28 * 4);  // two rows to each of two ranks
  EXPECT_EQ(s.layers[0].messages, 2);
  EXPECT_EQ(s.layers[0].grid, "h4");
  EXPECT_EQ(s.layers[0].operation, "convolution");
}

TEST(PlanSummary, CountsPackedMessagesBetweenNodes) {
  const PlanSummary together = summarise(request("h4", 4)), apart = summarise(request("h4", 4, 1));
  EXPECT_EQ(together.memory.of(nn::BufferRole::messages), 0);
  EXPECT_GT(apart.memory.of(nn::BufferRole::messages), 0);
  for (std::size_t i = 0; i < together.layers.size(); ++i)
    EXPECT_EQ(together.layers[i].halo_bytes, apart.layers[i].halo_bytes);
}

PlanRequest resnet_request(const std::string& split, int ranks) {
  PlanRequest r = request(split, ranks);
  r.model = "resnet18";
  r.network = nn::make_model("resnet18", views::make_extents(1, {32, 32}, 3), 10);
  return r;
}

TEST(PlanSummary, ShowsThePriceOfRecomputation) {
  const PlanRequest plain = resnet_request("h2", 2);
  PlanRequest limited = plain;
  limited.memory.recompute = "auto";
  const PlanSummary without = summarise(plain), least = summarise(limited);
  EXPECT_EQ(least.peak_bytes_without, without.peak_bytes);
  EXPECT_LT(least.peak_bytes, without.peak_bytes);
  EXPECT_EQ(least.peak_bytes, least.savings.recomputation.peak_bytes);
  limited.memory.limit = (least.peak_bytes + without.peak_bytes) / 2;
  const PlanSummary some = summarise(limited);
  EXPECT_LE(some.peak_bytes, *limited.memory.limit);
  EXPECT_NEAR(some.flops, without.flops + some.savings.recomputation.extra_flops, 1e-6 * without.flops);
  EXPECT_THAT(to_text(limited, some), testing::AllOf(HasSubstr("recomputed: "), HasSubstr(" flops more (")));
  const auto json = nlohmann::json::parse(to_json(limited, some));
  EXPECT_EQ(json["recomputed"].size(), some.savings.recomputation.blocks.size());
  EXPECT_EQ(json["run"]["memory_limit"], *limited.memory.limit);
  EXPECT_EQ(json["run"]["recompute"], "auto");
  limited.memory.limit = 1000;
  EXPECT_THROW(summarise(limited), InvalidArgument);
}

TEST(PlanSummary, ShowsThePriceOfOffloading) {
  PlanRequest plain = resnet_request("1", 1);
  PlanRequest moved = plain;
  moved.memory.offload = "auto";
  EXPECT_THROW(summarise(moved), Unsupported);  // from a host
  plain.machine = moved.machine = MachineDescription{.on_host = false};
  const PlanSummary without = summarise(plain), all = summarise(moved);
  EXPECT_EQ(all.peak_bytes_without, without.peak_bytes);
  EXPECT_LT(all.peak_bytes, without.peak_bytes);
  EXPECT_EQ(all.flops, without.flops);
  EXPECT_EQ(all.savings.offload.size(), moved.network.layers.size());
  EXPECT_THAT(to_text(moved, all),
              testing::AllOf(HasSubstr(" without offloading\n"), HasSubstr("offloaded: stem.conv to fc; "),
                             HasSubstr(" to host memory and back in a step, ")));
  moved.memory.limit = (all.peak_bytes + without.peak_bytes) / 2;
  const PlanSummary some = summarise(moved);
  EXPECT_LE(some.peak_bytes, *moved.memory.limit);
  EXPECT_LT(some.savings.moved_bytes, all.savings.moved_bytes);
  const auto json = nlohmann::json::parse(to_json(moved, some));
  EXPECT_EQ(json["offloaded"].size(), some.savings.offload.size());
  EXPECT_EQ(json["offloaded"][0], moved.network.layers[0].name);
  EXPECT_EQ(json["offloaded_bytes"], some.savings.moved_bytes);
  EXPECT_GT(json["host_bytes_per_rank"], 0);
  EXPECT_EQ(json["run"]["offload"], "auto");
}

TEST(MemoryArguments, ReadNumbersOfBytes) {
  EXPECT_EQ(parse_bytes("1500000"), 1500000);
  EXPECT_EQ(parse_bytes("512M"), Index{512} << 20);
  EXPECT_EQ(parse_bytes("1.5GiB"), Index{3} << 29);
  EXPECT_EQ(parse_bytes("2 KB"), 2048);
  EXPECT_EQ(parse_bytes("1T"), Index{1} << 40);
  EXPECT_EQ(parse_bytes("7B"), 7);
  for (const char* wrong : {"", "M", "-1", "0", "1e3", "5i", "5Mi", "5MX", "1P", "9999999999T", "nan", "inf", "5 M B"})
    EXPECT_EQ(parse_bytes(wrong), std::nullopt) << wrong;
}

TEST(PlanSummary, CountsTheMemoryOfTheOptimiser) {
  PlanRequest adam = request("h2", 2);
  adam.optimiser = nn::OptimiserKind::adam;
  EXPECT_EQ(summarise(adam).peak_bytes - summarise(request("h2", 2)).peak_bytes, 61706 * 4);
}

/// The owners of layers have their own work: the largest of all ranks is shown.
TEST(PlanSummary, ShowsTheCostOfKfac) {
  const PlanRequest plain = request("n4", 4);
  PlanRequest r = plain;
  r.kfac = true;
  const PlanSummary s = summarise(r);
  ASSERT_TRUE(s.kfac);
  EXPECT_FALSE(summarise(plain).kfac);
  const auto splits = nn::resolve(r.strategy, r.network, 4);
  const nn::NetworkPlan layers = nn::plan_network(r.network, splits, 4, r.batch);
  const nn::KfacPlan kfac = plan_kfac(r.network, splits, 4);
  nn::KfacCost most;
  for (int rank = 0; rank < 4; ++rank) {
    const nn::StepPlan plan = nn::plan_step(r.network, layers, rank, nn::StepKind::training, machine_of(r));
    most = largest_cost(most, cost_of_kfac(plan, kfac, rank, machine_of(r)));
  }
  EXPECT_GT(most.product_flops, 0);
  EXPECT_EQ(s.kfac->product_flops, most.product_flops);
  EXPECT_EQ(s.kfac->inversion_flops, most.inversion_flops);
  EXPECT_EQ(s.kfac->directions_received, most.directions_received);
  EXPECT_EQ(s.kfac->memory, most.memory);
  EXPECT_EQ(s.peak_bytes, summarise(plain).peak_bytes);
  EXPECT_THAT(to_text(r, s), HasSubstr("K-FAC      when a mini-batch enters the factors: "));
  const auto json = nlohmann::json::parse(to_json(r, s));
  EXPECT_EQ(json["run"]["optimiser"], "kfac");
  EXPECT_EQ(json["kfac"]["memory_bytes"], most.memory);
  EXPECT_EQ(json["kfac"]["product_flops"], most.product_flops);
  EXPECT_EQ(json["kfac"]["factor_bytes_sent"], s.kfac->factor_sum.bytes_sent);
  // K-FAC needs all weights of a filter on one rank.
  PlanRequest split = request("f2", 2);
  split.kfac = true;
  EXPECT_THROW(summarise(split), Unsupported);
}

TEST(PlanSummary, HasTheSameFiguresAsItsText) {
  const PlanRequest r = request("h2w2", 4, 2);
  const PlanSummary s = summarise(r);
  const std::string text = to_text(r, s);
  EXPECT_THAT(text, HasSubstr("lenet5, 61706 parameters, float, 4 ranks on 2 nodes, strategy "));
  EXPECT_THAT(text, HasSubstr("convolution  h2w2  64x14x14x1  16x16 "));
  EXPECT_THAT(text, HasSubstr("in " + std::to_string(s.messages) + " messages"));
  EXPECT_THAT(text, HasSubstr("at \"" + s.peak_node + "\""));
  const auto json = nlohmann::json::parse(to_json(r, s));
  EXPECT_EQ(json["layers"].size(), 12u);
  for (const char* member : {"name", "operation", "grid", "flops", "halo_bytes", "messages"})
    EXPECT_TRUE(json["layers"][0].contains(member)) << member;
  EXPECT_EQ(json["parameters"], s.parameters);
  EXPECT_EQ(json["memory_bytes_per_rank"], s.peak_bytes);
  EXPECT_EQ(json["separate_bytes_per_rank"], s.memory.separate);
  EXPECT_EQ(json["bytes_sent"], s.bytes_sent);
  EXPECT_EQ(json["messages"], s.messages);
}

/// Names of layers tell the operation, so its column is the first to go.
TEST(PlanSummary, FitsATerminalOf100Columns) {
  PlanRequest r = request("h2w2", 4, 2);
  const auto longest = [&] {
    std::istringstream text(to_text(r, summarise(r)));
    std::string heading;
    std::getline(text, heading);
    std::getline(text, heading);  // empty
    std::size_t most = 0;
    for (std::string line; std::getline(text, line) && !line.empty();) most = std::max(most, line.size());
    return most;
  };
  EXPECT_LE(longest(), 100u);
  for (auto& layer : r.network.layers) {
    layer.name += ".of_a_block_12";
    for (std::string& input : layer.inputs)
      if (input != "input") input += ".of_a_block_12";
  }
  EXPECT_LE(longest(), 100u);
  EXPECT_THAT(to_text(r, summarise(r)), testing::Not(HasSubstr("convolution")));
}

/// The representatives have the largest numbers of all ranks.
TEST(PlanSummary, HasTheLargestNumbersOfAllRanks) {
  for (const char* split : {"n2h4w2", "n3h2", "h3c2", "n4f3"}) {
    for (const int ranks_per_node : {0, 1, 4, 5}) {
      const nn::LayerSplit parsed = nn::LayerSplit::parse(split);
      const PlanRequest r = request(split, parsed.size(), ranks_per_node);
      const PlanSummary s = summarise(r);
      const auto layers = nn::plan_network(r.network, nn::resolve(r.strategy, r.network, r.ranks), r.ranks, r.batch);
      const MachineDescription machine = machine_of_nodes(r.ranks, ranks_per_node);
      nn::NodeCost most;
      Index gradients = 0, memory = 0, peak = 0;
      int memory_rank = 0, peak_rank = 0;
      std::vector<Index> halo_bytes(r.network.layers.size(), 0);
      for (int rank = 0; rank < r.ranks; ++rank) {
        const nn::StepPlan plan = nn::plan_step(r.network, layers, rank, nn::StepKind::training, machine);
        const nn::StepCost cost = nn::cost(plan, machine);
        most.flops = std::max(most.flops, cost.total().flops);
        most.bytes_sent = std::max(most.bytes_sent, cost.total().bytes_sent);
        most.messages_sent = std::max(most.messages_sent, cost.total().messages_sent);
        gradients = std::max(gradients, cost.gradient_sums.bytes_sent);
        for (std::size_t l = 0; l < halo_bytes.size(); ++l)
          halo_bytes[l] = std::max(halo_bytes[l], cost.of(static_cast<int>(l)).transfers.bytes_sent);
        const nn::PlanMemoryUse use = nn::memory_of(plan, machine);
        if (use.separate > memory) memory_rank = rank;
        if (use.peak > peak) peak_rank = rank;
        memory = std::max(memory, use.separate);
        peak = std::max(peak, use.peak);
      }
      const std::string place = std::string(split) + ", " + std::to_string(ranks_per_node) + " ranks per node";
      EXPECT_EQ(s.flops, most.flops) << place;
      EXPECT_EQ(s.bytes_sent, most.bytes_sent) << place;
      EXPECT_EQ(s.messages, most.messages_sent) << place;
      EXPECT_EQ(s.gradient_bytes, gradients) << place;
      EXPECT_EQ(s.memory.separate, memory) << place;
      EXPECT_EQ(s.memory_rank, memory_rank) << place;
      EXPECT_EQ(s.peak_bytes, peak) << place;
      EXPECT_EQ(s.peak_rank, peak_rank) << place;
      for (std::size_t l = 0; l < halo_bytes.size(); ++l) EXPECT_EQ(s.layers[l].halo_bytes, halo_bytes[l]) << place;
    }
  }
}

TEST(PlanSummary, SaysWhichKernelsOfADeviceAGraphRepeats) {
  PlanRequest r = request("h2", 2);
  EXPECT_EQ(summarise(r).segments, std::nullopt);
  EXPECT_THAT(to_text(r, summarise(r)), testing::Not(HasSubstr("graphs")));
  r.machine = machine_of_nodes(2, 1);
  r.machine->on_host = false;
  const PlanSummary s = summarise(r);
  ASSERT_TRUE(s.segments.has_value());
  EXPECT_GT(s.segments->recorded_kernels, 10);
  EXPECT_LT(s.segments->recorded_kernels, s.segments->kernels);
  const std::string text = to_text(r, s);
  EXPECT_THAT(text, HasSubstr("\n           1: arguments change between steps: the options of the optimiser\n"));
  const auto json = nlohmann::json::parse(to_json(r, s));
  EXPECT_EQ(json.at("graphs").at("recorded_kernels"), s.segments->recorded_kernels);
  int others = 0;
  for (const auto& reason : json.at("graphs").at("not_recorded")) others += reason.at("segments").get<int>();
  EXPECT_EQ(others, s.segments->segments - s.segments->recorded_segments);
}

TEST(PlanSummary, RefusesAnImpossibleStrategy) {
  EXPECT_THROW(summarise(request("h2", 3)), InvalidArgument);
  EXPECT_THROW(summarise(request("d2", 2)), InvalidArgument);
}

}  // namespace test_plan_summary
}  // namespace aloni::tools

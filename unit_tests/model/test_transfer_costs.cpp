// Messages and halo exchanges between two ranks: their times by links and by fits, and fits to measured times.
#include "round_times.hpp"

#include <aloni/core/error.hpp>
#include <aloni/model/communication.hpp>
#include <aloni/model/simulate.hpp>
#include <aloni/model/transfer_costs.hpp>
#include <aloni/nn/models.hpp>

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <random>
#include <string>
#include <vector>

namespace aloni::model {
namespace test_transfer_costs {

/// Rates and latencies of each link differ, so that another one would show.
Machine linked_machine() {
  Machine machine = generic_machine();
  machine.links = {{{0, 1 / 8e9, 1e-7}, {2e-6, 1 / 4e9, 3e-7}, {4e-6, 1 / 2e9, 5e-7}, {20e-6, 1 / 1e9, 1e-6}}};
  machine.exchange_seconds = 8e-6;
  return machine;
}

std::vector<PairTransfer> all_transfers() {
  std::vector<PairTransfer> all;
  for (const auto method : {TransferMethod::send, TransferMethod::messages, TransferMethod::copies})
    for (std::size_t k = 0; k < link_kinds; ++k)
      if (can_take(method, static_cast<LinkKind>(k))) all.push_back({method, static_cast<LinkKind>(k)});
  all.push_back({.method = TransferMethod::send, .link = LinkKind::within_node, .shared_data = true});
  return all;
}

PairTransfer sized(PairTransfer transfer, std::size_t bytes) {
  transfer.bytes = bytes;
  return transfer;
}

TEST(TransferCosts, FollowTheLinks) {
  const Machine machine = linked_machine();
  const auto seconds = [&](TransferMethod method, LinkKind link) {
    return unfitted_transfer_seconds({method, link, 4000}, machine);
  };
  EXPECT_DOUBLE_EQ(seconds(TransferMethod::send, LinkKind::within_node), 4e-6 + 2 * 5e-7 + 4000 / 2e9);
  EXPECT_DOUBLE_EQ(seconds(TransferMethod::send, LinkKind::between_nodes), 20e-6 + 2 * 1e-6 + 4000 / 1e9);
  const double packed = 8e-6 + 2 * (1e-7 + 4000 / 8e9);
  EXPECT_NEAR(seconds(TransferMethod::messages, LinkKind::within_node), packed + 4e-6 + 2 * 5e-7 + 4000 / 2e9, 1e-15);
  EXPECT_NEAR(seconds(TransferMethod::messages, LinkKind::shared_memory), packed + 2e-6 + 2 * 3e-7 + 4000 / 4e9, 1e-15);
  // The address, the copy, and the answer.
  EXPECT_NEAR(seconds(TransferMethod::copies, LinkKind::shared_memory), 8e-6 + 2 * 2e-6 + 2 * 3e-7 + 1e-7 + 4000 / 4e9,
              1e-15);
}

TEST(TransferCosts, FitsGiveTheMeasuredTimes) {
  std::mt19937 random(20261126);
  int count = 0;
  for (const PairTransfer& transfer : all_transfers()) {
    for (const double start : {0.9, 3.0}) {  // shorter and longer than by the links
      Machine machine = linked_machine();
      std::vector<CollectiveTime> times;
      double factor = start;
      for (std::size_t bytes = 256; bytes <= (std::size_t{16} << 20); bytes *= 4) {
        times.push_back({bytes, factor * unfitted_transfer_seconds(sized(transfer, bytes), machine)});
        factor *= std::uniform_real_distribution(1.05, 1.5)(random);
      }
      const TransferFit fit = fit_transfer(transfer, machine, times);
      EXPECT_EQ(fit.seconds_per_call > 0, start > 1);
      EXPECT_EQ(fit.message_factor < 1, start < 1);
      machine.transfers = {fit};
      for (const CollectiveTime& time : times)
        EXPECT_NEAR(transfer_seconds(sized(transfer, time.bytes), machine), time.seconds, 1e-9 * time.seconds)
            << name(transfer.method) << ", " << name(transfer.link) << ", " << time.bytes << " bytes";
      const double between = transfer_seconds(sized(transfer, 2048), machine);
      EXPECT_GT(between, times[1].seconds);
      EXPECT_LT(between, times[2].seconds);
      EXPECT_EQ(unfitted_transfer_seconds(sized(transfer, 2048), machine),
                unfitted_transfer_seconds(sized(transfer, 2048), linked_machine()));
      ++count;
    }
  }
  EXPECT_EQ(count, 14);
}

TEST(TransferCosts, ChangeTheTimesPerByteOfLinkAndCopies) {
  Machine machine = linked_machine();
  const PairTransfer halo{TransferMethod::messages, LinkKind::between_nodes, 4000};
  const double before = transfer_seconds(halo, machine);
  machine.transfers = {{.method = halo.method, .link = halo.link, .rates = {{1, 3}}}};
  const double per_byte = 2 / 8e9 + 1 / 1e9;  // packing, unpacking, and the link
  EXPECT_NEAR(transfer_seconds(halo, machine) - before, 2 * 4000 * per_byte, 1e-15);
}

TEST(TransferCosts, FactorsHoldForOtherBandwidths) {
  Machine machine = linked_machine();
  const PairTransfer halo{TransferMethod::messages, LinkKind::between_nodes, 1 << 20};
  machine.transfers = {{.method = halo.method, .link = halo.link, .rates = {{1024, 2}}}};
  const double before = transfer_seconds(halo, machine);
  machine.links[static_cast<std::size_t>(LinkKind::between_nodes)].seconds_per_byte *= 3;
  EXPECT_NEAR(transfer_seconds(halo, machine) - before, 2 * 2 * (1 << 20) / 1e9, 1e-9);
}

TEST(TransferCosts, EachMethodLinkAndMemoryHasItsOwnFit) {
  Machine machine = linked_machine();
  const std::vector<PairTransfer> all = all_transfers();
  for (std::size_t i = 0; i < all.size(); ++i)
    machine.transfers.push_back({.method = all[i].method,
                                 .link = all[i].link,
                                 .shared_data = all[i].shared_data,
                                 .seconds_per_call = 1.0 + static_cast<double>(i),
                                 .rates = {{1024, 1}}});
  for (std::size_t i = 0; i < all.size(); ++i)
    EXPECT_NEAR(transfer_seconds(sized(all[i], 64), machine), 1.0 + static_cast<double>(i), 1e-3);
}

TEST(TransferCosts, SimulatedTransfersTakeTheFitOfTheirWay) {
  Machine machine = free_machine();
  machine.exchange_seconds = 1e-5;
  const auto net = nn::make_model("mesh1k", {.input = views::make_extents(1, {64, 64}, 18)});
  const auto layers = layers_of(net, "h2", 2, 1);
  const auto run = [&] { return simulate(net, layers, machine, RoundTimes(1e-3)); };
  const SimulatedStep links = run();
  EXPECT_EQ(links.transfer_sources, (std::array<double, 3>{0, 0, 1}));
  const auto halos = [](const SimulatedStep& step) {
    double seconds = 0;
    for (const CommunicationTime& time : step.communication) seconds += time.halos;
    return seconds;
  };
  machine.transfers = {{.method = TransferMethod::messages, .link = LinkKind::between_nodes, .rates = {{1024, 9}}},
                       {.method = TransferMethod::send, .link = LinkKind::within_node, .rates = {{1024, 9}}}};
  EXPECT_EQ(run().seconds, links.seconds);  // of other links
  EXPECT_EQ(halos(run()), halos(links));
  machine.transfers = {
      {.method = TransferMethod::messages,
       .link = LinkKind::shared_memory,
       .seconds_per_call = 1e-2,
       .rates = {{1, 1}}},
      {.method = TransferMethod::copies, .link = LinkKind::shared_memory, .seconds_per_call = 1e-2, .rates = {{1, 1}}}};
  const SimulatedStep fitted = run();
  EXPECT_EQ(fitted.transfer_sources, (std::array<double, 3>{1, 0, 0}));
  EXPECT_GT(halos(fitted), halos(links) + 0.1);  // more than ten exchanges
  EXPECT_GT(fitted.seconds, links.seconds + 0.1);
  // Fits of one of the two ways serve some of the exchanges.
  machine.planning.direct_bytes = 1000;
  machine.transfers.pop_back();
  const SimulatedStep mixed = run();
  EXPECT_GT(mixed.transfer_sources[0], 0);
  EXPECT_GT(mixed.transfer_sources[2], 0);
  EXPECT_NEAR(mixed.transfer_sources[0] + mixed.transfer_sources[2], 1, 1e-12);
  EXPECT_LT(halos(mixed), halos(fitted));
}

TEST(TransferCosts, RefusesTransfersAndTimesThatGiveNoConstants) {
  const auto refused = [](const PairTransfer& transfer, const std::vector<CollectiveTime>& times,
                          const Machine& machine) {
    try {
      (void)fit_transfer(transfer, machine, times);
    } catch (const InvalidArgument& error) {
      return error.argument();
    }
    return std::string("accepted");
  };
  const Machine machine = linked_machine();
  const PairTransfer message;
  EXPECT_EQ(refused(message, {}, machine), "times");
  EXPECT_EQ(refused(message, {{256, 1}, {256, 2}}, machine), "times[1]");
  EXPECT_EQ(refused(message, {{256, std::nan("")}}, machine), "times[0]");
  EXPECT_EQ(refused(message, {{254, 1}}, machine), "transfer.bytes");
  EXPECT_EQ(refused({.method = TransferMethod::copies}, {{256, 1}}, machine), "transfer.link");
  EXPECT_EQ(refused({.method = TransferMethod::send, .link = LinkKind::shared_memory}, {{256, 1}}, machine),
            "transfer.link");
  Machine unknown = machine;
  unknown.links[static_cast<std::size_t>(LinkKind::within_node)] = {};
  EXPECT_EQ(refused(message, {{256, 1}}, unknown), "machine.links.within_node");
  EXPECT_EQ(refused(message, {{256, 1}}, machine), "accepted");
  EXPECT_THROW((void)transfer_seconds({.bytes = 3}, machine), InvalidArgument);
  EXPECT_THROW((void)unfitted_transfer_seconds({.link = LinkKind::self}, machine), InvalidArgument);
}

}  // namespace test_transfer_costs
}  // namespace aloni::model

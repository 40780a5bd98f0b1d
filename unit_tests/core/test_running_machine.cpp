// What running ranks know of their machine, and what they say if they disagree.
#include "support/transport.hpp"

#include <aloni/core/comm/mpi.hpp>
#include <aloni/core/comm/running_machine.hpp>
#include <aloni/core/error.hpp>

#include <gmock/gmock.h>

#include <string>
#include <vector>

namespace aloni::comm {
namespace test_running_machine {

using testing::AllOf;
using testing::HasSubstr;

TEST(RunningMachine, KnowsItsNodesAndWhoSharesMemory) {
  const Communicator comm = aloni::test::make_communicator();
  const MachineDescription machine = describe_machine(comm, {});
  const TransportOptions options = aloni::test::transport_options();
  const int ranks_per_node = options.ranks_per_node > 0 ? options.ranks_per_node : comm.size();
  EXPECT_EQ(machine.nodes, machine_of_nodes(comm.size(), ranks_per_node).nodes);
  EXPECT_EQ(machine.shared_memory, options.shared_memory || comm.size() == 1);
  EXPECT_EQ(machine.progress_thread, options.progress_thread);
  EXPECT_TRUE(machine.on_host);
  for (const PeerTraffic& peer : comm.traffic_by_peer())
    EXPECT_EQ(machine.share_memory(comm.rank(), peer.rank), peer.rank == comm.rank() || peer.transport == "shared");
}

TEST(RunningMachine, HasTheOptionsOfItsMessages) {
  const Communicator comm = from_mpi(MPI_COMM_WORLD, {.checksums = true, .mpi_fragment_bytes = 12345});
  const MachineDescription machine = describe_machine(comm, {.direct_bytes = 7, .bucket_bytes = 8});
  EXPECT_EQ(machine.fragment_bytes, 12345);
  EXPECT_EQ(machine.direct_bytes, unlimited_bytes) << "values with checksums are sent";
  EXPECT_EQ(machine.consolidate_below, 0) << "packed into the memory of other ranks";
  EXPECT_EQ(machine.bucket_bytes, 8);
}

TEST(RunningMachine, KeepsTheCostsOfTheCaller) {
  const Communicator comm = aloni::test::make_communicator();
  const MachineDescription machine = describe_machine(comm, {.direct_bytes = 7, .pixels_per_call = 0.5});
  EXPECT_EQ(machine.direct_bytes, 7);
  EXPECT_EQ(machine.pixels_per_call, 0.5);
  EXPECT_GT(machine.fragment_bytes, 0);
}

TEST(RunningMachine, HasTheKernelsOfTheProcessorsOfAllRanks) {
  const Communicator comm = aloni::test::make_communicator();
  EXPECT_TRUE(describe_machine(comm, {.onednn_bfloat16 = true}).onednn_bfloat16);
  EXPECT_FALSE(describe_machine(comm, {.onednn_bfloat16 = comm.rank() > 0}).onednn_bfloat16);
  MachineDescription device{.on_host = false};
  device.cudnn = true;
  EXPECT_TRUE(describe_machine(comm, device).cudnn);
  device.cudnn = comm.rank() > 0;
  EXPECT_FALSE(describe_machine(comm, device).cudnn);
}

TEST(RunningMachine, NamesTheFieldAndTheRanksThatDiffer) {
  const Communicator comm = aloni::test::make_communicator();
  if (comm.size() == 1) return;
  const auto error_of = [&](MachineDescription given) -> std::string {
    try {
      describe_machine(comm, std::move(given));
    } catch (const InvalidArgument& e) {
      return e.what();
    }
    return "no error";
  };
  const bool last = comm.rank() == comm.size() - 1;
  const std::string last_rank = "rank " + std::to_string(comm.size() - 1);
  EXPECT_THAT(error_of({.on_host = !last}), AllOf(HasSubstr("on_host"), HasSubstr("false on " + last_rank)));
  EXPECT_THAT(error_of({.direct_bytes = last ? 5 : 6}),
              AllOf(HasSubstr("direct_bytes"), HasSubstr("5 on " + last_rank)));
  EXPECT_THAT(error_of({.chunk_bytes = last ? 0.25 : 1e6}),
              AllOf(HasSubstr("chunk_bytes"), HasSubstr("0.25 on " + last_rank)));
  EXPECT_EQ(error_of({}), "no error");
  const auto measured = [](double seconds, Index problems) {
    MachineDescription machine;
    MeasuredImplementations::Times times;
    for (Index p = 0; p < problems; ++p) times[{p}] = {{.implementation = "direct", .seconds = seconds, .runs = 10}};
    machine.convolutions = MeasuredImplementations(std::move(times), 100);
    return machine;
  };
  EXPECT_THAT(error_of(measured(1, last ? 2 : 3)), AllOf(HasSubstr("convolutions = "), HasSubstr("2 on " + last_rank)));
  EXPECT_THAT(error_of(measured(last ? 1 : 1 + 1e-15, 2)),
              AllOf(HasSubstr("convolutions: times"), HasSubstr(last_rank)));
  EXPECT_EQ(error_of(measured(1, 3)), "no error");
}

TEST(RunningMachine, HasNoComputeCapabilityWhereDevicesDiffer) {
  const Communicator comm = aloni::test::make_communicator();
  EXPECT_EQ(describe_machine(comm, {.compute_capability = 80}).compute_capability, 80);
  const MachineDescription mixed{.compute_capability = comm.rank() == 0 ? 80 : 90};
  EXPECT_EQ(describe_machine(comm, mixed).compute_capability, comm.size() == 1 ? 80 : 0);
}

}  // namespace test_running_machine
}  // namespace aloni::comm

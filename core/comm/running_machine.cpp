#include <aloni/core/comm/running_machine.hpp>

#include <aloni/core/comm/agreement.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

namespace aloni::comm {

namespace {

/// The ranks that share memory with a lowest rank, in place of that rank: numbers from 0.
std::vector<int> numbered(const std::vector<std::int64_t>& lowest) {
  std::map<std::int64_t, int> numbers;
  std::vector<int> nodes;
  for (const std::int64_t l : lowest)
    nodes.push_back(numbers.try_emplace(l, static_cast<int>(numbers.size())).first->second);
  return nodes;
}

void fill_nodes(const Communicator& comm, MachineDescription& machine) {
  int lowest = comm.rank();  // of the ranks that share memory with this one
  for (const PeerTraffic& peer : comm.traffic_by_peer())
    if (peer.transport == "shared") lowest = std::min(lowest, peer.rank);
  const std::vector<int> sharing = numbered(comm.all_gather(lowest)), nodes = nodes_of_ranks(comm);
  const bool nobody_shares = std::ranges::max(sharing) + 1 == comm.size();
  machine.shared_memory = sharing == nodes || !nobody_shares;
  machine.nodes = machine.shared_memory ? sharing : nodes;
}

}  // namespace

std::vector<int> nodes_of_ranks(const Communicator& comm) {
  std::vector<std::int64_t> lowest(static_cast<std::size_t>(comm.size()));
  for (const std::vector<int>& ranks : comm.ranks_by_node())
    for (const int r : ranks) lowest[static_cast<std::size_t>(r)] = ranks.front();
  return numbered(lowest);
}

MachineDescription describe_machine(const Communicator& comm, MachineDescription given) {
  MachineDescription machine = std::move(given);
  fill_nodes(comm, machine);
  machine.progress_thread = comm.has_progress_thread();
  machine.tuning = comm.tuning();
  if (comm.has_checksums()) machine.direct_bytes = unlimited_bytes;
  if (comm.has_checksums() || !machine.shared_memory) machine.consolidate_below = 0;
  // Nodes may have different networks. A message is divided by its sender, so the smallest fragments decide.
  const std::size_t fragment = comm.largest_fragment_between_nodes();
  // Likewise they may have different processors and libraries.
  std::array<std::int64_t, 5> least{static_cast<std::int64_t>(std::min<std::size_t>(fragment, unlimited_bytes)),
                                    machine.onednn_bfloat16, machine.cudnn, machine.compute_capability,
                                    -machine.compute_capability};
  comm.all_reduce(std::span<std::int64_t>(least), Reduction::min);
  machine.fragment_bytes = least[0];
  machine.onednn_bfloat16 = least[1] != 0;
  machine.cudnn = least[2] != 0;
  if (least[3] != -least[4]) machine.compute_capability = 0;
  ReplicatedValues values;
  for (const MachineField& field : fields_of(machine))
    std::visit([&](auto value) { values.add(std::string(field.name), value); }, field.value);
  const std::string convolutions = machine.convolutions.text();
  values.add("convolutions: times", std::as_bytes(std::span(convolutions)));
  check_equal(comm, "aloni::comm::describe_machine", values);
  return machine;
}

}  // namespace aloni::comm

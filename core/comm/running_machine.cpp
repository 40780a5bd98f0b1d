#include <aloni/core/comm/running_machine.hpp>

#include <algorithm>
#include <cstdint>

namespace aloni::comm {

MachineDescription describe_machine(const Communicator& comm, bool on_host) {
  MachineDescription machine{.on_host = on_host, .progress_thread = comm.has_progress_thread()};
  int lowest = comm.rank();  // of the ranks that share memory with this one
  for (const PeerTraffic& peer : comm.traffic_by_peer())
    if (peer.transport == "shared") lowest = std::min(lowest, peer.rank);
  machine.tuning = comm.tuning();
  for (const std::int64_t node : comm.all_gather(lowest)) machine.nodes.push_back(static_cast<int>(node));
  return machine;
}

}  // namespace aloni::comm

#pragma once
// What the messages of a run have carried, for tests.
#include <aloni/core/comm/communicator.hpp>

#include <cstdint>

namespace aloni::test {

/// Messages between this rank and the others since the family was made, without those of collectives.
inline comm::TrafficCounters traffic_with_others(const comm::Communicator& comm) {
  comm::TrafficCounters sum;
  for (const comm::PeerTraffic& peer : comm.traffic_by_peer())
    if (peer.rank != comm.rank()) sum += peer.messages;
  return sum;
}

/// Messages of all ranks that were sent and not received. Collective.
inline std::int64_t messages_left(const comm::Communicator& comm) {
  const comm::TrafficCounters traffic = traffic_with_others(comm);
  return comm.all_reduce(static_cast<std::int64_t>(traffic.messages_sent - traffic.messages_received),
                         comm::Reduction::sum);
}

}  // namespace aloni::test

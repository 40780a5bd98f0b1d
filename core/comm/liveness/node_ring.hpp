#pragma once
// Whether the other nodes are alive. The lowest ranks of the nodes hold a ring of TCP connections on which nothing is said but a farewell:
// when a process ends, its system closes the connection, and both neighbours know within a round trip; when a whole node or
// its network goes, the connection's own probes find out. What happens within a node is the Watch's.
#include <aloni/core/comm/liveness/watch.hpp>
#include <aloni/core/comm/transport/all_gather.hpp>

#include <optional>
#include <vector>

namespace aloni::comm::detail {

class NodeRing {
 public:
  /// Collective over all ranks of the family. `leaders`: one rank of each node, ascending. A neighbour that can't be reached within
  /// two seconds (a firewall) is not watched. No socket listens when this returns. `one_machine`: the nodes are pretended ones.
  NodeRing(int rank, const std::vector<int>& leaders, bool one_machine, const AllGather& all_gather);
  NodeRing(const NodeRing&) = delete;
  NodeRing& operator=(const NodeRing&) = delete;
  /// Says farewell: from here on the end of this process is no failure.
  ~NodeRing();

  /// A neighbour that has gone without farewell. One system call.
  std::optional<Watch::Verdict> dead();
  /// How many neighbours are watched.
  int num_watched() const;

 private:
  /// One connection, closed at its end. rank -1: none.
  struct Link {
    int rank = -1, socket = -1;

    void close_socket();
  };

  Link next_, previous_;
};

}  // namespace aloni::comm::detail

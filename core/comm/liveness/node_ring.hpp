#pragma once
// NodeRing: detects failures of other nodes. The lowest ranks of the nodes form a ring of TCP connections. The only
// message on a connection is a farewell. When a process ends, its system closes the connection, and both neighbours
// know within a round trip. When a whole node or its network fails, TCP keep-alive probes detect it. Watch detects
// failures within a node.
#include <aloni/core/comm/liveness/watch.hpp>
#include <aloni/core/comm/transport/gather_bytes.hpp>

#include <optional>
#include <string>
#include <vector>

namespace aloni::comm::detail {

class NodeRing {
 public:
  /// `leaders`: one rank of each node, ascending. `one_machine`: the nodes are groups of ranks on one machine
  /// (TransportOptions::ranks_per_node). A neighbour that cannot be reached within two seconds (a firewall) is not
  /// watched. Until this returns, each leader listens: on the addresses that its neighbour uses, or on those of the
  /// loopback interface with `one_machine`. Children of this process (fork) do not keep the connections. Collective
  /// over all ranks of the family.
  NodeRing(int rank, const std::vector<int>& leaders, bool one_machine, const GatherBytes& all_gather);
  NodeRing(const NodeRing&) = delete;
  NodeRing& operator=(const NodeRing&) = delete;
  /// Sends the farewell: afterwards the end of this process is no failure.
  ~NodeRing();

  /// A neighbour that ended without farewell, if any. One system call.
  std::optional<Watch::Verdict> dead();
  /// Number of watched neighbours.
  int num_watched() const;

 private:
  /// One connection. rank -1: none.
  struct Link {
    int rank = -1, socket = -1;
    std::string host, process;  // for people

    void close_socket();
  };

  Link next_, previous_;
  int process_ = -1;  // children of this process have a copy of this object
};

}  // namespace aloni::comm::detail

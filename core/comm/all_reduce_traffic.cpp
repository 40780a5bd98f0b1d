#include <aloni/core/comm/all_reduce_traffic.hpp>

#include <aloni/core/comm/engine/plans.hpp>
#include <aloni/core/comm/schedule/builder.hpp>
#include <aloni/core/error.hpp>

#include <algorithm>
#include <bit>
#include <string>
#include <utility>

namespace aloni::comm {

namespace {

constexpr const char* operation = "aloni::comm::all_reduce_traffic";

Index elements_of(Index count, int first, int last, int blocks) {
  return blocks_of({Buffer::output, 0, count}, first, last, blocks).count;
}

/// Counts the steps of the schedules in core/comm/schedule/all_reduce.cpp without making them, for one position.
/// Schedules of thousands of ranks would take too long.
class Count {
 public:
  Count(AllReduceTraffic& traffic, Index times) : traffic_(traffic), times_(times) {}

  void recursive_doubling(int size, int me, Index count) {
    with_power_of_two(size, me, count, [&](int power, int) {
      for (int mask = 1; mask < power; mask *= 2) exchange(count, count, count);
    });
  }

  void rabenseifner(int size, int me, Index count) {
    with_power_of_two(size, me, count, [&](int power, int position) {
      const auto blocks = [&](int first, int number) { return elements_of(count, first, first + number, power); };
      int mine = 0;
      for (int mask = 1, have = power; mask < power; mask *= 2) {
        have /= 2;
        const bool upper = (position & mask) != 0;
        const Index kept = blocks(mine + (upper ? have : 0), have);
        exchange(blocks(mine + (upper ? 0 : have), have), kept, kept);
        mine += upper ? have : 0;
      }
      for (int mask = power / 2, have = 1; mask > 0; mask /= 2, have *= 2) {
        const int theirs = mine ^ have;
        exchange(blocks(mine, have), blocks(theirs, have), 0);
        mine = std::min(mine, theirs);
      }
    });
  }

  /// `node`, `place`: among the nodes, and among the ranks of the node.
  void hierarchical(int nodes, int node, int size, int place, Index count) {
    const auto block = [&](int i) { return elements_of(count, i, i + 1, size); };
    if (size > 1) {
      const Index before = block((place + size - 1) % size), mine = block(place), next = block((place + 1) % size);
      exchange(count - mine, count - before, count - before, size - 1);
      exchange(count - next, count - mine, 0, size - 1);
    }
    rabenseifner(nodes, node, block(place));
  }

  /// All members touch the memory of all others. The other ranks read all of this rank's values but its block. The
  /// rank writes the result of its block into their memory.
  void direct(int size, int me, Index count) {
    const Index mine = elements_of(count, me, me + 1, size);
    const Index moved = count - mine + (size - 1) * mine;
    exchange(moved, moved, (size - 1) * mine, 2 * (size - 1));
  }

 private:
  void exchange(Index sent, Index received, Index combined, Index messages = 1) {
    send(sent, messages);
    receive(received, messages);
    traffic_.elements_combined += times_ * combined;
  }
  void send(Index elements, Index messages = 1) {
    traffic_.messages_sent += times_ * messages;
    traffic_.elements_sent += times_ * elements;
  }
  void receive(Index elements, Index messages = 1) {
    traffic_.messages_received += times_ * messages;
    traffic_.elements_received += times_ * elements;
  }

  /// The positions beyond a power of two hand their data to a neighbour, and receive the result.
  template <class F>
  void with_power_of_two(int size, int me, Index count, const F& f) {
    if (size == 1) return;
    const int power = static_cast<int>(std::bit_floor(static_cast<unsigned>(size))), extra = size - power;
    if (me >= 2 * extra) return f(power, me - extra);
    exchange(count, count, me % 2 == 1 ? count : 0);
    if (me % 2 == 1) f(power, me / 2);
  }

  AllReduceTraffic& traffic_;
  Index times_;
};

detail::Topology topology_of(const std::vector<std::vector<int>>& nodes, bool shared_memory, Index count,
                             int element_bytes) {
  if (count < 0) throw InvalidArgument(operation, "count", std::to_string(count), "at least 0");
  if (element_bytes < 1) throw InvalidArgument(operation, "element_bytes", std::to_string(element_bytes), "at least 1");
  detail::Topology topology{.nodes = nodes, .one_island = shared_memory && nodes.size() == 1};
  for (const auto& node : nodes) topology.root_ranks.insert(topology.root_ranks.end(), node.begin(), node.end());
  return topology;
}

/// The traffic of the ranks of an all-reduce.
class Traffic {
 public:
  /// @pre several positions, count ≥ 1
  Traffic(detail::Topology topology, Index count, int element_bytes) : plans_(std::move(topology)), count_(count) {
    const auto bytes = static_cast<std::size_t>(count) * static_cast<std::size_t>(element_bytes);
    algorithm_ = plans_.choose(operation, AllReduceAlgorithm::automatic, bytes, false).algorithm;
    part_ = plans_.part_elements({.kind = OperationKind::all_reduce,
                                  .algorithm = algorithm_,
                                  .element_bytes = static_cast<std::uint32_t>(element_bytes),
                                  .count = count});
  }

  /// `node`, `place`: those of the position.
  AllReduceTraffic of(int position, int node, int place) const {
    const auto& topology = plans_.topology();
    const int size = static_cast<int>(topology.root_ranks.size());
    AllReduceTraffic traffic{.algorithm = algorithm_};
    const auto add = [&](Index count, Index times) {
      if (count == 0 || times == 0) return;
      Count part(traffic, times);
      switch (algorithm_) {
        case AllReduceAlgorithm::direct:
          return part.direct(size, position, count);
        case AllReduceAlgorithm::hierarchical:
          return part.hierarchical(static_cast<int>(topology.nodes.size()), node,
                                   static_cast<int>(topology.nodes.front().size()), place, count);
        case AllReduceAlgorithm::rabenseifner:
          return part.rabenseifner(size, position, count);
        default:
          return part.recursive_doubling(size, position, count);
      }
    };
    const Index parts = (count_ + part_ - 1) / part_;
    add(part_, parts - 1);
    add(count_ - (parts - 1) * part_, 1);
    return traffic;
  }

 private:
  detail::Plans plans_;
  Index count_, part_ = 0;
  AllReduceAlgorithm algorithm_ = AllReduceAlgorithm::automatic;
};

}  // namespace

AllReduceTraffic all_reduce_traffic(const std::vector<std::vector<int>>& nodes, bool shared_memory, int position,
                                    Index count, int element_bytes) {
  detail::Topology topology = topology_of(nodes, shared_memory, count, element_bytes);
  for (std::size_t node = 0; node < nodes.size(); ++node) {
    const auto found = std::ranges::find(nodes[node], position);
    if (found == nodes[node].end()) continue;
    if (topology.root_ranks.size() < 2 || count == 0) return {};
    return Traffic(std::move(topology), count, element_bytes)
        .of(position, static_cast<int>(node), static_cast<int>(found - nodes[node].begin()));
  }
  throw InvalidArgument(operation, "position", std::to_string(position), "a position that is on a node");
}

std::vector<AllReduceTraffic> all_reduce_traffic(const std::vector<std::vector<int>>& nodes, bool shared_memory,
                                                 Index count, int element_bytes) {
  detail::Topology topology = topology_of(nodes, shared_memory, count, element_bytes);
  std::vector<AllReduceTraffic> all(topology.root_ranks.size());
  if (all.size() < 2 || count == 0) return all;
  const Traffic traffic(std::move(topology), count, element_bytes);
  for (std::size_t node = 0; node < nodes.size(); ++node)
    for (std::size_t place = 0; place < nodes[node].size(); ++place) {
      const int position = nodes[node][place];
      all[static_cast<std::size_t>(position)] = traffic.of(position, static_cast<int>(node), static_cast<int>(place));
    }
  return all;
}

}  // namespace aloni::comm

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

  /// A block travels in messages of at most `segment` elements.
  void ring(int size, int me, Index count, Index segment) {
    if (size == 1) return;
    const auto block = [&](int i) { return elements_of(count, (i + size) % size, (i + size) % size + 1, size); };
    const auto messages = [&](Index elements) { return std::max<Index>(1, (elements + segment - 1) / segment); };
    const Index larger = count % size;  // the first blocks have an element more
    const Index all = larger * messages(count / size + 1) + (size - larger) * messages(count / size);
    const auto send_but = [&](int i) { send(count - block(i), all - messages(block(i))); };
    const auto receive_but = [&](int i) { receive(count - block(i), all - messages(block(i))); };
    send_but(me);
    receive_but(me - 1);
    traffic_.elements_combined += times_ * (count - block(me - 1));
    send_but(me + 1);
    receive_but(me);
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

void check(Index count, int element_bytes) {
  if (count < 0) throw InvalidArgument(operation, "count", std::to_string(count), "at least 0");
  if (element_bytes < 1) throw InvalidArgument(operation, "element_bytes", std::to_string(element_bytes), "at least 1");
}

/// The traffic of the ranks of an all-reduce.
class Traffic {
 public:
  /// @pre several positions, count ≥ 1
  Traffic(const std::vector<std::vector<int>>& nodes, Index count, int element_bytes, const AllReducePlan& plan)
      : nodes_(nodes),
        count_(count),
        segment_(detail::Plans::ring_segment(static_cast<std::size_t>(element_bytes))),
        plan_(plan) {
    for (const auto& node : nodes) size_ += static_cast<int>(node.size());
  }

  /// `node`, `place`: those of the position.
  AllReduceTraffic of(int position, int node, int place) const {
    AllReduceTraffic traffic{.algorithm = plan_.algorithm};
    const auto add = [&](Index count, Index times) {
      if (count == 0 || times == 0) return;
      Count part(traffic, times);
      switch (plan_.algorithm) {
        case AllReduceAlgorithm::direct:
          return part.direct(size_, position, count);
        case AllReduceAlgorithm::hierarchical:
          return part.hierarchical(static_cast<int>(nodes_.size()), node, static_cast<int>(nodes_.front().size()),
                                   place, count);
        case AllReduceAlgorithm::rabenseifner:
          return part.rabenseifner(size_, position, count);
        case AllReduceAlgorithm::ring:
          return part.ring(size_, position, count, segment_);
        default:
          return part.recursive_doubling(size_, position, count);
      }
    };
    const Index parts = (count_ + plan_.part_elements - 1) / plan_.part_elements;
    add(plan_.part_elements, parts - 1);
    add(count_ - (parts - 1) * plan_.part_elements, 1);
    return traffic;
  }

 private:
  const std::vector<std::vector<int>>& nodes_;
  Index count_, segment_;
  AllReducePlan plan_;
  int size_ = 0;
};

}  // namespace

AllReduceChooser::AllReduceChooser(const std::vector<std::vector<int>>& nodes, bool shared_memory,
                                   const std::optional<Tuning>& tuning) {
  const auto plans = std::make_shared<detail::Plans>(detail::topology_of(nodes, shared_memory));
  const auto ranks = static_cast<int>(plans->topology().root_ranks.size());
  if (tuning && tuning->ranks == ranks) plans->set_tuning(*tuning);
  plans_ = plans;
}

AllReducePlan AllReduceChooser::operator()(Index count, int element_bytes) const {
  check(count, element_bytes);
  if (plans_->topology().root_ranks.size() < 2 || count == 0) return {};
  const auto bytes = static_cast<std::size_t>(count) * static_cast<std::size_t>(element_bytes);
  AllReducePlan plan{.algorithm = plans_->choose(operation, AllReduceAlgorithm::automatic, bytes, false).algorithm};
  plan.part_elements = plans_->part_elements({.kind = OperationKind::all_reduce,
                                              .algorithm = plan.algorithm,
                                              .element_bytes = static_cast<std::uint32_t>(element_bytes),
                                              .count = count});
  return plan;
}

AllReduceTraffic all_reduce_traffic(const std::vector<std::vector<int>>& nodes, bool shared_memory, int position,
                                    Index count, int element_bytes) {
  return all_reduce_traffic(nodes, position, count, element_bytes,
                            AllReduceChooser(nodes, shared_memory)(count, element_bytes));
}

AllReduceTraffic all_reduce_traffic(const std::vector<std::vector<int>>& nodes, int position, Index count,
                                    int element_bytes, const AllReducePlan& plan) {
  check(count, element_bytes);
  for (std::size_t node = 0; node < nodes.size(); ++node) {
    const auto found = std::ranges::find(nodes[node], position);
    if (found == nodes[node].end()) continue;
    if (count == 0 || (nodes.size() == 1 && nodes[0].size() < 2)) return {};
    return Traffic(nodes, count, element_bytes, plan)
        .of(position, static_cast<int>(node), static_cast<int>(found - nodes[node].begin()));
  }
  throw InvalidArgument(operation, "position", std::to_string(position), "a position that is on a node");
}

std::vector<AllReduceTraffic> all_reduce_traffic(const std::vector<std::vector<int>>& nodes, bool shared_memory,
                                                 Index count, int element_bytes, const std::optional<Tuning>& tuning) {
  const AllReducePlan plan = AllReduceChooser(nodes, shared_memory, tuning)(count, element_bytes);
  std::size_t size = 0;
  for (const auto& node : nodes) size += node.size();
  std::vector<AllReduceTraffic> all(size);
  if (size < 2 || count == 0) return all;
  const Traffic traffic(nodes, count, element_bytes, plan);
  for (std::size_t node = 0; node < nodes.size(); ++node)
    for (std::size_t place = 0; place < nodes[node].size(); ++place) {
      const int position = nodes[node][place];
      all[static_cast<std::size_t>(position)] = traffic.of(position, static_cast<int>(node), static_cast<int>(place));
    }
  return all;
}

}  // namespace aloni::comm

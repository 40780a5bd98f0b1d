#pragma once
// Proves that the schedules of all ranks of one operation are correct, without running them, and counts their cost.
//
//   std::vector<Schedule> all;
//   for (int r = 0; r < p; ++r) {
//     Builder b(r);
//     ring_all_reduce(b, Team::all(r, p), b.output(n));
//     all.push_back(b.finish());
//   }
//   const Cost cost = verify(all, all_reduce_goal(p, n));   // throws if a schedule is wrong
//
// It proves, for every order of message arrival and step execution:
//  - Each send has one receive of the same size, and each receive has one send.
//  - There is no deadlock, even without buffering (a send is complete only after its receive has started).
//  - The result does not depend on the order. If two steps of a rank use an element and one writes it, one depends on
//    the other.
//  - The same holds between ranks for combine steps: messages order all steps that use the same memory.
//  - No element is read before it has a value. Each contribution is reduced exactly once: the operands of a reduction
//    have no contributing rank in common. At the end every element has the content of the goal.
#include <aloni/core/comm/schedule/schedule.hpp>

#include <cstdint>
#include <span>
#include <vector>

namespace aloni::comm {

/// The content of one element of a buffer: the reduction, over a set of ranks, of their elements number `element`.
struct Content {
  static constexpr Index undefined = -1;

  Index element = undefined;  ///< number in the ranks' buffers; undefined: no value
  std::uint64_t ranks = 0;    ///< bit r: rank r has contributed

  friend bool operator==(const Content&, const Content&) = default;
};

/// Contents of a rank's buffers before (`input`, `output`) and after (`after`: output). Undefined in `after`: any.
struct RankGoal {
  std::vector<Content> input, output, after;
};

/// The required result of an operation of ranks 0 … size - 1. @pre 1 ≤ size ≤ 64
struct Goal {
  std::vector<RankGoal> ranks;
  bool barrier = false;  ///< no rank may end before all ranks have started
};

Goal all_reduce_goal(int size, Index count);
Goal reduce_scatter_goal(int size, Index count);
Goal all_gather_goal(int size, Index count);
Goal broadcast_goal(int size, Index count, int root);
/// counts[i][j]: elements from rank i to rank j.
Goal all_to_all_goal(const std::vector<std::vector<Index>>& counts);
Goal barrier_goal(int size);

struct Cost {
  std::vector<Index> elements_sent;  ///< for each rank
  std::vector<int> messages_sent;    ///< for each rank
  int rounds = 0;                    ///< messages on the longest chain of dependent messages

  Index all_elements() const;
  int all_messages() const;
  Index most_elements() const;
  int most_messages() const;
};

/// Returns the cost of correct schedules. Throws InvalidArgument with the rank and step of the first error.
/// @pre schedules[r].rank == r
Cost verify(std::span<const Schedule> schedules, const Goal& goal);

}  // namespace aloni::comm

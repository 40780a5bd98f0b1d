#pragma once
// Proves the schedules of all ranks of one operation together, by arithmetic alone, and counts what they cost.
//
//   std::vector<Schedule> all;
//   for (int r = 0; r < p; ++r) { Builder b(r); ring_all_reduce(b, Team::all(r, p), b.output(n)); all.push_back(b.finish()); }
//   const Cost cost = verify(all, all_reduce_goal(p, n));   // throws when anything is wrong
//
// What it shows, for every order in which messages may arrive and steps may run:
//  - each send has its receive, of the same size, and none is left over;
//  - freedom from deadlock even when no message is buffered: a send is complete only when its receive has begun;
//  - the same result always: steps of a rank that touch a common element, one of them writing, depend on each other;
//  - the same between ranks where one combines in the other's memory: messages must order whatever touches it;
//  - nothing is read before it has a value, and each contribution is reduced exactly once: the ranks behind two operands
//    have none in common, and at the end every element has what the goal says.
#include <aloni/core/comm/schedule/schedule.hpp>

#include <cstdint>
#include <span>
#include <vector>

namespace aloni::comm {

/// What one element of a buffer is made of: the reduction over a set of ranks of their element number `element`.
struct Content {
  static constexpr Index undefined = -1;

  Index element = undefined;
  std::uint64_t ranks = 0;  ///< bit r: rank r has contributed

  friend bool operator==(const Content&, const Content&) = default;
};

/// What a rank's buffers hold before and must hold after. Undefined in `after`: anything.
struct RankGoal {
  std::vector<Content> input, output, after;
};

/// What an operation is for. Ranks are 0 … size - 1. @pre size ≤ 64
struct Goal {
  std::vector<RankGoal> ranks;
  bool barrier = false;  ///< no rank may end before all have begun
};

Goal all_reduce_goal(int size, Index count);
Goal reduce_scatter_goal(int size, Index count);
Goal all_gather_goal(int size, Index count);
Goal broadcast_goal(int size, Index count, int root);
/// counts[i][j] elements from rank i to j.
Goal all_to_all_goal(const std::vector<std::vector<Index>>& counts);
Goal barrier_goal(int size);

struct Cost {
  std::vector<Index> elements_sent;  ///< of each rank
  std::vector<int> messages_sent;    ///< of each rank
  int rounds = 0;                    ///< messages on the longest chain of which each waits for the one before

  Index all_elements() const;
  int all_messages() const;
  Index most_elements() const;
  int most_messages() const;
};

/// Throws InvalidArgument that names rank and step of the first thing that is wrong. @pre schedules[r].rank == r
Cost verify(std::span<const Schedule> schedules, const Goal& goal);

}  // namespace aloni::comm

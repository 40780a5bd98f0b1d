#pragma once
// Builds a schedule step by step. The calls are in an order in which one thread could run the steps. The builder
// derives the real dependencies from the regions that the steps touch.
#include <aloni/core/comm/schedule/schedule.hpp>

#include <string_view>
#include <vector>

namespace aloni::comm {

class Builder {
 public:
  explicit Builder(int rank) { schedule_.rank = rank; }

  int rank() const { return schedule_.rank; }

  /// The whole input or output buffer of the caller. Call each at most once.
  Region input(Index count);
  Region output(Index count);
  /// A new region of the engine's memory.
  Region scratch(Index count);

  void send(int peer, Region from);
  void receive(int peer, Region to);
  /// to = from ∘ to, or to = to ∘ from. @pre both have the same count and do not overlap
  void reduce(Region from, Region to, Operands operands);
  /// to = from. @pre both have the same count and do not overlap
  void copy(Region from, Region to);
  /// Lets combine steps of the other `ranks` read and write `r`. Call it at most once; all `ranks` pass the same list.
  /// @pre `ranks` contains this rank once
  void expose(Region r, const std::vector<int>& ranks);
  /// Reduces `own` and the other ranks' exposed elements from `place` on, and writes the result to all of them. The
  /// order is that of recursive doubling over `ranks` as passed to expose(). @pre expose() was called
  void combine(Region own, Index place);
  /// Later steps start after all steps so far are complete, even without common elements (as in a barrier).
  void fence() { fence_ = static_cast<int>(schedule_.steps.size()); }

  /// Returns the schedule and leaves the builder empty.
  Schedule finish();

 private:
  void check(std::string_view function, Region r) const;
  void add(Step step);

  Schedule schedule_;
  int fence_ = 0;  // all later steps depend on the steps before this one
};

}  // namespace aloni::comm

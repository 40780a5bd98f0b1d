#pragma once
// Writes a schedule step by step. The order of the calls is the order in which a single thread could run the steps; from the
// regions that they touch the builder finds which of them must really wait for each other.
#include <aloni/core/comm/schedule/schedule.hpp>

#include <string_view>
#include <vector>

namespace aloni::comm {

class Builder {
 public:
  explicit Builder(int rank) { schedule_.rank = rank; }

  int rank() const { return schedule_.rank; }

  /// The caller's buffers, whole. Called once each at most.
  Region input(Index count);
  Region output(Index count);
  /// Another piece of the engine's memory.
  Region scratch(Index count);

  void send(int peer, Region from);
  void receive(int peer, Region to);
  /// to = from ∘ to, or to ∘ from. @pre from.count == to.count
  void reduce(Region from, Region to, Operands operands);
  /// @pre from.count == to.count, and they don't overlap
  void copy(Region from, Region to);
  /// What combine steps of the other `ranks` may read and write. Called once at most, with equal ranks by all of them.
  /// @pre ranks has this rank
  void expose(Region r, const std::vector<int>& ranks);
  /// own, and on each of the other ranks the elements from `place` on of what they expose, all become the reduction of all,
  /// combined as in recursive doubling over `ranks` in their order. @pre expose() was called
  void combine(Region own, Index place);
  /// What comes later starts after everything so far is complete, whatever it touches (a barrier's rounds touch nothing).
  void fence() { fence_ = static_cast<int>(schedule_.steps.size()); }

  /// The schedule; the builder is empty afterwards.
  Schedule finish();

 private:
  void check(std::string_view function, Region r) const;
  void add(Step step);

  Schedule schedule_;
  int fence_ = 0;  // steps before this one are waited for by all later ones
};

}  // namespace aloni::comm

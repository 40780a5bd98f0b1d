#pragma once
// LoopTeam: threads that run parallel loops, one after the other. A loop ends on all threads before run() returns, as a
// step of a bulk-synchronous program does. The threads live as long as the team, so a loop starts in microseconds.
//
//   LoopTeam team(2);
//   team.run(tiles.size(), [&](Index t) { update(tiles[t]); });
#include <aloni/core/index.hpp>

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

namespace aloni::bench {

class LoopTeam {
 public:
  /// `threads`: the calling one included. Each calls BLAS on itself alone. @pre threads ≥ 1. Throws InvalidArgument.
  explicit LoopTeam(int threads);
  ~LoopTeam();
  LoopTeam(const LoopTeam&) = delete;
  LoopTeam& operator=(const LoopTeam&) = delete;

  /// Calls body(i) once for each 0 ≤ i < count. A thread takes the next number when it is free.
  /// @pre the thread that made the team calls it; `body` does not throw
  void run(Index count, const std::function<void(Index)>& body);

 private:
  void take_numbers();

  const std::function<void(Index)>* body_ = nullptr;
  Index count_ = 0;
  std::atomic<Index> next_{0};
  std::atomic<std::uint32_t> loop_{0};  // number of the running loop
  std::atomic<std::uint32_t> busy_{0};  // threads that have not ended it
  std::atomic<bool> ends_{false};
  std::vector<std::thread> threads_;
};

}  // namespace aloni::bench

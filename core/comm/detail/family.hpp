#pragma once
// What a communicator made by from_mpi() and all that are split from it have in common: the transports, the engine that runs their
// operations, the memory that ranks share, and the board on which failures are posted.
#include <aloni/core/comm/communicator.hpp>
#include <aloni/core/comm/detail/engine.hpp>
#include <aloni/core/comm/detail/poison.hpp>
#include <aloni/core/comm/detail/self_transport.hpp>
#include <aloni/core/comm/detail/shared_transport.hpp>
#include <aloni/core/comm/detail/watch.hpp>
#include <aloni/core/comm/shared_heap.hpp>

#include <mpi.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

namespace aloni::comm::detail {

class Family {
 public:
  /// Collective over `messages` and `poison`, two duplicates made for this family.
  Family(MPI_Comm messages, MPI_Comm poison, const TransportOptions& options);
  Family(const Family&) = delete;
  Family& operator=(const Family&) = delete;
  ~Family();

  /// To be held by whoever uses the engine or the board; costs nothing without a progress thread. Recursive.
  std::unique_lock<std::recursive_mutex> guard() {
    return thread_.joinable() ? std::unique_lock(mutex_) : std::unique_lock<std::recursive_mutex>();
  }
  /// Throws what the progress thread has met.
  void rethrow() {
    if (failed_.load(std::memory_order_acquire)) std::rethrow_exception(failure_);
  }

  int rank() const { return rank_; }
  int size() const { return size_; }
  PoisonBoard& board() { return board_; }
  Engine& engine() { return *engine_; }
  const std::shared_ptr<SharedHeap>& heap() const { return heap_; }
  /// To be called now and then by whoever waits and has seen nothing new: poisons the family when a process of the node has died,
  /// or when nothing has come for longer than the limit.
  void look_around();
  /// Whether this machine has more ranks of the family than cores.
  bool shares_cores() const { return shares_cores_; }
  /// Something has come.
  void note_progress() { waiting_since_ = {}; }
  void set_stuck_after(std::chrono::milliseconds limit) { stuck_after_ = limit; }

  /// By rank: the lowest rank on the same machine.
  const std::vector<int>& node_of() const { return node_of_; }
  /// By rank: the lowest of the ranks that all reach each other's memory.
  const std::vector<int>& island_of() const { return island_of_; }

 private:
  void make_progress();
  void end_together() noexcept;

  MPI_Comm mpi_;
  int rank_ = 0, size_ = 0;
  PoisonBoard board_;
  std::shared_ptr<SharedHeap> heap_;
  SelfTransport self_;
  std::optional<SharedTransport> shared_;
  std::unique_ptr<Transport> messages_;
  bool ends_together_ = false;
  std::vector<int> node_of_, island_of_;
  std::optional<Engine> engine_;
  std::optional<Watch> watch_;
  std::recursive_mutex mutex_;
  std::thread thread_;
  std::atomic<bool> stop_{false}, failed_{false};
  std::exception_ptr failure_;
  std::chrono::milliseconds stuck_after_;
  bool shares_cores_ = false;
  Watch::Clock::time_point waiting_since_{}, last_look_{}, last_published_{}, last_notes_{};
};

}  // namespace aloni::comm::detail

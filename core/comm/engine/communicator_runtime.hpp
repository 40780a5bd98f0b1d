#pragma once
// The state that all communicators of a family share: transports, engine, shared memory, failure detection and the
// poison board. A family is a communicator from from_mpi() and all communicators split from it.
#include <aloni/core/comm/communicator.hpp>
#include <aloni/core/comm/device/device_collectives.hpp>
#include <aloni/core/comm/device/device_heap.hpp>
#include <aloni/core/comm/engine/engine.hpp>
#include <aloni/core/comm/engine/start_up.hpp>
#include <aloni/core/comm/faulty_transport.hpp>
#include <aloni/core/comm/liveness/node_ring.hpp>
#include <aloni/core/comm/liveness/poison.hpp>
#include <aloni/core/comm/liveness/watch.hpp>
#include <aloni/core/comm/shared_heap.hpp>
#include <aloni/core/comm/transport/self_transport.hpp>
#include <aloni/core/comm/transport/shared_transport.hpp>

#include <mpi.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace aloni::comm::detail {

class CommunicatorRuntime {
 public:
  /// A background activity besides the engine's operations.
  class Service {
   public:
    virtual ~Service() = default;
    /// Makes progress without waiting; true if there was any work. Called under the guard.
    virtual bool service() = 0;
  };

  /// `messages` and `poison`: two duplicates made for this family. Collective over both. Throws InvalidArgument if
  /// options differ between ranks, Unsupported (both on all ranks), PeerFailed; CommunicationError on a failing rank.
  CommunicatorRuntime(StartUp& start_up, MPI_Comm messages, MPI_Comm poison, const TransportOptions& options);
  CommunicatorRuntime(const CommunicatorRuntime&) = delete;
  CommunicatorRuntime& operator=(const CommunicatorRuntime&) = delete;
  ~CommunicatorRuntime();

  /// Recursive lock to hold while using the engine or the board. Without a progress thread it is empty and costs
  /// nothing.
  std::unique_lock<std::recursive_mutex> guard() {
    return thread_.joinable() ? std::unique_lock(mutex_) : std::unique_lock<std::recursive_mutex>();
  }
  bool has_thread() const { return thread_.joinable(); }
  /// Rethrows an exception of the progress thread, if any.
  void rethrow() {
    if (failed_.load(std::memory_order_acquire)) std::rethrow_exception(failure_);
  }

  int rank() const { return rank_; }
  int size() const { return size_; }
  PoisonBoard& board() { return board_; }
  /// Poisons under the guard, because the progress thread may use the memory that this frees.
  void poison(std::string_view message) {
    const auto held = guard();
    board_.poison(message);
  }
  /// For errors that the end of another rank may have caused. Poisons with that rank if its failure shows within a
  /// second, otherwise with this rank.
  void poison_unless_peer_failed(std::string_view message);
  Engine& engine() { return *engine_; }
  /// Makes progress in the engine (Engine::progress()) and in all services.
  bool progress() {
    bool any = engine_->progress();
    for (std::size_t i = 0; i < services_.size(); ++i) any |= services_[i]->service();
    if (!device_collectives_.empty() && ++looks_at_collectives_ % 64 == 0) look_at_device_collectives();
    if (any && engine_->advances() != advances_) {
      advances_ = engine_->advances();
      waiting_since_ = {};  // pending operations advance
    }
    return any;
  }
  void add_service(Service& service) { services_.push_back(&service); }
  void remove_service(Service& service) { std::erase(services_, &service); }
  const std::shared_ptr<SharedHeap>& heap() const { return heap_; }
  /// Null in builds without a device.
  const std::shared_ptr<DeviceSharing>& device() const { return device_; }
  /// Null without a device, and if no other rank of this node reaches this rank's memory.
  const std::shared_ptr<DeviceHeap>& device_heap() const { return device_heap_; }
  void set_device(std::shared_ptr<DeviceSharing> device);
  /// Looks for failures of a device library while it makes progress, and aborts it when the family is poisoned.
  void watch(const std::shared_ptr<DeviceCollectives>& collectives);
  /// Checks the other ranks; called from time to time by waits without progress. Poisons the family in two cases. A
  /// process of the node or a neighbouring node has died; or pending operations have not advanced within the limit.
  /// `waits`: whether this rank waits for other ranks; false skips the time limit.
  void look_around(bool waits = true);
  /// Whether this machine has more ranks of the family than cores.
  bool shares_cores() const { return shares_cores_; }
  void set_stuck_after(std::chrono::milliseconds limit) { stuck_after_ = limit; }
  void set_longest_wait(std::chrono::milliseconds limit) { longest_wait_ = limit; }
  /// True for one rank of this node: it prints the failure by which the family was poisoned.
  bool claim_report() { return !watch_ || watch_->claim_report(); }

  /// Largest fragment of messages to other nodes, in bytes, as the transport between nodes has it.
  std::size_t fragment_bytes() const { return fragment_bytes_; }
  /// For each rank, the lowest rank on its node.
  const std::vector<int>& node_of() const { return node_of_; }
  /// For each rank, the lowest rank of its island. The ranks of an island all reach each other's memory.
  const std::vector<int>& island_of() const { return island_of_; }

 private:
  void make_progress();
  void look_at_device_collectives();
  void publish(std::exception_ptr failure);
  bool end_together() noexcept;
  bool works(int rank, Watch::Clock::time_point now);
  void poison_after_last_words(const Watch::Verdict& verdict);
  int who_does_not_wait(Watch::Clock::time_point now, std::span<const int> waited_for) const;
  std::string state_of(int rank, Watch::Clock::time_point now) const;

  MPI_Comm mpi_;
  int rank_, size_;
  PoisonBoard board_;
  std::shared_ptr<SharedHeap> heap_;
  std::shared_ptr<DeviceSharing> device_;
  std::shared_ptr<DeviceHeap> device_heap_;
  SelfTransport self_;
  std::optional<SharedTransport> shared_;
  std::unique_ptr<Transport> messages_;
  std::optional<FaultyTransport> faulty_shared_, faulty_messages_;  // wrap shared_ and messages_ if faults are enabled
  bool sends_messages_ = false;                                     // whether any rank of the family uses messages_
  std::vector<int> node_of_, island_of_;
  std::vector<int> elsewhere_;  // ranks on other nodes, and those that the watch does not see; ascending
  std::optional<Engine> engine_;
  std::vector<Service*> services_;
  std::vector<std::weak_ptr<DeviceCollectives>> device_collectives_;
  unsigned looks_at_collectives_ = 0;
  std::uint64_t advances_ = 0;
  std::optional<Watch> watch_;
  std::optional<NodeRing> ring_;
  std::recursive_mutex mutex_;
  std::thread thread_;
  std::atomic<bool> stop_{false}, failed_{false};
  std::exception_ptr failure_;
  std::chrono::milliseconds stuck_after_, longest_wait_;
  int exceptions_ = std::uncaught_exceptions();  // at construction
  bool shares_cores_ = false;
  std::size_t fragment_bytes_;
  Watch::Clock::time_point waiting_since_{}, last_look_{}, last_published_{}, last_notes_{}, asked_{}, last_excused_{};
};

}  // namespace aloni::comm::detail

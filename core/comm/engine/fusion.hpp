#pragma once
// Fusion: joins several small all-reduces into one. Rank 0 alone forms the groups, because time and waiting differ
// between ranks. It closes a group when the buffer is full, when 0.5 ms have passed, or when rank 0 waits for a member.
// Then it sends the number of members to the other ranks (a message of four bytes).
#include <aloni/core/comm/collectives.hpp>
#include <aloni/core/comm/engine/engine.hpp>
#include <aloni/core/comm/reduction.hpp>

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace aloni::comm::detail {

class Fusion {
 public:
  using Clock = std::chrono::steady_clock;
  using Finish = Engine::Call::Finish;
  /// Function of the communicator that starts an all-reduce of one buffer.
  using Start = std::function<void(std::span<std::byte> data, const ElementOperation& operation,
                                   const CollectiveOptions& options, const Finish& finish)>;

  Fusion(Engine& engine, Engine::Context& context, std::pmr::memory_resource& memory, Start start);
  ~Fusion();

  /// Whether all-reduces of `bytes` are fused; equal on all ranks.
  static bool takes(std::size_t bytes);

  Engine::Handle add(std::span<std::byte> data, const ElementOperation& operation, const CollectiveOptions& options,
                     const Finish& finish);
  bool empty() const { return members_.empty(); }
  /// Makes progress without waiting. `wanted`: this rank waits, so rank 0 closes the group at once.
  void service(bool wanted);

 private:
  struct Member {
    std::span<std::byte> data;
    ElementOperation operation;
    CollectiveOptions options;
    Finish finish;
    Engine::Handle handle;

    bool fits(const Member& other) const;
  };
  struct Group;
  struct Buffers;

  void launch(std::size_t count);
  static void distribute(void*, void* target, std::size_t, std::size_t, double);

  Engine& engine_;
  Engine::Context& context_;
  Start start_;
  std::shared_ptr<Buffers> buffers_;
  std::deque<Member> members_;
  std::size_t bytes_ = 0;  // of members
  Clock::time_point oldest_{};

  // Numbers of members: rank 0 keeps the pending sends, the other ranks one expected receive.
  std::uint32_t fused_count_ = 0;
  bool expects_fused_count_ = false;
  Engine::Handle fused_count_message_;
  std::deque<std::pair<std::uint32_t, std::vector<Engine::Handle>>> fused_counts_;
};

}  // namespace aloni::comm::detail

#pragma once
// Small all-reduces that are started one after the other travel as one. Which belong together is decided by rank 0 alone, when enough
// have gathered, enough time has passed, or somebody waits for one there; it tells the others how many to take (a message of four
// bytes), because what a rank sees of time and of waiting differs from rank to rank.
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
  /// Starts an all-reduce of one buffer; the communicator's.
  using Start = std::function<void(std::span<std::byte> data, const ElementOperation& operation,
                                   const CollectiveOptions& options, const Finish& finish)>;

  Fusion(Engine& engine, Engine::Context& context, std::pmr::memory_resource& memory, Start start);
  ~Fusion();

  /// Whether data of so many bytes are worth fusing; equal on all ranks.
  static bool takes(std::size_t bytes);

  Engine::Handle add(std::span<std::byte> data, const ElementOperation& operation, const CollectiveOptions& options,
                     const Finish& finish);
  bool empty() const { return members_.empty(); }
  /// To be called whenever there is time. `wanted`: somebody waits.
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

  // On rank 0 those that leave, elsewhere the one that is expected.
  std::uint32_t fused_count_ = 0;
  bool expects_fused_count_ = false;
  Engine::Handle fused_count_message_;
  std::deque<std::pair<std::uint32_t, std::vector<Engine::Handle>>> fused_counts_;
};

}  // namespace aloni::comm::detail

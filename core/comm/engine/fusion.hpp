#pragma once
// Fusion: joins several small all-reduces into one. Rank 0 alone forms the groups, because time and waiting differ
// between ranks. It closes a group when the buffer is full, when 0.5 ms have passed, or when rank 0 waits for a member.
// Then it sends the number of members to the other ranks, with a digest of the list and its first members. A rank whose
// own list differs throws an error that names both. The digest is also a part of the contract of the joined all-reduce.
#include <aloni/core/comm/collectives.hpp>
#include <aloni/core/comm/engine/engine.hpp>
#include <aloni/core/comm/reduction.hpp>

#include <array>
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
                                   const CollectiveOptions& options, const Finish& finish, std::uint32_t digest)>;

  Fusion(Engine& engine, Engine::Context& context, std::pmr::memory_resource& memory, Start start);
  ~Fusion();

  /// Whether all-reduces of `bytes` are fused; equal on all ranks.
  static bool takes(std::size_t bytes);

  Engine::Handle add(std::span<std::byte> data, const ElementOperation& operation, const CollectiveOptions& options,
                     const Finish& finish);
  bool empty() const { return members_.empty(); }
  /// Makes progress without waiting. `wanted`: this rank waits, so rank 0 closes the group at once.
  void service(bool wanted);
  /// Throws CommunicationError if rank 0 has fused more members than this rank has started. Called before another
  /// operation `next` starts, and before a wait for a member.
  void check_closed(const char* next) const;
  /// Whether the handle is that of a member that has not been launched.
  bool has(Engine::Handle handle) const;

 private:
  struct Member {
    std::span<std::byte> data;
    ElementOperation operation;
    CollectiveOptions options;
    Finish finish;
    Engine::Handle handle;

    bool fits(const Member& other) const;
    Contract contract() const;
  };
  /// The form of a member, as rank 0 sends it.
  struct Form {
    std::uint32_t elements = 0;
    std::uint8_t type = 0, reduction = 0, variant = 0, unused = 0;

    friend bool operator==(const Form&, const Form&) = default;
  };
  /// The message of rank 0 that closes a group.
  struct Closing {
    std::uint32_t count = 0;  ///< number of members; 0: no message
    std::uint32_t digest = 0;
    std::array<Form, 16> first{};  ///< the first members, for error texts
  };
  struct Group;
  struct Buffers;

  static Form form_of(const Contract& c);
  static Contract contract_of(const Form& f);
  Closing closing_of(std::size_t count) const;
  void check_members(const Closing& ours) const;
  void launch(std::size_t count);
  static void distribute(void*, void* target, std::size_t, std::size_t, double);

  Engine& engine_;
  Engine::Context& context_;
  Start start_;
  std::shared_ptr<Buffers> buffers_;
  std::deque<Member> members_;
  std::size_t bytes_ = 0;  // of members
  Clock::time_point oldest_{};

  // Rank 0 keeps the pending sends, the other ranks one expected receive.
  Closing closing_;
  bool expects_closing_ = false;
  Engine::Handle closing_message_;
  std::deque<std::pair<Closing, std::vector<Engine::Handle>>> closings_;
};

}  // namespace aloni::comm::detail

#pragma once
// The state behind a Communicator: the shared runtime, the numbering of operations, cached plans, and all waiting.
#include <aloni/core/comm/communicator.hpp>
#include <aloni/core/comm/engine/communicator_runtime.hpp>
#include <aloni/core/comm/engine/fusion.hpp>
#include <aloni/core/comm/engine/plans.hpp>
#include <aloni/core/error.hpp>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace aloni::comm {

namespace detail {

inline Request request_of(Engine::Handle h) { return {h.slot, h.generation, true}; }

/// A collective that can be started any number of times, but only once at a time.
struct Prepared {
  /// Local work before the collective: f(from, to, count).
  struct Begin {
    void (*f)(const void* from, void* to, std::size_t count) = nullptr;
    const void* from = nullptr;
    void* to = nullptr;
    std::size_t count = 0;

    void operator()() const {
      if (f) f(from, to, count);
    }
  };
  Begin begin = {};
  Engine::Call call;
  bool alone = false;  ///< the communicator has one rank: only `begin` and `call.finish` run
};

}  // namespace detail

struct Communicator::State {
  /// `root_ranks[r]`: rank of r in the root communicator. `id`: equal on all ranks and unique in the family.
  State(std::shared_ptr<detail::CommunicatorRuntime> runtime, std::uint32_t id, std::vector<int> root_ranks);
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State();

  /// A communicator of this one's ranks `members`, in this order.
  Communicator child(std::uint64_t salt, const std::vector<int>& members) const;

  /// Whether an all-reduce must combine in the order of ranks. A user's function need not be commutative. It gets
  /// another order only if the options name an algorithm with another order.
  static bool keeps_order(const CollectiveOptions& options, const ElementOperation& operation) {
    return options.reproducible ||
           (operation.type == ElementType::user && options.algorithm == AllReduceAlgorithm::automatic);
  }
  /// An all-reduce in place. The options or the size determine the algorithm.
  detail::Prepared prepare_all_reduce(const char* name, std::span<std::byte> data, const ElementOperation& operation,
                                      const CollectiveOptions& options, const detail::Engine::Call::Finish& finish);
  /// A collective of the library, in place if `input` is empty. `key`: without element_bytes and count.
  detail::Prepared prepare(const char* name, detail::PlanKey key, std::span<std::byte> data,
                           const ElementOperation& operation, const detail::Engine::Call::Finish& finish = {},
                           int priority = 0, std::span<const std::byte> input = {});
  /// A schedule of the user. `contract`: without the plan. `identity`: equal on all ranks.
  detail::Prepared prepare(const char* name, const Schedule& schedule, const Contract& contract, std::uint32_t identity,
                           std::span<const std::byte> input, std::span<std::byte> output,
                           const ElementOperation& operation, int priority);
  Request start(detail::Prepared collective);
  /// Starts an all-reduce, alone or fused with others.
  Request start_all_reduce(const char* name, std::span<std::byte> data, const ElementOperation& operation,
                           const CollectiveOptions& options, const detail::Engine::Call::Finish& finish);
  /// Starts all waiting fused operations. Called before any other collective, so that all ranks keep one order.
  void close_fusion(const char* name);
  /// Makes progress; looks for poison from time to time. Poisons before it throws a CommunicationError, because the
  /// other ranks cannot see that error.
  bool test(detail::Engine::Handle handle, std::string_view operation);
  void wait(detail::Engine::Handle handle, std::string_view operation);
  /// Waits until done() returns true. `done` is called under the guard.
  void wait_for(std::string_view operation, const std::function<bool()>& done);
  /// Throws PeerFailed if the family is poisoned. `look`: receive new poison first.
  void check_poison(std::string_view operation, bool look);
  /// Throws PeerFailed. The family is poisoned.
  [[noreturn]] void throw_poison(std::string_view operation) const;
  /// Runs `f`. If it throws a CommunicationError, poisons the communicator and rethrows. Instead of PeerMemoryLost it
  /// throws PeerFailed if the other rank has failed.
  template <class F>
  decltype(auto) poisoning(F&& f) {
    try {
      return f();
    } catch (const PeerMemoryLost& error) {
      runtime->poison_unless_peer_failed(error.what());
      if (runtime->board().failed_rank() != runtime->rank()) throw_poison(error.operation());
      throw;
    } catch (const CommunicationError& error) {
      runtime->poison(error.what());
      throw;
    }
  }

  std::shared_ptr<detail::CommunicatorRuntime> runtime;
  detail::Engine::Context* context;
  int rank = 0, size = 0;
  detail::Plans plans;
  detail::Fusion fusion;
  std::uint64_t children = 0;                        // communicators made by all ranks together
  std::map<std::uint64_t, std::uint32_t> subgroups;  // number of subgroups for each set of members
  // None: not made yet. It lives as long as this communicator: its users end at different times on different ranks.
  std::optional<std::shared_ptr<detail::DeviceCollectives>> device_collectives;

 private:
  Request launch(detail::Engine::Call call);
  template <class F>
  void wait_until(std::string_view operation, F&& done);

  unsigned idle_tests_ = 0;
  int close_looks_;
};

}  // namespace aloni::comm

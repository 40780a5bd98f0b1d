#pragma once
// What a Communicator points to: its place in the family, its numbering, its plans, and the one way to wait.
#include <aloni/core/comm/communicator.hpp>
#include <aloni/core/comm/engine/communicator_runtime.hpp>
#include <aloni/core/comm/engine/fusion.hpp>
#include <aloni/core/comm/engine/plans.hpp>
#include <aloni/core/error.hpp>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace aloni::comm {

namespace detail {

inline Request request_of(Engine::Handle h) { return {h.slot, h.generation, true}; }

/// A collective that can be started, any number of times, one at a time.
struct Prepared {
  /// What comes first, here: f(from, to, count).
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
  bool alone = false;  ///< on the only rank: there is nothing between the beginning and the end
};

}  // namespace detail

struct Communicator::State {
  /// `root_ranks[r]`: rank r in the root communicator. `id`: equal on all ranks, different from all others of the family.
  State(std::shared_ptr<detail::CommunicatorRuntime> runtime, std::uint32_t id, std::vector<int> root_ranks);
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State();

  /// A communicator of the ranks `members` of this one, in this order.
  Communicator child(std::uint64_t salt, const std::vector<int>& members) const;

  /// Whether an all-reduce must keep the order of ranks: functions of the user's needn't be commutative.
  static bool keeps_order(const CollectiveOptions& options, const ElementOperation& operation) {
    return options.reproducible ||
           (operation.type == ElementType::user && options.algorithm == AllReduceAlgorithm::automatic);
  }
  /// An all-reduce in place, by the algorithm that the options or the size choose.
  detail::Prepared prepare_all_reduce(const char* name, std::span<std::byte> data, const ElementOperation& operation,
                                      const CollectiveOptions& options, const detail::Engine::Call::Finish& finish);
  /// A collective of which the library knows the plan. `key` without counts. In place unless there is an input.
  detail::Prepared prepare(const char* name, detail::PlanKey key, std::span<std::byte> data,
                           const ElementOperation& operation, const detail::Engine::Call::Finish& finish = {},
                           int priority = 0, std::span<const std::byte> input = {});
  /// Any schedule. `contract` without the plan; `identity` equal on all ranks.
  detail::Prepared prepare(const char* name, const Schedule& schedule, const Contract& contract, std::uint32_t identity,
                           std::span<const std::byte> input, std::span<std::byte> output,
                           const ElementOperation& operation, int priority);
  Request start(detail::Prepared collective);
  /// As start(prepare_all_reduce(...)), or together with others.
  Request start_all_reduce(const char* name, std::span<std::byte> data, const ElementOperation& operation,
                           const CollectiveOptions& options, const detail::Engine::Call::Finish& finish);
  /// Before any other collective: what waits to be fused comes first, on all ranks.
  void close_fusion(const char* name);
  /// Makes progress; now and then looks for poison. A CommunicationError poisons before it is thrown: the peers cannot see it.
  bool test(detail::Engine::Handle handle, std::string_view operation);
  void wait(detail::Engine::Handle handle, std::string_view operation);
  /// `done` is asked under the guard.
  void wait_for(std::string_view operation, const std::function<bool()>& done);
  /// Throws PeerFailed when poison is known; looks for it first if told so.
  void check_poison(std::string_view operation, bool look);
  /// Runs `f`; a CommunicationError in it poisons the communicator.
  template <class F>
  decltype(auto) poisoning(F&& f) {
    try {
      return f();
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
  std::uint64_t children = 0;                        // made by all its ranks together
  std::map<std::uint64_t, std::uint32_t> subgroups;  // how many with these members

 private:
  Request launch(detail::Engine::Call call);
  template <class F>
  void wait_until(std::string_view operation, F&& done);

  unsigned idle_tests_ = 0;
  int close_looks_;
};

}  // namespace aloni::comm

#pragma once
// What a Communicator points to: its place in the family, its numbering, its plans, and the one way to wait.
#include <aloni/core/comm/communicator.hpp>
#include <aloni/core/comm/detail/family.hpp>
#include <aloni/core/comm/detail/plans.hpp>
#include <aloni/core/error.hpp>

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace aloni::comm {

struct Communicator::State {
  /// `root_ranks[r]`: rank r in the root communicator. `id`: equal on all ranks, different from all others of the family.
  State(std::shared_ptr<detail::Family> family, std::uint32_t id, std::vector<int> root_ranks);
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State();

  /// A communicator of the ranks `members` of this one, in this order.
  Communicator child(std::uint64_t salt, const std::vector<int>& members) const;

  /// @pre size > 1. `contract` without the plan.
  detail::Engine::Handle start(const char* name, const std::shared_ptr<const detail::Plan>& plan, Contract contract,
                               const void* input, void* output, const detail::Reducer& reducer, int priority = 0);
  /// A collective on bytes, in place, that moves them only. `key` without the count.
  void run(const char* name, detail::PlanKey key, std::span<std::byte> data);
  /// Makes progress; now and then looks for poison. A CommunicationError poisons before it is thrown: the peers cannot see it.
  bool test(detail::Engine::Handle handle, std::string_view operation);
  void wait(detail::Engine::Handle handle, std::string_view operation);
  /// Throws PeerFailed when poison is known; looks for it first if told so.
  void check_poison(std::string_view operation, bool look);
  /// Runs `f`; a CommunicationError in it poisons the communicator.
  template <class F>
  decltype(auto) poisoning(F&& f) {
    try {
      return f();
    } catch (const CommunicationError& error) {
      family->board().poison(error.what());
      throw;
    }
  }

  std::shared_ptr<detail::Family> family;
  detail::Engine::Context* context;
  int rank = 0, size = 0;
  detail::Plans plans;
  std::map<std::uint64_t, std::uint32_t> subgroups;  // how many with these members

 private:
  unsigned idle_tests_ = 0;
};

}  // namespace aloni::comm

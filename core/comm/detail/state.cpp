#include <aloni/core/comm/detail/state.hpp>

#include <algorithm>
#include <string>
#include <thread>
#include <utility>

namespace aloni::comm {

namespace {

// In a wait, the engine is asked closely at first (some 50 µs without anything new, longer than a step of a transfer takes);
// after that the core is given away each time, and every so often one looks for poison.
constexpr int close_looks = 1000;
constexpr int looks_per_poison = 32;

detail::Topology topology_of(const detail::Family& family, const std::vector<int>& root_ranks) {
  detail::Topology t{.root_ranks = root_ranks};
  std::map<int, std::vector<int>> nodes;
  for (std::size_t r = 0; r < root_ranks.size(); ++r) {
    const auto root = static_cast<std::size_t>(root_ranks[r]);
    if (root_ranks[r] == family.rank()) t.rank = static_cast<int>(r);
    nodes[family.node_of()[root]].push_back(static_cast<int>(r));
  }
  for (auto& [leader, ranks] : nodes) t.nodes.push_back(std::move(ranks));
  t.one_island = std::ranges::all_of(root_ranks, [&](int root) {
    return family.island_of()[static_cast<std::size_t>(root)] ==
           family.island_of()[static_cast<std::size_t>(root_ranks.front())];
  });
  return t;
}

}  // namespace

Communicator::State::State(std::shared_ptr<detail::Family> f, std::uint32_t id, std::vector<int> root_ranks)
    : family(std::move(f)),
      context(&family->engine().add_context(id, std::move(root_ranks))),
      rank(context->rank),
      size(static_cast<int>(context->root_ranks.size())),
      plans(topology_of(*family, context->root_ranks)) {}

Communicator::State::~State() { family->engine().remove_context(*context); }

Communicator Communicator::State::child(std::uint64_t salt, const std::vector<int>& members) const {
  std::vector<int> root_ranks;
  for (const int member : members) root_ranks.push_back(context->root_ranks[static_cast<std::size_t>(member)]);
  std::uint64_t id = (salt ^ context->id) * 0x9e3779b97f4a7c15u;
  id = (id ^ id >> 32) | 1;  // never the root's, 0
  return Communicator(std::make_shared<State>(family, static_cast<std::uint32_t>(id), std::move(root_ranks)));
}

detail::Engine::Handle Communicator::State::start(const char* name, const std::shared_ptr<const detail::Plan>& plan,
                                                  Contract contract, const void* input, void* output,
                                                  const detail::Reducer& reducer, int priority) {
  contract.plan = plan->hash;
  return poisoning([&] {
    return family->engine().start(*context, {.name = name,
                                             .contract = contract,
                                             .whole = &plan->whole,
                                             .last = &plan->last,
                                             .parts = plan->parts,
                                             .part_elements = plan->part_elements,
                                             .input = input,
                                             .output = output,
                                             .reducer = reducer,
                                             .priority = priority,
                                             .owner = plan});
  });
}

void Communicator::State::run(const char* name, detail::PlanKey key, std::span<std::byte> data) {
  check_poison(name, false);
  if (size == 1) return;
  key.count = static_cast<Index>(data.size());
  const Contract contract{
      .kind = key.kind, .root = static_cast<std::uint8_t>(key.root), .count = static_cast<std::uint64_t>(key.count)};
  wait(start(name, plans.get(key), contract, data.data(), data.data(), {}), name);
}

void Communicator::State::check_poison(std::string_view operation, bool look) {
  detail::PoisonBoard& board = family->board();
  if (look) poisoning([&] { board.look(); });
  if (!board.poisoned()) return;
  throw PeerFailed(std::string(operation), context->rank_of(board.failed_rank()), board.message(), board.failed_rank());
}

bool Communicator::State::test(detail::Engine::Handle handle, std::string_view operation) {
  check_poison(operation, false);
  detail::Engine& engine = family->engine();
  if (engine.test(handle)) return true;
  if (poisoning([&] { return engine.progress(); })) family->note_progress();
  if (engine.test(handle)) return true;
  if (++idle_tests_ % looks_per_poison == 0) {
    family->look_around();
    check_poison(operation, true);
  }
  return false;
}

void Communicator::State::wait(detail::Engine::Handle handle, std::string_view operation) {
  check_poison(operation, false);
  detail::Engine& engine = family->engine();
  poisoning([&] {
    bool complete = false;
    for (int idle = 0; !(complete = complete || engine.test(handle)) || !engine.flushed();) {
      if (engine.progress()) {
        idle = 0;
        family->note_progress();
        continue;
      }
      if (++idle <= close_looks) continue;
      if (idle % looks_per_poison == 0) {
        family->look_around();
        check_poison(operation, true);
      }
      std::this_thread::yield();
    }
  });
}

}  // namespace aloni::comm

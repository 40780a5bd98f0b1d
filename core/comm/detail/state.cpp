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
// The same where ranks have to share cores: those that are waited for need this one.
constexpr int close_looks_when_shared = 16;
constexpr int looks_per_poison = 32, busy_looks_per_poison = 1024;

// A root may be ahead of the slowest rank by so much.
constexpr std::size_t max_run_ahead_bytes = std::size_t{1} << 20, run_ahead_bytes_per_call = 16 * 1024;

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

/// Functions of the user's needn't be commutative: only who asks for an algorithm that keeps no order gets one.
bool keeps_order(const CollectiveOptions& options, const ElementOperation& operation) {
  return options.reproducible ||
         (operation.type == ElementType::user && options.algorithm == AllReduceAlgorithm::automatic);
}

detail::Engine::Context* add_context(detail::Family& family, std::uint32_t id, std::vector<int> root_ranks) {
  const auto guard = family.guard();
  return &family.engine().add_context(id, std::move(root_ranks));
}

}  // namespace

Communicator::State::State(std::shared_ptr<detail::Family> f, std::uint32_t id, std::vector<int> root_ranks)
    : family(std::move(f)),
      context(add_context(*family, id, std::move(root_ranks))),
      rank(context->rank),
      size(static_cast<int>(context->root_ranks.size())),
      plans(topology_of(*family, context->root_ranks)),
      fusion(family->engine(), *context, *family->heap(),
             [this](std::span<std::byte> data, const ElementOperation& operation, const CollectiveOptions& options,
                    const detail::Engine::Call::Finish& finish) {
               launch_all_reduce("aloni::comm::Communicator::all_reduce", data, operation, options, finish);
             }),
      close_looks_(family->shares_cores() ? close_looks_when_shared : close_looks) {}

Communicator::State::~State() {
  const auto guard = family->guard();
  family->engine().remove_context(*context);
}

Communicator Communicator::State::child(std::uint64_t salt, const std::vector<int>& members) const {
  std::vector<int> root_ranks;
  for (const int member : members) root_ranks.push_back(context->root_ranks[static_cast<std::size_t>(member)]);
  std::uint64_t id = (salt ^ context->id) * 0x9e3779b97f4a7c15u;
  id = (id ^ id >> 32) | 1;  // never the root's, 0
  return Communicator(std::make_shared<State>(family, static_cast<std::uint32_t>(id), std::move(root_ranks)));
}

Request Communicator::State::start(const char* name, const std::shared_ptr<const detail::Plan>& plan, Contract contract,
                                   detail::Engine::Call call) {
  // The user's functions are told apart by their types.
  contract.plan = plan->hash ^ call.operation.identity;
  call.name = name;
  call.contract = contract;
  call.whole = &plan->whole;
  call.last = &plan->last;
  call.parts = plan->parts;
  call.part_elements = plan->part_elements;
  call.owner = plan;
  const auto guard = family->guard();
  return poisoning([&] { return detail::request_of(family->engine().start(*context, call)); });
}

Request Communicator::State::start_all_reduce(const char* name, std::span<std::byte> data,
                                              const ElementOperation& operation, const CollectiveOptions& options,
                                              const detail::Engine::Call::Finish& finish) {
  check_poison(name, false);
  (void)plans.choose(options.algorithm, data.size(), keeps_order(options, operation));  // throws on any number of ranks
  if (size == 1) {
    if (finish.f) finish.f(data.data(), finish.target, finish.elements, finish.scale);
    return {};
  }
  if (options.fuse && detail::Fusion::takes(data.size())) {
    detail::Engine::Handle handle{};
    const auto guard = family->guard();
    poisoning([&] {
      handle = fusion.add(data, operation, options, finish);
      fusion.service(false);
    });
    return detail::request_of(handle);
  }
  close_fusion(name);
  return launch_all_reduce(name, data, operation, options, finish);
}

Request Communicator::State::launch_all_reduce(const char* name, std::span<std::byte> data,
                                               const ElementOperation& operation, const CollectiveOptions& options,
                                               const detail::Engine::Call::Finish& finish) {
  return start(name, plan_all_reduce(data, operation, options),
               contract_of(OperationKind::all_reduce, operation, data.size() / operation.element_bytes),
               {.input = data.data(),
                .output = data.data(),
                .operation = operation,
                .priority = options.priority,
                .finish = finish});
}

Contract Communicator::State::contract_of(OperationKind kind, const ElementOperation& operation, std::size_t count) {
  return {.kind = kind,
          .reduction = static_cast<std::uint8_t>(operation.reduction),
          .type = static_cast<std::uint8_t>(operation.type),
          .count = count};
}

std::shared_ptr<const detail::Plan> Communicator::State::plan_all_reduce(std::span<std::byte> data,
                                                                         const ElementOperation& operation,
                                                                         const CollectiveOptions& options) {
  const AllReduceAlgorithm algorithm = plans.choose(options.algorithm, data.size(), keeps_order(options, operation));
  const bool staged =
      algorithm == AllReduceAlgorithm::direct && family->heap()->address_of(data.data(), data.size()).descriptor < 0;
  return plans.get({.kind = OperationKind::all_reduce,
                    .algorithm = algorithm,
                    .staged = staged,
                    .element_bytes = static_cast<std::uint32_t>(operation.element_bytes),
                    .count = static_cast<Index>(data.size() / operation.element_bytes),
                    .part_elements = options.part_elements});
}

Request Communicator::State::start(const char* name, detail::PlanKey key, std::span<std::byte> data,
                                   const ElementOperation& operation, const detail::Engine::Call::Finish& finish,
                                   int priority, std::span<const std::byte> input) {
  check_poison(name, false);
  const std::byte* const from = input.data() ? input.data() : data.data();
  if (size == 1) {
    if (from != data.data()) std::ranges::copy(input, data.begin());
    return {};
  }
  close_fusion(name);
  key.element_bytes = static_cast<std::uint32_t>(operation.element_bytes);
  key.count = static_cast<Index>(data.size() / operation.element_bytes);
  if (key.kind == OperationKind::broadcast) {
    // Nothing else keeps a root from running ahead, and the others from storing what they don't wait for yet.
    run_ahead_bytes_ += data.size() + run_ahead_bytes_per_call;
    key.meets = run_ahead_bytes_ > max_run_ahead_bytes;
    if (key.meets) run_ahead_bytes_ = 0;
  }
  return start(name, plans.get(key),
               {.kind = key.kind,
                .reduction = static_cast<std::uint8_t>(operation.reduction),
                .type = static_cast<std::uint8_t>(operation.type),
                .root = static_cast<std::uint8_t>(key.root),
                .count = static_cast<std::uint64_t>(key.count)},
               {.input = from, .output = data.data(), .operation = operation, .priority = priority, .finish = finish});
}

Request Communicator::State::start(const char* name, const Schedule& schedule, const Contract& contract,
                                   std::uint32_t identity, std::span<const std::byte> input,
                                   std::span<std::byte> output, const ElementOperation& operation, int priority) {
  check_poison(name, false);
  close_fusion(name);
  return start(name, plans.get(schedule, identity), contract,
               {.input = input.data(), .output = output.data(), .operation = operation, .priority = priority});
}

void Communicator::State::check_poison(std::string_view operation, bool look) {
  poisoning([&] { family->rethrow(); });
  detail::PoisonBoard& board = family->board();
  if (look) poisoning([&] { board.look(); });
  if (!board.poisoned()) return;
  throw PeerFailed(std::string(operation), context->rank_of(board.failed_rank()), board.message(), board.failed_rank());
}

template <class F>
void Communicator::State::wait_until(std::string_view operation, F&& done) {
  check_poison(operation, false);
  poisoning([&] {
    for (int idle = 0, busy = 0;;) {
      {
        const auto guard = family->guard();
        if (done()) return;
        const bool any = family->progress();
        idle = any ? 0 : idle + 1;
        // What comes without end isn't necessarily what is waited for.
        if (any ? ++busy % busy_looks_per_poison == 0 : idle > close_looks_ && idle % looks_per_poison == 0) {
          family->look_around();
          check_poison(operation, true);
        }
        if (idle <= close_looks_) continue;
      }
      std::this_thread::yield();
    }
  });
}

void Communicator::State::wait_for(std::string_view operation, const std::function<bool()>& done) {
  wait_until(operation, done);
}

void Communicator::State::close_fusion(const char* name) {
  if (fusion.empty()) return;
  {
    const auto guard = family->guard();
    poisoning([&] { fusion.service(true); });
  }
  if (!fusion.empty())
    wait_until(name, [&] {
      fusion.service(true);
      return fusion.empty();
    });
}

bool Communicator::State::test(detail::Engine::Handle handle, std::string_view operation) {
  check_poison(operation, false);
  detail::Engine& engine = family->engine();
  const auto guard = family->guard();
  if (engine.test(handle)) return true;
  poisoning([&] {
    if (!fusion.empty()) fusion.service(true);
    family->progress();
  });
  if (engine.test(handle)) return true;
  if (++idle_tests_ % looks_per_poison == 0) {
    family->look_around();
    check_poison(operation, true);
  }
  return false;
}

void Communicator::State::wait(detail::Engine::Handle handle, std::string_view operation) {
  detail::Engine& engine = family->engine();
  bool complete = false;
  wait_until(operation, [&] {
    complete = complete || engine.test(handle);
    if (complete) return engine.flushed();
    if (!fusion.empty()) fusion.service(true);
    return false;
  });
}

}  // namespace aloni::comm

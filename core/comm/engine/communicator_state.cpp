#include <aloni/core/comm/engine/communicator_state.hpp>

#include <aloni/core/give_way.hpp>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

namespace aloni::comm {

namespace {

// A wait first polls the engine without yielding (about 50 µs without progress, longer than a step of a transfer).
// After that it yields the core after each poll, and looks for poison at intervals.
constexpr int close_looks = 1000;
// For ranks that share cores: the other ranks need this core.
constexpr int close_looks_when_shared = 16;
constexpr int looks_per_poison = 32, busy_looks_per_poison = 1024;

detail::Topology topology_of(const detail::CommunicatorRuntime& runtime, const std::vector<int>& root_ranks) {
  detail::Topology t{.root_ranks = root_ranks};
  std::map<int, std::vector<int>> nodes;
  for (std::size_t r = 0; r < root_ranks.size(); ++r) {
    const auto root = static_cast<std::size_t>(root_ranks[r]);
    if (root_ranks[r] == runtime.rank()) t.rank = static_cast<int>(r);
    nodes[runtime.node_of()[root]].push_back(static_cast<int>(r));
  }
  for (auto& [leader, ranks] : nodes) t.nodes.push_back(std::move(ranks));
  t.one_island = std::ranges::all_of(root_ranks, [&](int root) {
    return runtime.island_of()[static_cast<std::size_t>(root)] ==
           runtime.island_of()[static_cast<std::size_t>(root_ranks.front())];
  });
  return t;
}

void copy_bytes(const void* from, void* to, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

void set_plan(detail::Engine::Call& call, const std::shared_ptr<const detail::Plan>& plan) {
  call.contract.plan = plan->hash ^ call.operation.identity;  // identity: hash of the types of a user's function
  call.whole = &plan->whole;
  call.last = &plan->last;
  call.parts = plan->parts;
  call.part_elements = plan->part_elements;
  call.owner = plan;
}

detail::Engine::Context* add_context(detail::CommunicatorRuntime& runtime, std::uint32_t id,
                                     std::vector<int> root_ranks) {
  const auto guard = runtime.guard();
  return &runtime.engine().add_context(id, std::move(root_ranks));
}

}  // namespace

Communicator::State::State(std::shared_ptr<detail::CommunicatorRuntime> f, std::uint32_t id,
                           std::vector<int> root_ranks)
    : runtime(std::move(f)),
      context(add_context(*runtime, id, std::move(root_ranks))),
      rank(context->rank),
      size(static_cast<int>(context->root_ranks.size())),
      plans(topology_of(*runtime, context->root_ranks)),
      fusion(runtime->engine(), *context, *runtime->heap(),
             [this](std::span<std::byte> data, const ElementOperation& operation, const CollectiveOptions& options,
                    const detail::Engine::Call::Finish& finish, std::uint32_t digest) {
               detail::Engine::Call call =
                   prepare_all_reduce("aloni::comm::AllReduce", data, operation, options, finish).call;
               call.contract.variant |= Contract::fused;
               call.contract.plan ^= digest;
               launch(std::move(call));
             }),
      close_looks_(runtime->shares_cores() ? close_looks_when_shared : close_looks) {}

Communicator::State::~State() {
  const auto guard = runtime->guard();
  runtime->engine().remove_context(*context);
}

Communicator Communicator::State::child(std::uint64_t salt, const std::vector<int>& members) const {
  std::vector<int> root_ranks;
  for (const int member : members) root_ranks.push_back(context->root_ranks[static_cast<std::size_t>(member)]);
  std::uint64_t id = (salt ^ context->id) * 0x9e3779b97f4a7c15u;
  id = (id ^ id >> 32) | 1;  // never 0, the id of the root communicator
  return Communicator(std::make_shared<State>(runtime, static_cast<std::uint32_t>(id), std::move(root_ranks)));
}

detail::Prepared Communicator::State::prepare_all_reduce(const char* name, std::span<std::byte> data,
                                                         const ElementOperation& operation,
                                                         const CollectiveOptions& options,
                                                         const detail::Engine::Call::Finish& finish) {
  const AllReduceAlgorithm algorithm =
      plans.choose(name, options.algorithm, data.size(), keeps_order(options, operation)).algorithm;
  const bool staged =
      algorithm == AllReduceAlgorithm::direct && runtime->heap()->address_of(data.data(), data.size()).descriptor < 0;
  detail::Prepared p = prepare(name,
                               {.kind = OperationKind::all_reduce,
                                .algorithm = algorithm,
                                .staged = staged,
                                .part_elements = options.part_elements},
                               data, operation, finish, options.priority);
  p.call.contract.variant = static_cast<std::uint8_t>(static_cast<int>(algorithm) * Contract::algorithm_unit +
                                                      (options.reproducible ? Contract::reproducible : 0));
  return p;
}

detail::Prepared Communicator::State::prepare(const char* name, detail::PlanKey key, std::span<std::byte> data,
                                              const ElementOperation& operation,
                                              const detail::Engine::Call::Finish& finish, int priority,
                                              std::span<const std::byte> input) {
  const std::byte* const from = input.data() ? input.data() : data.data();
  key.element_bytes = static_cast<std::uint32_t>(operation.element_bytes);
  key.count = static_cast<Index>(data.size() / operation.element_bytes);
  detail::Prepared p{.call = {.name = name,
                              .contract = {.kind = key.kind,
                                           .reduction = static_cast<std::uint8_t>(operation.reduction),
                                           .type = static_cast<std::uint8_t>(operation.type),
                                           .variant = static_cast<std::uint8_t>(key.root),
                                           .count = static_cast<std::uint64_t>(key.count)},
                              .input = from,
                              .output = data.data(),
                              .operation = operation,
                              .priority = priority,
                              .finish = finish},
                     .alone = size == 1};
  if (!p.alone) {
    set_plan(p.call, plans.get(key));
  } else if (from != data.data()) {
    p.begin = {copy_bytes, from, data.data(), data.size()};
  }
  return p;
}

detail::Prepared Communicator::State::prepare(const char* name, const Schedule& schedule, const Contract& contract,
                                              std::uint32_t identity, std::span<const std::byte> input,
                                              std::span<std::byte> output, const ElementOperation& operation,
                                              int priority) {
  detail::Prepared p{.call = {.name = name,
                              .contract = contract,
                              .input = input.data(),
                              .output = output.data(),
                              .operation = operation,
                              .priority = priority}};
  set_plan(p.call, plans.get(schedule, identity));
  return p;
}

Request Communicator::State::start(detail::Prepared collective) {
  check_poison(collective.call.name, false);
  close_fusion(collective.call.name);
  collective.begin();
  if (!collective.alone) return launch(std::move(collective.call));
  collective.call.finish(collective.call.output);
  return {};
}

Request Communicator::State::start_all_reduce(const char* name, std::span<std::byte> data,
                                              const ElementOperation& operation, const CollectiveOptions& options,
                                              const detail::Engine::Call::Finish& finish) {
  if (!options.fuse || size == 1 || !detail::Fusion::takes(data.size()))
    return start(prepare_all_reduce(name, data, operation, options, finish));
  check_poison(name, false);
  (void)plans.choose(name, options.algorithm, data.size(), keeps_order(options, operation));  // throws
  detail::Engine::Handle handle{};
  const auto guard = runtime->guard();
  poisoning([&] {
    handle = fusion.add(data, operation, options, finish);
    fusion.service(false);
  });
  return detail::request_of(handle);
}

Request Communicator::State::launch(detail::Engine::Call call) {
  const auto guard = runtime->guard();
  return poisoning([&] { return detail::request_of(runtime->engine().start(*context, std::move(call))); });
}

void Communicator::State::check_poison(std::string_view operation, bool look) {
  poisoning([&] { runtime->rethrow(); });
  detail::PoisonBoard& board = runtime->board();
  if (look) {
    const auto guard = runtime->guard();
    poisoning([&] { board.look(); });
  }
  if (board.poisoned()) throw_poison(operation);
}

void Communicator::State::throw_poison(std::string_view operation) const {
  const detail::PoisonBoard& board = runtime->board();
  throw PeerFailed(std::string(operation), context->rank_of(board.failed_rank()), board.message(), board.failed_rank());
}

template <class F>
void Communicator::State::wait_until(std::string_view operation, F&& done) {
  check_poison(operation, false);
  poisoning([&] {
    WaitPauses pauses;
    bool slept = false;
    for (int idle = 0, busy = 0;;) {
      {
        const auto guard = runtime->guard();
        if (done()) return;
        const bool any = runtime->progress();
        idle = any ? 0 : idle + 1;
        if (any) {
          pauses.restart();
          slept = false;
        }
        // Look for poison even while there is progress: it may be progress of other operations.
        const bool look =
            any ? ++busy % busy_looks_per_poison == 0 : slept || (idle > close_looks_ && idle % looks_per_poison == 0);
        if (look) {
          runtime->look_around();
          check_poison(operation, true);
        }
        if (idle <= close_looks_) continue;
      }
      slept = pauses.pause();
    }
  });
}

void Communicator::State::wait_for(std::string_view operation, const std::function<bool()>& done) {
  wait_until(operation, done);
}

void Communicator::State::close_fusion(const char* name) {
  if (fusion.empty()) return;
  {
    const auto guard = runtime->guard();
    poisoning([&] { fusion.service(true); });
  }
  if (!fusion.empty())
    wait_until(name, [&] {
      fusion.service(true);
      fusion.check_closed(name);
      return fusion.empty();
    });
}

bool Communicator::State::test(detail::Engine::Handle handle, std::string_view operation) {
  check_poison(operation, false);
  detail::Engine& engine = runtime->engine();
  const auto guard = runtime->guard();
  if (engine.test(handle)) return true;
  poisoning([&] {
    if (!fusion.empty()) fusion.service(true);
    runtime->progress();
  });
  if (engine.test(handle)) return true;
  if (++idle_tests_ % looks_per_poison == 0) {
    runtime->look_around();
    check_poison(operation, true);
  }
  return false;
}

void Communicator::State::wait(detail::Engine::Handle handle, std::string_view operation) {
  detail::Engine& engine = runtime->engine();
  bool complete = false;
  {
    const auto guard = runtime->guard();
    engine.begin_wait(handle);
  }
  const auto end = [&] {
    engine.end_wait();
    return true;
  };
  wait_until(operation, [&] {
    complete = complete || (engine.test(handle) && end());
    if (complete) return engine.flushed();
    if (!fusion.empty()) {
      fusion.service(true);
      if (fusion.has(handle)) fusion.check_closed("a wait for one of them");
    }
    return false;
  });
}

}  // namespace aloni::comm

#include <aloni/core/comm/transfer_messages.hpp>

#include <aloni/core/comm/engine/communicator_state.hpp>
#include <aloni/core/error.hpp>

#include <algorithm>
#include <atomic>
#include <limits>
#include <utility>

namespace aloni::comm {

namespace {

// Ranks may have made different numbers of transfers, also on other communicators. The largest count is unused on all.
std::uint32_t agree_on_number(const Communicator& comm) {
  static std::atomic<std::int64_t> made{0};
  const std::int64_t number = comm.all_reduce(made.load(), Reduction::max);
  made = std::max(made.load(), number + 1);
  if (number > std::numeric_limits<std::uint32_t>::max()) {
    throw Unsupported("aloni::comm::TransferMessages", "number of transfers", std::to_string(number),
                      "at most 2^32 in one process; make transfers once and run them many times");
  }
  return static_cast<std::uint32_t>(number);
}

}  // namespace

struct TransferMessages::Implementation {
  std::shared_ptr<Communicator::State> state;
  std::string name;
  std::uint32_t slot = 0;

  Implementation(std::shared_ptr<Communicator::State> s, std::uint32_t number, const Contract& types, std::string n)
      : state(std::move(s)), name(std::move(n)) {
    const auto guard = state->runtime->guard();
    slot = state->runtime->engine().add_transfer(*state->context, number, types, name.c_str());
  }
  Implementation(const Implementation&) = delete;
  Implementation& operator=(const Implementation&) = delete;
  ~Implementation() {
    const auto guard = state->runtime->guard();
    state->runtime->engine().remove_transfer(slot);
  }

  /// `operation(engine)` under the guard. An error poisons the family.
  template <class Operation>
  auto run(const Operation& operation) const {
    state->check_poison(name, false);
    const auto guard = state->runtime->guard();
    return state->poisoning([&] { return operation(state->runtime->engine()); });
  }
};

TransferMessages::TransferMessages(const Communicator& comm, std::span<const ElementType> types, std::string name) {
  Contract contract{.plan = 2166136261u};
  if (!types.empty()) contract.type = static_cast<std::uint8_t>(types.front());
  for (const ElementType type : types) contract.plan = (contract.plan ^ static_cast<std::uint32_t>(type)) * 16777619u;
  const std::uint32_t number = agree_on_number(comm);
  implementation_ = std::make_shared<Implementation>(comm.state_, number, contract, std::move(name));
}

void TransferMessages::begin(TransferDirection direction) const {
  implementation_->run([&](detail::Engine& engine) { engine.begin_round(implementation_->slot, direction); });
}

Request TransferMessages::send(std::span<const std::byte> data, int peer, TransferMessage kind,
                               const MessageOptions& options) const {
  return implementation_->run([&](detail::Engine& engine) {
    return detail::request_of(
        engine.send(implementation_->slot, data, peer, static_cast<std::uint32_t>(kind), options));
  });
}

Request TransferMessages::receive(std::span<std::byte> data, int peer, TransferMessage kind,
                                  const MessageOptions& options) const {
  return implementation_->run([&](detail::Engine& engine) {
    return detail::request_of(
        engine.receive(implementation_->slot, data, peer, static_cast<std::uint32_t>(kind), options));
  });
}

}  // namespace aloni::comm

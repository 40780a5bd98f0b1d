#include <aloni/core/comm/engine/fusion.hpp>

#include <aloni/core/comm/communicator.hpp>
#include <aloni/core/error.hpp>

#include <algorithm>
#include <memory_resource>
#include <string>
#include <utility>

namespace aloni::comm::detail {

namespace {

constexpr std::size_t group_bytes = 512 * 1024;
constexpr auto group_time = std::chrono::microseconds(500);
constexpr int closing_tag = Communicator::max_tag + 1;

}  // namespace

/// Reused buffers for groups. Pending operations share their ownership.
struct Fusion::Buffers {
  std::pmr::memory_resource& memory;
  std::vector<std::byte*> all, free;

  explicit Buffers(std::pmr::memory_resource& m) : memory(m) {}
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;
  ~Buffers() {
    for (std::byte* const b : all) memory.deallocate(b, group_bytes, 64);
  }
  std::byte* take() {
    if (free.empty()) {
      free.push_back(static_cast<std::byte*>(memory.allocate(group_bytes, 64)));
      all.push_back(free.back());
      free.reserve(all.size());
    }
    std::byte* const b = free.back();
    free.pop_back();
    return b;
  }
};

struct Fusion::Group {
  Engine& engine;
  std::shared_ptr<Buffers> buffers;
  std::vector<Member> members;
  std::byte* buffer;  ///< null: in place, the members are contiguous
};

bool Fusion::Member::fits(const Member& other) const {
  return operation.type == other.operation.type && operation.reduction == other.operation.reduction &&
         operation.identity == other.operation.identity && operation.element_bytes == other.operation.element_bytes &&
         options.algorithm == other.options.algorithm && options.reproducible == other.options.reproducible &&
         options.priority == other.options.priority;
}

Contract Fusion::Member::contract() const {
  return {.kind = OperationKind::all_reduce,
          .reduction = static_cast<std::uint8_t>(operation.reduction),
          .type = static_cast<std::uint8_t>(operation.type),
          .variant = static_cast<std::uint8_t>(static_cast<int>(options.algorithm) * Contract::algorithm_unit +
                                               Contract::fused + (options.reproducible ? Contract::reproducible : 0)),
          .count = data.size() / operation.element_bytes};
}

Fusion::Form Fusion::form_of(const Contract& c) {
  return {
      .elements = static_cast<std::uint32_t>(c.count), .type = c.type, .reduction = c.reduction, .variant = c.variant};
}

Contract Fusion::contract_of(const Form& f) {
  return {.kind = OperationKind::all_reduce,
          .reduction = f.reduction,
          .type = f.type,
          .variant = f.variant,
          .count = f.elements};
}

Fusion::Closing Fusion::closing_of(std::size_t count) const {
  Closing closing{.count = static_cast<std::uint32_t>(count), .digest = 2166136261u};
  const auto mix = [&](std::uint64_t value) {
    value = (closing.digest ^ value) * 0x9e3779b97f4a7c15u;
    closing.digest = static_cast<std::uint32_t>(value >> 32);
  };
  for (std::size_t i = 0; i < count; ++i) {
    const Form form = form_of(members_[i].contract());
    if (i < closing.first.size()) closing.first[i] = form;
    mix(std::uint64_t{form.elements} << 24 | std::uint64_t{form.type} << 16 | std::uint64_t{form.reduction} << 8 |
        form.variant);
    mix(members_[i].operation.identity);
  }
  return closing;
}

/// Compares the list of rank 0 with this rank's. Throws CommunicationError, which names both.
void Fusion::check_members(const Closing& ours) const {
  if (closing_.digest == ours.digest) return;
  const std::string of = " of " + std::to_string(ours.count), name = "aloni::comm::AllReduce";
  for (std::size_t i = 0; i < std::min<std::size_t>(ours.count, ours.first.size()); ++i) {
    if (closing_.first[i] == ours.first[i]) continue;
    throw CommunicationError(name, "fused member " + std::to_string(i) + of + ", call of rank 0",
                             describe(contract_of(closing_.first[i])),
                             describe(contract_of(ours.first[i])) + ", the call of this rank");
  }
  throw CommunicationError(
      name, "fused members of rank 0",
      std::to_string(ours.count) + " all-reduces with the digest " + std::to_string(closing_.digest),
      "the digest " + std::to_string(ours.digest) + " of this rank; the first " +
          std::to_string(std::min<std::size_t>(ours.count, ours.first.size())) + " members have equal sizes and types");
}

bool Fusion::has(Engine::Handle handle) const {
  return std::ranges::any_of(members_, [&](const Member& m) {
    return m.handle.slot == handle.slot && m.handle.generation == handle.generation;
  });
}

void Fusion::check_closed(const char* next) const {
  if (closing_.count <= members_.size()) return;
  const std::size_t i = members_.size();
  throw CommunicationError(
      "aloni::comm::AllReduce", "fused members of rank 0",
      std::to_string(closing_.count) +
          (i < closing_.first.size() ? ", after those of this rank " + describe(contract_of(closing_.first[i])) : ""),
      std::to_string(i) + ", followed by " + next + ", the call of this rank");
}

Fusion::Fusion(Engine& engine, Engine::Context& context, std::pmr::memory_resource& memory, Start start)
    : engine_(engine), context_(context), start_(std::move(start)), buffers_(std::make_shared<Buffers>(memory)) {}

Fusion::~Fusion() = default;

bool Fusion::takes(std::size_t bytes) { return bytes <= group_bytes / 4; }

Engine::Handle Fusion::add(std::span<std::byte> data, const ElementOperation& operation,
                           const CollectiveOptions& options, const Finish& finish) {
  Member m{data, operation, options, finish, engine_.make_handle()};
  if (context_.rank == 0 && !members_.empty() && (!members_.back().fits(m) || bytes_ + data.size() > group_bytes))
    launch(members_.size());
  if (members_.empty()) oldest_ = Clock::now();
  bytes_ += data.size();
  members_.push_back(std::move(m));
  if (members_.size() == 1) engine_.expect_fused(context_, members_.front().contract());
  return members_.back().handle;
}

void Fusion::service(bool wanted) {
  if (context_.rank == 0) {
    if (!members_.empty() && (wanted || Clock::now() - oldest_ > group_time)) launch(members_.size());
    while (!closings_.empty() && std::ranges::all_of(closings_.front().second, [&](auto h) { return engine_.test(h); }))
      closings_.pop_front();
    return;
  }
  while (!members_.empty()) {
    if (closing_.count == 0 && !expects_closing_) {
      closing_message_ = engine_.receive(context_, std::as_writable_bytes(std::span(&closing_, 1)), 0, closing_tag);
      expects_closing_ = true;
    }
    if (expects_closing_) {
      if (!engine_.test(closing_message_)) return;
      expects_closing_ = false;
    }
    if (members_.size() < closing_.count) return;  // this rank has not started all members yet
    launch(closing_.count);
  }
}

void Fusion::launch(std::size_t count) {
  const Closing closing = closing_of(count);
  if (context_.rank == 0) {
    auto& [closed, messages] = closings_.emplace_back(closing, std::vector<Engine::Handle>{});
    for (int r = 1; r < static_cast<int>(context_.root_ranks.size()); ++r)
      messages.push_back(engine_.send(context_, std::as_bytes(std::span(&closed, 1)), r, closing_tag));
  } else {
    check_members(closing);
    closing_.count = 0;
  }
  auto group = std::make_shared<Group>(Group{engine_, buffers_, {}, nullptr});
  std::size_t total = 0;
  bool together = true;  // whether the members are contiguous, like pieces of one array
  for (; count > 0; --count) {
    Member& m = members_.front();
    together = together && (group->members.empty() ||
                            group->members.back().data.data() + group->members.back().data.size() == m.data.data());
    total += m.data.size();
    group->members.push_back(std::move(m));
    members_.pop_front();
  }
  bytes_ -= total;
  std::span<std::byte> data(group->members.front().data.data(), total);
  if (!together) {
    group->buffer = buffers_->take();
    std::byte* to = group->buffer;
    for (const Member& m : group->members) to = std::ranges::copy(m.data, to).out;
    data = {group->buffer, total};
  }
  oldest_ = Clock::now();
  const ElementOperation operation = group->members.front().operation;
  CollectiveOptions options = group->members.front().options;
  options.fuse = false;
  Group* const target = group.get();
  start_(data, operation, options, Finish{.f = distribute, .target = target, .owner = std::move(group)},
         closing.digest);
  if (!members_.empty()) engine_.expect_fused(context_, members_.front().contract());
}

void Fusion::distribute(void*, void* target, std::size_t, std::size_t, double) {
  Group& group = *static_cast<Group*>(target);
  const std::byte* from = group.buffer;
  for (const Member& m : group.members) {
    if (group.buffer) {
      std::copy_n(from, m.data.size(), m.data.begin());
      from += m.data.size();
    }
    m.finish(m.data.data());
    group.engine.finish(m.handle);
  }
  if (group.buffer) group.buffers->free.push_back(group.buffer);
}

}  // namespace aloni::comm::detail

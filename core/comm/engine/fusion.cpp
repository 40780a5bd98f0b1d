#include <aloni/core/comm/engine/fusion.hpp>

#include <aloni/core/comm/communicator.hpp>

#include <algorithm>
#include <memory_resource>
#include <utility>

namespace aloni::comm::detail {

namespace {

constexpr std::size_t group_bytes = 512 * 1024;
constexpr auto group_time = std::chrono::microseconds(500);
constexpr int fused_count_tag = Communicator::max_tag + 1;

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
  return members_.back().handle;
}

void Fusion::service(bool wanted) {
  if (context_.rank == 0) {
    if (!members_.empty() && (wanted || Clock::now() - oldest_ > group_time)) launch(members_.size());
    while (!fused_counts_.empty() &&
           std::ranges::all_of(fused_counts_.front().second, [&](auto h) { return engine_.test(h); }))
      fused_counts_.pop_front();
    return;
  }
  while (!members_.empty()) {
    if (fused_count_ == 0 && !expects_fused_count_) {
      fused_count_message_ =
          engine_.receive(context_, std::as_writable_bytes(std::span(&fused_count_, 1)), 0, fused_count_tag);
      expects_fused_count_ = true;
    }
    if (expects_fused_count_) {
      if (!engine_.test(fused_count_message_)) return;
      expects_fused_count_ = false;
    }
    if (members_.size() < fused_count_) return;  // this rank has not started all members yet
    launch(std::exchange(fused_count_, 0));
  }
}

void Fusion::launch(std::size_t count) {
  if (context_.rank == 0) {
    auto& [number, messages] =
        fused_counts_.emplace_back(static_cast<std::uint32_t>(count), std::vector<Engine::Handle>{});
    for (int r = 1; r < static_cast<int>(context_.root_ranks.size()); ++r)
      messages.push_back(engine_.send(context_, std::as_bytes(std::span(&number, 1)), r, fused_count_tag));
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
  start_(data, operation, options, Finish{.f = distribute, .target = target, .owner = std::move(group)});
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

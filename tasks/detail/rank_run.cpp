#include <aloni/tasks/detail/rank_run.hpp>

#include <aloni/core/error.hpp>

#include <algorithm>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

namespace aloni::tasks::detail {

namespace {

/// Memory in which the other ranks of the node can read copies of tiles of other nodes. Without such ranks it is
/// private memory: the system gives shared memory huge pages less often.
std::shared_ptr<std::pmr::memory_resource> room_for_copies(const comm::Communicator& comm) {
  for (const std::vector<int>& node : comm.ranks_by_node())
    if (node.size() > 1 && std::ranges::find(node, comm.rank()) != node.end()) return comm.shared_memory();
  return {std::shared_ptr<void>(), std::pmr::new_delete_resource()};
}

}  // namespace

RankRun::RankRun(std::string operation, const comm::Communicator& comm, const TaskRule& rule,
                 std::function<int(const TileId&)> owner, std::function<std::size_t(const TileId&)> bytes,
                 std::function<std::span<const std::byte>(const TileId&)> own)
    : operation_(std::move(operation)),
      comm_(comm),
      rule_(rule),
      owner_(std::move(owner)),
      bytes_(std::move(bytes)),
      own_(std::move(own)),
      room_(room_for_copies(comm)),
      mail_(comm, *this) {
  std::vector<TileAccess> accesses;
  for (const TileId& tile : rule.tiles()) {
    if (owner_(tile) != comm.rank()) continue;
    for (std::int32_t version = 1; version <= rule.writes(tile); ++version) {
      accesses.clear();
      rule.append_accesses(rule.writer_of({tile, version}), accesses);
      for (const TileAccess& access : accesses)
        if (owner_(access.tile) != comm.rank()) ++uses_[key_of(access.tile)];
    }
  }
}

RankRun::RankRun(std::string operation, const comm::Communicator& comm, const TaskRule& rule,
                 std::function<int(const TileId&)> owner, std::function<std::size_t(const TileId&)> bytes,
                 TileStore& store, const MemoryLimit& limit, int workers)
    : operation_(std::move(operation)),
      comm_(comm),
      rule_(rule),
      owner_(std::move(owner)),
      bytes_(std::move(bytes)),
      mail_(comm, *this, {.most_clients = 0, .read_in_place = false}) {
  slots_.emplace(store);
  comm::collectively(comm, operation_, [&] {
    limited_.emplace(
        operation_, rule, [this](const TileId& tile) { return static_cast<Index>(bytes_(tile)); }, *slots_, limit,
        workers,
        RankTiles{.owns = [this](const TileId& tile) { return owns(tile); },
                  .fetch = [this](const TileId& tile) { mail_.need(key_of(tile), owner_(tile)); },
                  .read = [&store](const TileId& tile, std::span<std::byte> to) { store.read(tile, to); }});
  });
  free_send_buffers_ = limited_->send_buffers();
}

RankRun::~RankRun() = default;

/// Names the last version of a tile by the task that makes it.
TileKey RankRun::key_of(const TileId& tile) const { return rule_.writer_of({tile, rule_.writes(tile)}).key(); }

RunReport RankRun::start(Runtime::Body body, RuntimeOptions options) {
  options.owns = [this](const TileId& tile) { return owns(tile); };
  Runtime::Body run_body = [this, body = std::move(body)](const Task& task, int worker) {
    run_task(body, task, worker);
  };
  running_on_ = limited_ ? &limited_->prepare(std::move(run_body), std::move(options))
                         : &runtime_.emplace(rule_, std::move(run_body), std::move(options));
  for (const TileId& tile : rule_.tiles()) {
    if (owner_(tile) == comm_.rank() || !uses_.contains(key_of(tile))) continue;
    if (Task::from(key_of(tile)).kernel == Kernel::provide) {
      provided_.push_back(tile);
    } else {
      mail_.need(key_of(tile), owner_(tile));
    }
  }
  for (std::size_t i = 0; i < most_provided; ++i) need_provided();
  mail_.set_waiting(true);
  RunReport report;
  std::thread tasks([&] {
    try {
      if (limited_) limited_report_ = limited_->run();
      report = limited_ ? limited_report_.run : runtime_->run();
      mail_.tasks_finished();
    } catch (...) {
      mail_.fail(std::current_exception());
    }
  });
  try {
    mail_.run();
  } catch (...) {
    running_on_->fail(std::current_exception());  // no effect if a task of this rank has failed
    tasks.join();
    throw;
  }
  tasks.join();
  return report;
}

void RankRun::run_task(const Runtime::Body& body, const Task& task, int worker) {
  if (running_.fetch_add(1) == 0) mail_.set_waiting(false);
  body(task, worker);
  send_output(task);
  release_copies(task);
  if (running_.fetch_sub(1) > 1) return;
  mail_.set_waiting(true);
  if (running_.load() > 0) mail_.set_waiting(false);  // another task has begun meanwhile
}

void RankRun::send_output(const Task& task) {
  std::vector<Task> successors;
  rule_.append_successors(task, successors);
  std::vector<int> readers;
  for (const Task& s : successors) readers.push_back(owner_(rule_.output(s).tile));
  std::ranges::sort(readers);
  readers.erase(std::ranges::unique(readers).begin(), readers.end());
  std::erase(readers, comm_.rank());
  if (readers.empty()) return;
  const TileVersion output = rule_.output(task);
  if (output.version != rule_.writes(output.tile)) {
    throw Unsupported(operation_, to_string(task), "read by other ranks before its tile has its last version",
                      "other ranks to read last versions only");
  }
  mail_.produced(task.key(), limited_ ? std::span<const std::byte>() : own_(output.tile), std::move(readers));
}

void RankRun::release_copies(const Task& task) {
  if (limited_) return;  // they were released when they came
  std::vector<TileAccess> accesses;
  rule_.append_accesses(task, accesses);
  for (const TileAccess& access : accesses) {
    if (owner_(access.tile) == comm_.rank()) continue;
    const TileKey key = key_of(access.tile);
    if (uses_.at(key).fetch_sub(1) > 1) continue;
    mail_.released(key);
    if (Task::from(key).kernel == Kernel::provide) need_provided();
  }
}

/// Asks for the next provided tile. Its copy serves no other rank, or it would stay here until that rank asks.
void RankRun::need_provided() {
  const std::size_t i = next_provided_.fetch_add(1);
  if (i < provided_.size()) mail_.need(key_of(provided_[i]), owner_(provided_[i]), 0);
}

const std::byte* RankRun::copy(const TileId& tile) const {
  const std::lock_guard lock(mutex_);
  return copies_.at(key_of(tile)).data;
}

/// Throws CommunicationError for a tile of another size than this rank's rule says.
void RankRun::check_size(TileKey key, std::size_t bytes) const {
  const TileId tile = rule_.output(Task::from(key)).tile;
  if (bytes == bytes_(tile)) return;
  throw CommunicationError(operation_, to_string(tile) + " of rank " + std::to_string(owner_(tile)),
                           std::to_string(bytes) + " bytes", std::to_string(bytes_(tile)) + " bytes");
}

std::span<std::byte> RankRun::room(TileKey key, std::size_t bytes) {
  check_size(key, bytes);
  if (limited_) return limited_->room(rule_.output(Task::from(key)).tile);
  constexpr std::size_t alignment = 64;  // a cache line
  Copy copy;
  copy.room = {static_cast<std::byte*>(room_->allocate(bytes, alignment)),
               [memory = room_, bytes](std::byte* p) { memory->deallocate(p, bytes, alignment); }};
  const std::span<std::byte> room(copy.room.get(), bytes);
  const std::lock_guard lock(mutex_);
  copies_.insert_or_assign(key, std::move(copy));
  return room;
}

void RankRun::arrived(TileKey key, std::span<const std::byte> data) {
  check_size(key, data.size());
  const TileVersion version = rule_.output(Task::from(key));
  if (limited_) {
    mail_.released(key);  // it serves nobody else, and its slot is that of the cache
    limited_->fetched(version.tile);
  } else {
    const std::lock_guard lock(mutex_);
    copies_[key].data = data.data();
  }
  running_on_->data_arrived(version);
}

std::optional<std::span<const std::byte>> RankRun::lend(TileKey key, std::span<const std::byte> data) {
  if (!limited_) return data;
  if (free_send_buffers_.empty()) return std::nullopt;
  const TileId tile = rule_.output(Task::from(key)).tile;
  std::byte* const buffer = free_send_buffers_.back();
  limited_->copy_out(tile, buffer, bytes_(tile));
  free_send_buffers_.pop_back();
  return std::span<const std::byte>(buffer, bytes_(tile));
}

void RankRun::take_back(std::span<const std::byte> lent) {
  if (!limited_) return;
  for (std::byte* const buffer : limited_->send_buffers())
    if (buffer == lent.data()) free_send_buffers_.push_back(buffer);
}

void RankRun::free_copy(TileKey key) {
  const std::lock_guard lock(mutex_);
  copies_.erase(key);
}

/// The error itself is that of TileMail::run().
void RankRun::failed() {
  running_on_->fail(std::make_exception_ptr(PeerFailed(operation_, -1, "a task of another rank has failed", -1)));
}

}  // namespace aloni::tasks::detail

#include <aloni/model/task_simulation.hpp>

#include <aloni/core/error.hpp>
#include <aloni/core/flat_map.hpp>
#include <aloni/model/detail/parcel_costs.hpp>
#include <aloni/model/detail/task_source.hpp>
#include <aloni/tasks/detail/ready_queue.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>
#include <memory>
#include <numeric>
#include <optional>
#include <queue>
#include <span>
#include <unordered_map>
#include <utility>

namespace aloni::model {

namespace {

using detail::TaskNumber;
using TileNumber = tasks::TileKey;  ///< index of an Output
using tasks::detail::ReadyTask;
using Tiles = tasks::TileRequests;

constexpr const char* operation = "aloni::model::simulate_tasks";
constexpr double request_bytes = sizeof(tasks::TileRequest);

/// The tile that a task writes, and the tasks of other ranks that read it.
struct Output {
  struct Reader {
    int rank = 0;
    std::uint32_t first = 0;  ///< its first task in `readers`
    std::uint32_t uses = 0;   ///< its tasks that have not run
  };

  TaskNumber writer = 0;
  std::vector<TaskNumber> readers = {};  ///< by rank
  std::vector<Reader> ranks = {};        ///< ascending
  double path = 0;                       ///< longest path that ends with the task that writes it
  double bytes = 0;

  /// Null if the rank does not read it.
  Reader* reader(int rank) {
    const auto at = std::ranges::lower_bound(ranks, rank, {}, &Reader::rank);
    return at == ranks.end() || at->rank != rank ? nullptr : &*at;
  }
  std::span<const TaskNumber> tasks_of(const Reader& reader) const {
    const std::size_t end = &reader == &ranks.back() ? readers.size() : (&reader + 1)->first;
    return std::span(readers).subspan(reader.first, end - reader.first);
  }
};

/// A task of which a predecessor has ended, until it starts.
struct Waiting {
  std::int32_t waits_for = 0;
  double path = 0;             ///< longest path to it, without it
  TaskNumber path_before = 0;  ///< the last task on this path
};

struct Worker {
  bool idle = true;
  ReadyTask task = {};
  double start = 0, path = 0;  ///< path: with the task
};

struct RankState {
  RankState(int rank, int size, std::vector<int> nodes, int workers)
      : tiles(rank, size, std::move(nodes)),
        queues(std::make_unique<tasks::detail::ReadyQueue[]>(static_cast<std::size_t>(workers))),
        workers(static_cast<std::size_t>(workers)) {}

  Tiles tiles;
  std::unique_ptr<tasks::detail::ReadyQueue[]> queues;  ///< of the workers
  std::vector<Worker> workers;
  Index left = 0;               ///< tasks that have not ended
  std::size_t next_worker = 0;  ///< that gets the tasks which an arriving tile releases
  double thread_free = 0;       ///< end of the work of the communication thread
  double copies = 0;            ///< bytes of copies
};

/// A tile on its way.
struct Transfer {
  int from = 0, to = 0;
  TileNumber tile = 0;
  double bytes = 0, seconds = 0;  ///< seconds: of its bytes on the link
  LinkKind link = LinkKind::self;
  double ready = 0;  ///< the sender's thread has posted it
  std::vector<tasks::TileClient> clients = {};
};

/// Sends tiles one after the other, and receives them one after the other.
struct Port {
  std::deque<std::uint32_t> waiting = {};  ///< transfers
  bool busy = false;
  double receives_until = 0;
};

struct Event {
  enum class Kind : std::uint8_t {
    task_end,        ///< `other`: the worker
    request,         ///< `other`: the client
    payload_begins,  ///< its head is at the port of the receiver, or with the thread that copies it
    payload,
    sent,
    port_free
  };
  double time = 0;
  std::uint64_t order = 0;  ///< of equal times: that of their causes
  std::uint64_t key = 0;    ///< task or tile
  std::int32_t rank = 0, other = 0;
  std::uint32_t transfer = 0;
  Kind kind{};

  friend bool operator>(const Event& a, const Event& b) {
    return a.time != b.time ? a.time > b.time : a.order > b.order;
  }
};

class Walk {
 public:
  Walk(const detail::TaskSource& source, const TasksOnRanks& run, const Machine& machine,
       const TaskSimulationOptions& options)
      : source_(source),
        machine_(machine),
        options_(options),
        workers_(run.workers),
        description_(description_of(machine, run.ranks)),
        ports_(static_cast<std::size_t>(run.ranks)) {
    for (int r = 0; r < run.ranks; ++r) ranks_.emplace_back(r, run.ranks, description_.nodes, run.workers);
    for (const int node : description_.nodes)
      ports_.resize(std::max(ports_.size(), ranks_.size() + static_cast<std::size_t>(node) + 1));
    result_.ranks.resize(ranks_.size());
    result_.workers = run.workers;
    const std::vector<Index> counts = source.counts(run.ranks);
    for (std::size_t r = 0; r < ranks_.size(); ++r) ranks_[r].left = counts[r];
    result_.tasks = std::accumulate(counts.begin(), counts.end(), Index{0});
    if (options.timeline) {
      result_.reports.resize(ranks_.size());
      for (tasks::RunReport& report : result_.reports) report.workers.resize(static_cast<std::size_t>(run.workers));
    }
    find_readers();
  }

  SimulatedTasks run() {
    for (int r = 0; r < size(); ++r) {
      if (state(r).left > 0) continue;
      state(r).tiles.tasks_finished();
      act(r);
    }
    push_roots();
    while (const auto event = next_event()) {
      now_ = event->time;
      happen(*event);
    }
    finish();
    return std::move(result_);
  }

 private:
  int size() const { return static_cast<int>(ranks_.size()); }
  RankState& state(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  Output& output_of(TileNumber tile) { return outputs_[static_cast<std::size_t>(tile)]; }
  SimulatedTasks::Rank& figures(int rank) { return result_.ranks[static_cast<std::size_t>(rank)]; }

  void add(double time, Event event) {
    event.time = time;
    event.order = ++order_;
    if (collects_) {
      first_events_.push_back(event);
    } else {
      events_.push(event);
    }
  }

  std::optional<Event> next_event() {
    const bool first = !first_events_.empty() && (events_.empty() || events_.top() > first_events_.back());
    if (!first && events_.empty()) return std::nullopt;
    const Event event = first ? first_events_.back() : events_.top();
    first ? first_events_.pop_back() : events_.pop();
    return event;
  }

  /// Each rank asks for all tiles that it reads before its tasks start, as RankRun does.
  void find_readers() {
    if (size() == 1) return;
    std::vector<TaskNumber> outputs;
    source_.append_outputs(outputs);
    std::vector<std::pair<int, TaskNumber>> readers;
    std::vector<TaskNumber> successors;
    for (const TaskNumber t : outputs) {
      const int owner = source_.owner(t);
      successors.clear();
      source_.append_successors(t, successors);
      readers.clear();
      for (const TaskNumber s : successors)
        if (const int reader = source_.owner(s); reader != owner) readers.emplace_back(reader, s);
      if (readers.empty()) continue;
      std::ranges::stable_sort(readers, {}, &std::pair<int, TaskNumber>::first);
      const TileNumber tile = outputs_.size();
      tile_of_[t] = tile;
      Output& output = outputs_.emplace_back();
      output.writer = t;
      output.bytes = source_.bytes(t);
      for (const auto& [reader, s] : readers) {
        if (output.ranks.empty() || output.ranks.back().rank != reader)
          output.ranks.push_back({.rank = reader, .first = static_cast<std::uint32_t>(output.readers.size())});
        output.readers.push_back(s);
        ++output.ranks.back().uses;
      }
      for (const Output::Reader& reader : output.ranks) state(reader.rank).tiles.need(tile, owner);
    }
    // Millions of events on a thousand ranks. In the heap each would make every other event slower.
    collects_ = true;
    for (int r = 0; r < size(); ++r) act(r);
    collects_ = false;
    std::ranges::sort(first_events_, std::greater<>());
  }

  void push_roots() {
    std::vector<TaskNumber> roots;
    source_.append_roots(roots);
    std::vector<std::vector<ReadyTask>> of_rank(ranks_.size());
    for (const TaskNumber t : roots) of_rank[static_cast<std::size_t>(source_.owner(t))].push_back(ready(t));
    for (int r = 0; r < size(); ++r) {
      const std::vector<ReadyTask>& all = of_rank[static_cast<std::size_t>(r)];
      for (std::size_t i = 0; i < all.size(); ++i)
        state(r).queues[i % static_cast<std::size_t>(workers_)].push({all[i]});
      wake(r);
    }
  }

  ReadyTask ready(TaskNumber t) const { return {source_.priority(t), t}; }

  // --- tasks ---

  /// Idle workers take tasks: of their own queue, or of another one.
  void wake(int rank) {
    RankState& r = state(rank);
    for (std::size_t w = 0; w < r.workers.size(); ++w) {
      if (!r.workers[w].idle) continue;
      if (const auto task = take(rank, w)) start(rank, w, *task);
    }
  }

  std::optional<ReadyTask> take(int rank, std::size_t w) {
    RankState& r = state(rank);
    for (std::size_t i = 0; i < r.workers.size(); ++i) {
      auto task = r.queues[(w + i) % r.workers.size()].pop();
      if (!task) continue;
      if (i > 0) ++figures(rank).steals;
      return task;
    }
    return std::nullopt;
  }

  void start(int rank, std::size_t w, const ReadyTask& task) {
    Worker& worker = state(rank).workers[w];
    const double seconds = source_.seconds(task.id);
    double path = 0;
    if (const auto found = waiting_.find(task.id); found != waiting_.end()) {
      path = found->second.path;
      if (options_.timeline) before_[task.id] = found->second.path_before;
      waiting_.erase(found);
    }
    worker = {.idle = false, .task = task, .start = now_ + options_.seconds_per_task, .path = path + seconds};
    figures(rank).kernels += seconds;
    add(worker.start + seconds,
        {.key = task.id, .rank = rank, .other = static_cast<std::int32_t>(w), .kind = Event::Kind::task_end});
  }

  void end_task(int rank, std::size_t w) {
    RankState& r = state(rank);
    const Worker worker = r.workers[w];
    const TaskNumber t = worker.task.id;
    ++figures(rank).tasks;
    figures(rank).end = now_;
    if (worker.path > result_.critical_path) {
      result_.critical_path = worker.path;
      last_of_path_ = t;
    }
    if (options_.timeline) record(rank, w, worker);
    const bool is_sent = send_output(rank, t, worker.path);
    release_copies(rank, t);
    if (--r.left == 0) r.tiles.tasks_finished();
    act(rank);

    released_.clear();
    found_.clear();
    source_.append_successors(t, found_);
    for (const TaskNumber s : found_) {
      if (source_.owner(s) == rank) {
        count_down(s, t, worker.path);
      } else if (!is_sent) {
        throw Unsupported(operation, to_string(source_.task(t)),
                          "read by other ranks before its tile has its last version",
                          "other ranks to read last versions only");
      }
    }
    auto next = r.queues[w].push_pop(released_);
    if (!next) next = take(rank, w);
    if (next) {
      start(rank, w, *next);
    } else {
      r.workers[w].idle = true;
    }
    wake(rank);
  }

  void record(int rank, std::size_t w, const Worker& worker) {
    const auto nanoseconds = [](double seconds) { return static_cast<std::int64_t>(std::llround(seconds * 1e9)); };
    tasks::RunReport& report = result_.reports[static_cast<std::size_t>(rank)];
    ++report.tasks;
    ++report.workers[w].tasks;
    report.times.push_back(
        {source_.task(worker.task.id), static_cast<int>(w), nanoseconds(worker.start), nanoseconds(now_)});
    report.end = nanoseconds(now_);
  }

  /// A predecessor of `t` has ended. The last one appends it to released_.
  void count_down(TaskNumber t, TaskNumber predecessor, double path) {
    const auto [at, is_new] = waiting_.try_emplace(t);
    Waiting& waiting = at->second;
    if (is_new) waiting.waits_for = source_.count_predecessors(t);
    if (is_new || path > waiting.path) {
      waiting.path = path;
      waiting.path_before = predecessor;
    }
    if (--waiting.waits_for == 0) released_.push_back(ready(t));
  }

  /// Whether other ranks read the tile that `t` has written.
  bool send_output(int rank, TaskNumber t, double path) {
    const auto found = tile_of_.find(t);
    if (found == tile_of_.end()) return false;
    Output& output = output_of(found->second);
    output.path = path;
    clients_.clear();
    for (const Output::Reader& reader : output.ranks) clients_.push_back(reader.rank);
    state(rank).tiles.produced(found->second, clients_);
    return true;
  }

  void release_copies(int rank, TaskNumber t) {
    if (size() == 1) return;
    RankState& r = state(rank);
    inputs_.clear();
    source_.append_inputs(t, rank, inputs_);
    for (const TaskNumber input : inputs_) {
      const auto tile = tile_of_.find(input);
      Output::Reader* const reader = tile == tile_of_.end() ? nullptr : output_of(tile->second).reader(rank);
      if (!reader || reader->uses == 0) {
        throw InvalidArgument(operation, "rule",
                              to_string(source_.task(t)) + " reads the tile of " + to_string(source_.task(input)) +
                                  ", which does not release it",
                              "a rule whose successors agree with its accesses");
      }
      if (--reader->uses > 0) continue;
      r.tiles.released(tile->second);
    }
  }

  // --- messages ---

  /// The communication thread of the rank has posted a message.
  double post(int rank, double seconds) {
    double& free = state(rank).thread_free;
    free = std::max(free, now_) + seconds;
    return free;
  }

  LinkKind link(int a, int b) const { return link_between(description_, a, b); }
  const LinkCosts& costs(LinkKind kind) const { return machine_.link(kind); }
  /// A tile in shared memory is copied by its receiver, as in a halo exchange.
  double payload_seconds_per_byte(LinkKind kind, double bytes) const {
    const bool copied = kind == LinkKind::shared_memory;
    return detail::parcel_costs(machine_, copied ? TransferMethod::copies : TransferMethod::send, kind, bytes)
        .link.seconds_per_byte;
  }
  std::size_t port(LinkKind kind, int rank) const {
    const auto r = static_cast<std::size_t>(rank);
    return kind == LinkKind::between_nodes ? ranks_.size() + static_cast<std::size_t>(description_.nodes[r]) : r;
  }

  void act(int rank) {
    using Kind = tasks::TileAction::Kind;
    for (tasks::TileAction& action : state(rank).tiles.take_actions()) {
      switch (action.kind) {
        case Kind::send_request:
        case Kind::forward_request: {  // short, and before tiles: it does not wait for a port
          const LinkCosts& link_costs = costs(link(rank, action.rank));
          const double sent = post(rank, link_costs.seconds_per_message);
          add(sent + link_costs.latency + request_bytes * link_costs.seconds_per_byte + link_costs.seconds_per_message,
              {.key = action.tile, .rank = action.rank, .other = action.request.client, .kind = Event::Kind::request});
          break;
        }
        case Kind::send_payload:
          send(rank, action);
          break;
        case Kind::deliver:
          deliver(rank, action.tile);
          break;
        case Kind::free_copy:
          state(rank).copies -= output_of(action.tile).bytes;
          break;
        case Kind::served:
        case Kind::finished:
          break;
      }
    }
  }

  void send(int rank, tasks::TileAction& action) {
    const LinkKind kind = link(rank, action.rank);
    const double ready = post(rank, costs(kind).seconds_per_message);
    const double bytes = output_of(action.tile).bytes;
    figures(rank).bytes_sent += bytes;
    Transfer transfer{.from = rank,
                      .to = action.rank,
                      .tile = action.tile,
                      .bytes = bytes,
                      .seconds = bytes * payload_seconds_per_byte(kind, bytes),
                      .link = kind,
                      .ready = ready,
                      .clients = std::move(action.clients)};
    std::uint32_t number = 0;
    if (free_transfers_.empty()) {
      number = static_cast<std::uint32_t>(transfers_.size());
      transfers_.push_back(std::move(transfer));
    } else {
      number = free_transfers_.back();
      free_transfers_.pop_back();
      transfers_[number] = std::move(transfer);
    }
    if (kind == LinkKind::shared_memory) {
      add(ready + costs(kind).latency, {.rank = action.rank, .transfer = number, .kind = Event::Kind::payload_begins});
      return;
    }
    const std::size_t from = port(kind, rank);
    ports_[from].waiting.push_back(number);
    if (!ports_[from].busy) use_port(from);
  }

  /// The next tile passes the port of its sender.
  void use_port(std::size_t p) {
    Port& port = ports_[p];
    port.busy = !port.waiting.empty();
    if (!port.busy) return;
    const std::uint32_t number = port.waiting.front();
    port.waiting.pop_front();
    const Transfer& transfer = transfers_[number];
    const LinkCosts& link_costs = costs(transfer.link);
    const double start = std::max(now_, transfer.ready);
    const double end = start + transfer.seconds;
    add(start + link_costs.latency, {.rank = transfer.to, .transfer = number, .kind = Event::Kind::payload_begins});
    add(end, {.key = transfer.tile, .rank = transfer.from, .kind = Event::Kind::sent});
    add(end, {.rank = static_cast<std::int32_t>(p), .kind = Event::Kind::port_free});
  }

  void begin_payload(const Event& event) {
    const Transfer& transfer = transfers_[event.transfer];
    const LinkCosts& link_costs = costs(transfer.link);
    double end = 0;
    if (transfer.link == LinkKind::shared_memory) {  // the receiver's thread copies, then answers
      end = post(transfer.to, link_costs.seconds_per_message + transfer.seconds);
      add(end + link_costs.latency, {.key = transfer.tile, .rank = transfer.from, .kind = Event::Kind::sent});
    } else {
      double& until = ports_[port(transfer.link, transfer.to)].receives_until;
      until = std::max(until, now_) + transfer.seconds;
      end = until + link_costs.seconds_per_message;
    }
    RankState& receiver = state(transfer.to);
    receiver.copies += transfer.bytes;  // its memory is taken before the bytes come
    figures(transfer.to).most_copies = std::max(figures(transfer.to).most_copies, receiver.copies);
    add(end, {.rank = transfer.to, .transfer = event.transfer, .kind = Event::Kind::payload});
  }

  /// Releases the tasks of the rank that wait for the tile.
  void deliver(int rank, TileNumber tile) {
    RankState& r = state(rank);
    Output& output = output_of(tile);
    released_.clear();
    for (const TaskNumber task : output.tasks_of(*output.reader(rank))) count_down(task, output.writer, output.path);
    if (released_.empty()) return;
    r.queues[r.next_worker++ % r.workers.size()].push(released_);
    wake(rank);
  }

  void happen(const Event& event) {
    switch (event.kind) {
      case Event::Kind::task_end:
        return end_task(event.rank, static_cast<std::size_t>(event.other));
      case Event::Kind::request:
        state(event.rank)
            .tiles.request_arrived({.tile = event.key, .client = event.other, .most_clients = Tiles::any_number});
        return act(event.rank);
      case Event::Kind::payload_begins:
        return begin_payload(event);
      case Event::Kind::payload: {
        const Transfer transfer = std::move(transfers_[event.transfer]);
        free_transfers_.push_back(event.transfer);
        state(event.rank).tiles.payload_arrived(transfer.tile, transfer.clients);
        return act(event.rank);
      }
      case Event::Kind::sent:
        state(event.rank).tiles.sent(event.key);
        return act(event.rank);
      case Event::Kind::port_free:
        return use_port(static_cast<std::size_t>(event.rank));
    }
  }

  void finish() {
    Index left = 0;
    for (int r = 0; r < size(); ++r) {
      left += state(r).left;
      SimulatedTasks::Rank& rank = figures(r);
      rank.tiles = state(r).tiles.counts();
      result_.kernels += rank.kernels;
      result_.seconds = std::max(result_.seconds, rank.end);
      if (options_.timeline) result_.reports[static_cast<std::size_t>(r)].steals = rank.steals;
    }
    if (left > 0) {
      throw InvalidArgument(operation, "rule", std::to_string(left) + " tasks that no task releases",
                            "a rule whose numbers of predecessors agree with its successors");
    }
    if (!options_.timeline) return;
    for (tasks::RunReport& report : result_.reports)
      std::ranges::stable_sort(report.times, {}, &tasks::TaskTime::worker);
    if (result_.tasks == 0) return;
    std::vector<tasks::Task>& path = result_.critical_tasks;
    TaskNumber t = last_of_path_;
    path.push_back(source_.task(t));
    for (auto at = before_.find(t); at != before_.end(); at = before_.find(t)) {
      t = at->second;
      path.push_back(source_.task(t));
    }
    std::ranges::reverse(path);
  }

  const detail::TaskSource& source_;
  const Machine& machine_;
  const TaskSimulationOptions& options_;
  int workers_;
  MachineDescription description_;
  std::vector<RankState> ranks_;
  std::vector<Port> ports_;                  ///< of ranks, then of nodes
  std::vector<Output> outputs_;              ///< tiles that other ranks read
  FlatMap<TaskNumber, TileNumber> tile_of_;  ///< by their writer
  FlatMap<TaskNumber, Waiting> waiting_;
  std::unordered_map<TaskNumber, TaskNumber> before_;  ///< the task before each one on the longest path
  TaskNumber last_of_path_ = 0;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::vector<Event> first_events_;  ///< the requests before the first task, the last one first
  bool collects_ = false;            ///< events belong to them
  std::uint64_t order_ = 0;
  double now_ = 0;
  std::vector<Transfer> transfers_;
  std::vector<std::uint32_t> free_transfers_;
  std::vector<TaskNumber> found_, inputs_;
  std::vector<ReadyTask> released_;
  std::vector<int> clients_;
  SimulatedTasks result_;
};

void check(const TasksOnRanks& run, const TaskSimulationOptions& options) {
  if (run.ranks < 1) throw InvalidArgument(operation, "ranks", std::to_string(run.ranks), "at least 1");
  if (run.workers < 1) throw InvalidArgument(operation, "workers", std::to_string(run.workers), "at least 1");
  if (!(options.seconds_per_task >= 0 && std::isfinite(options.seconds_per_task)))
    throw InvalidArgument(operation, "seconds_per_task", std::to_string(options.seconds_per_task), "0 or more");
}

template <class Tasks>
SimulatedTasks walk_tasks(const Tasks& tasks, const TasksOnRanks& run, const Machine& machine,
                          const TaskSimulationOptions& options) {
  check(run, options);
  const auto source = detail::make_task_source(tasks, run);
  return Walk(*source, run, machine, options).run();
}

}  // namespace

double SimulatedTasks::bytes_sent() const {
  double sum = 0;
  for (const Rank& rank : ranks) sum += rank.bytes_sent;
  return sum;
}

tasks::TileRequests::Counts SimulatedTasks::tiles() const {
  tasks::TileRequests::Counts sum;
  for (const Rank& rank : ranks) {
    sum.requests += rank.tiles.requests;
    sum.forwarded += rank.tiles.forwarded;
    sum.payloads += rank.tiles.payloads;
    sum.copies += rank.tiles.copies;
    sum.handed_on += rank.tiles.handed_on;
  }
  return sum;
}

double SimulatedTasks::idle_share(int rank) const {
  if (seconds <= 0) return 0;
  return 1 - ranks.at(static_cast<std::size_t>(rank)).kernels / (workers * seconds);
}

double SimulatedTasks::parallel_efficiency() const {
  if (seconds <= 0) return 1;
  return kernels / (workers * static_cast<double>(ranks.size()) * seconds);
}

double SimulatedTasks::least_seconds() const {
  return std::max(critical_path, kernels / (workers * static_cast<double>(ranks.size())));
}

SimulatedTasks simulate_tasks(const tasks::TaskRule& rule, const TasksOnRanks& run, const Machine& machine,
                              const TaskSimulationOptions& options) {
  return walk_tasks(rule, run, machine, options);
}

SimulatedTasks simulate_tasks(const tasks::TaskGraph& graph, const TasksOnRanks& run, const Machine& machine,
                              const TaskSimulationOptions& options) {
  return walk_tasks(graph, run, machine, options);
}

}  // namespace aloni::model

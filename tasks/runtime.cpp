#include <aloni/tasks/runtime.hpp>

#include <aloni/core/error.hpp>
#include <aloni/tasks/detail/admission.hpp>
#include <aloni/tasks/detail/dependences.hpp>
#include <aloni/tasks/detail/processors.hpp>
#include <aloni/tasks/detail/ready_queue.hpp>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

namespace aloni::tasks {

namespace {

constexpr const char* operation = "aloni::tasks::Runtime";

int count_workers(int wanted, std::size_t processors) {
  if (wanted < 0)
    throw InvalidArgument(operation, "workers", std::to_string(wanted), "at least 0; 0: one for each processor");
  return wanted > 0 ? wanted : static_cast<int>(processors);
}

}  // namespace

int count_processors() { return std::max(1, static_cast<int>(detail::processors_of_process().size())); }

class Runtime::Engine {
 public:
  Engine(std::unique_ptr<detail::Dependences> dependences, Body body, RuntimeOptions options)
      : dependences_(std::move(dependences)),
        body_(std::move(body)),
        options_(std::move(options)),
        worker_count_(
            static_cast<std::size_t>(count_workers(options_.workers, std::max<std::size_t>(1, processors_.size())))),
        workers_(std::make_unique<Worker[]>(worker_count_)),
        remaining_(dependences_->size()) {
    if (!body_) throw InvalidArgument(operation, "body", "", "a function that runs a task");
  }

  RunReport run() {
    if (std::exchange(started_, true))
      throw InvalidArgument("aloni::tasks::Runtime::run", "calls", "2", "one; make another Runtime");
    RunReport report;
    report.start = trace_now();
    std::vector<detail::ReadyTask> roots;
    dependences_->append_roots(roots);
    hold_back(roots);
    for (std::size_t w = 0; w < worker_count_; ++w) {
      std::vector<detail::ReadyTask> share;
      for (std::size_t i = w; i < roots.size(); i += worker_count_) share.push_back(roots[i]);
      workers_[w].queue.push(share);
    }
    if (remaining_ == 0) stop_ = true;
    {
      std::vector<std::jthread> threads;  // joined at the end of the block
      try {
        for (std::size_t w = 1; w < worker_count_; ++w)
          threads.emplace_back([this, w] {
            detail::use_processors(processors_);
            work(w);
          });
        work(0);
      } catch (...) {  // no more threads
        fail(std::current_exception());
      }
    }
    report.end = trace_now();
    {
      const std::lock_guard lock(error_mutex_);  // fail() may come late, of another thread
      if (error_) std::rethrow_exception(error_);
    }
    for (std::size_t w = 0; w < worker_count_; ++w) {
      const Worker& worker = workers_[w];
      report.workers.push_back(worker.counts);
      report.tasks += worker.counts.tasks;
      report.steals += worker.counts.steals;
      report.times.insert(report.times.end(), worker.times.begin(), worker.times.end());
    }
    return report;
  }

  void data_arrived(const TileVersion& version) {
    std::vector<detail::ReadyTask> ready;
    dependences_->arrive(version, ready);
    hold_back(ready);
    push(ready);
  }

  void admit(const Task& task) {
    if (!options_.admission)
      throw InvalidArgument("aloni::tasks::Runtime::admit", "task", to_string(task), "RuntimeOptions::admission");
    if (const auto ready = admission_.admit(task)) push({*ready});
  }

  void fail(std::exception_ptr error) {
    {
      const std::lock_guard lock(error_mutex_);
      if (!error_) error_ = std::move(error);
    }
    stop();
  }

 private:
  /// Workers lie in cache lines of their own.
  struct alignas(64) Worker {
    detail::ReadyQueue queue;
    RunReport::Worker counts;
    std::vector<TaskTime> times;
  };

  /// Removes the tasks that are not admitted yet.
  void hold_back(std::vector<detail::ReadyTask>& ready) {
    if (!options_.admission) return;
    std::erase_if(ready, [this](detail::ReadyTask& task) {
      return !admission_.pass(dependences_->task(task.id), task, options_.schedule_seed == 0);
    });
  }

  /// Gives tasks to a worker, each time to another one.
  void push(const std::vector<detail::ReadyTask>& ready) {
    if (ready.empty()) return;
    workers_[next_worker_.fetch_add(1, std::memory_order_relaxed) % worker_count_].queue.push(ready);
    wake(ready.size());
  }

  /// The whole life of a worker.
  void work(std::size_t w) noexcept {
    try {
      const auto scope = options_.worker_scope ? options_.worker_scope(static_cast<int>(w)) : nullptr;
      std::vector<detail::ReadyTask> ready;
      Index ended = 0;  // tasks that remaining_ does not know of yet
      while (const auto task = next(w, ready, ended)) {
        run_task(w, task->id);
        ++ended;
        dependences_->complete(task->id, ready);
        hold_back(ready);
      }
    } catch (...) {
      fail(std::current_exception());
    }
  }

  void run_task(std::size_t w, std::uint64_t id) {
    Worker& worker = workers_[w];
    const Task task = dependences_->task(id);
    ++worker.counts.tasks;
    if (!options_.record_times) return body_(task, static_cast<int>(w));
    TaskTime time{task, static_cast<int>(w), trace_now()};
    body_(task, static_cast<int>(w));
    time.end = trace_now();
    worker.times.push_back(time);
  }

  /// The next task of a worker, which has just released `ready`; nothing at the end of the run.
  std::optional<detail::ReadyTask> next(std::size_t w, std::vector<detail::ReadyTask>& ready, Index& ended) {
    if (stop_.load(std::memory_order_relaxed)) return std::nullopt;
    const std::size_t released = ready.size();
    auto task = workers_[w].queue.push_pop(ready);
    ready.clear();
    if (released > 1) wake(released - 1);
    if (task) return task;
    // Counting the ends of many tasks at once keeps the one counter of all workers off the way of each task.
    if (ended > 0 && remaining_.fetch_sub(ended) == ended) stop();
    ended = 0;
    constexpr int rounds = 100;  // some tens of microseconds: about as long as waking a thread takes
    for (int round = 0; !stop_.load(std::memory_order_acquire); ++round) {
      if ((task = workers_[w].queue.pop())) return task;  // data_arrived may have put it there
      if ((task = steal(w))) return task;
      if (round < rounds) {
        std::this_thread::yield();
      } else {
        sleep(w);
        round = 0;
      }
    }
    return std::nullopt;
  }

  std::optional<detail::ReadyTask> steal(std::size_t w) {
    for (std::size_t i = 1; i < worker_count_; ++i)
      if (auto task = workers_[(w + i) % worker_count_].queue.pop()) {
        ++workers_[w].counts.steals;
        return task;
      }
    return std::nullopt;
  }

  bool has_work() const {
    for (std::size_t w = 0; w < worker_count_; ++w)
      if (!workers_[w].queue.empty()) return true;
    return false;
  }

  /// No wake-up is lost: this worker counts itself and then looks at the queues. The thread that fills a queue then
  /// looks at the count. Both orders are sequentially consistent, so one of the two sees the other.
  void sleep(std::size_t w) {
    std::unique_lock lock(sleep_mutex_);
    const int sleepers = ++sleepers_;
    // All workers sleep, and only another rank or an admission could release a task: without them, nobody will.
    if (static_cast<std::size_t>(sleepers) == worker_count_ && !options_.owns && !options_.admission && !stop_ &&
        !has_work()) {
      --sleepers_;
      lock.unlock();
      throw InvalidArgument(operation, "graph", std::to_string(remaining_.load()) + " tasks that no task releases",
                            "a rule whose numbers of predecessors agree with its successors");
    }
    ++workers_[w].counts.sleeps;
    awake_.wait(lock, [&] { return stop_ || has_work(); });
    --sleepers_;
  }

  void wake(std::size_t tasks) {
    if (sleepers_.load() == 0) return;
    { const std::lock_guard lock(sleep_mutex_); }  // a worker between its look at the queues and its sleep
    if (tasks > 1) {
      awake_.notify_all();
    } else {
      awake_.notify_one();
    }
  }

  void stop() {
    stop_ = true;
    { const std::lock_guard lock(sleep_mutex_); }
    awake_.notify_all();
  }

  std::unique_ptr<detail::Dependences> dependences_;
  Body body_;
  RuntimeOptions options_;
  std::vector<int> processors_ = detail::processors_of_process();
  std::size_t worker_count_;
  std::unique_ptr<Worker[]> workers_;
  bool started_ = false;
  detail::Admission admission_;
  std::atomic<std::size_t> next_worker_{0};
  alignas(64) std::atomic<Index> remaining_;  ///< tasks of this rank that have not ended
  alignas(64) std::atomic<bool> stop_{false};
  std::atomic<int> sleepers_{0};
  std::mutex sleep_mutex_;
  std::condition_variable awake_;
  std::mutex error_mutex_;
  std::exception_ptr error_;  // guarded by error_mutex_
};

Runtime::Runtime(const TaskGraph& graph, Body body, RuntimeOptions options)
    : engine_(std::make_unique<Engine>(detail::make_dependences(graph, options.owns, options.schedule_seed),
                                       std::move(body), options)) {}

Runtime::Runtime(const TaskRule& rule, Body body, RuntimeOptions options)
    : engine_(std::make_unique<Engine>(detail::make_dependences(rule, options.owns, options.schedule_seed),
                                       std::move(body), options)) {}

Runtime::~Runtime() = default;

RunReport Runtime::run() { return engine_->run(); }
void Runtime::data_arrived(const TileVersion& version) { engine_->data_arrived(version); }
void Runtime::admit(const Task& task) { engine_->admit(task); }
void Runtime::fail(std::exception_ptr error) { engine_->fail(std::move(error)); }

Trace trace_of(const RunReport& report, int process, const std::string& name) {
  Trace trace{.process = process, .name = name};
  for (std::size_t w = 0; w < report.workers.size(); ++w) trace.rows.push_back("worker " + std::to_string(w));
  for (const TaskTime& t : report.times)
    trace.slices.push_back({t.worker,
                            aloni::tasks::name(t.task.kernel),
                            t.start,
                            t.end,
                            {{"row", std::int64_t{t.task.row}},
                             {"column", std::int64_t{t.task.column}},
                             {"step", std::int64_t{t.task.step}}}});
  return trace;
}

}  // namespace aloni::tasks

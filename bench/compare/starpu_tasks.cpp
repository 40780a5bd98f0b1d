// Times tasks of StarPU as bench_tasks times ours: the same numbers of tasks, dependences and lengths.
//   starpu_tasks WORKERS SCHEDULER SECONDS       SECONDS: least time of a case
// Prints one line of JSON with the seconds of the fastest run of each case:
//   independent  empty tasks without dependences
//   three        empty tasks that wait for three others, declared before the clock starts
//   inserted     the same by the data that they access, as our TaskGraph does; the clock sees the insertion
//   busy/5us     tasks of 5 µs each that wait for three others
// The clock runs from the first submission to the end of the last task. StarPU has started its workers before.
// bench/compare/tasks.py builds and runs it.
#include <starpu.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

void check(int status, const char* what) {
  if (status == 0) return;
  std::fprintf(stderr, "starpu_tasks: %s: error %d\n", what, status);
  std::exit(1);
}

void empty(void**, void*) {}

void busy(void**, void* length) {
  const auto end = Clock::now() + std::chrono::microseconds(*static_cast<const int*>(length));
  while (Clock::now() < end) {
  }
}

starpu_codelet codelet_of(starpu_cpu_func_t function, int buffers) {
  starpu_codelet codelet;
  starpu_codelet_init(&codelet);
  codelet.cpu_funcs[0] = function;
  codelet.nbuffers = buffers;
  for (int b = 0; b < buffers; ++b) codelet.modes[b] = b == 0 ? STARPU_W : STARPU_R;
  return codelet;
}

/// Three different tasks among the hundred before t.
std::vector<int> predecessors(int t) {
  static std::uint64_t state = 1;
  std::vector<int> found;
  while (t >= 3 && found.size() < 3) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const int p = t - 1 - static_cast<int>((state >> 33) % static_cast<std::uint64_t>(std::min(t, 100)));
    if (std::find(found.begin(), found.end(), p) == found.end()) found.push_back(p);
  }
  return found;
}

double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// The fastest of the runs in this time; at least three.
double fastest(double least_seconds, const std::function<double()>& run) {
  double best = run(), all = best;
  for (int runs = 1; runs < 3 || all < least_seconds; ++runs) {
    const double seconds = run();
    best = std::min(best, seconds);
    all += seconds;
  }
  return best;
}

/// `three`: each task waits for three others.
double run_declared(int count, starpu_codelet& codelet, const int* length, bool three) {
  std::vector<starpu_task*> tasks;
  for (int t = 0; t < count; ++t) {
    starpu_task* const task = starpu_task_create();
    task->cl = &codelet;
    task->cl_arg = const_cast<int*>(length);
    task->cl_arg_size = length ? sizeof *length : 0;
    task->destroy = 0;
    tasks.push_back(task);
    if (!three) continue;
    std::vector<starpu_task*> before;
    for (const int p : predecessors(t)) before.push_back(tasks[static_cast<std::size_t>(p)]);
    if (!before.empty()) starpu_task_declare_deps_array(task, static_cast<unsigned>(before.size()), before.data());
  }
  const auto start = Clock::now();
  for (starpu_task* const task : tasks) check(starpu_task_submit(task), "starpu_task_submit");
  check(starpu_task_wait_for_all(), "starpu_task_wait_for_all");
  const double seconds = since(start);
  for (starpu_task* const task : tasks) starpu_task_destroy(task);
  return seconds;
}

/// Task t writes datum t and reads those of three tasks before it.
double run_inserted(std::vector<starpu_data_handle_t>& data, starpu_codelet& first, starpu_codelet& codelet) {
  const auto start = Clock::now();
  for (int t = 0; t < static_cast<int>(data.size()); ++t) {
    starpu_task* const task = starpu_task_create();
    const std::vector<int> reads = predecessors(t);
    task->cl = reads.empty() ? &first : &codelet;
    task->handles[0] = data[static_cast<std::size_t>(t)];
    for (std::size_t r = 0; r < reads.size(); ++r) task->handles[r + 1] = data[static_cast<std::size_t>(reads[r])];
    check(starpu_task_submit(task), "starpu_task_submit");
  }
  check(starpu_task_wait_for_all(), "starpu_task_wait_for_all");
  return since(start);
}

}  // namespace

int main(int argc, char** argv) {
  const int workers = argc == 4 ? std::atoi(argv[1]) : 0;
  const double least_seconds = argc == 4 ? std::atof(argv[3]) : 0;
  if (workers < 1 || least_seconds <= 0) {
    std::fprintf(stderr, "usage: starpu_tasks WORKERS SCHEDULER SECONDS\n");
    return 2;
  }
  starpu_conf conf;
  check(starpu_conf_init(&conf), "starpu_conf_init");
  conf.ncpus = workers;
  conf.ncuda = conf.nopencl = 0;
  conf.sched_policy_name = argv[2];
  check(starpu_init(&conf), "starpu_init");
  if (static_cast<int>(starpu_cpu_worker_get_count()) != workers) {
    std::fprintf(stderr, "starpu_tasks: StarPU has %u workers instead of %d\n", starpu_cpu_worker_get_count(), workers);
    return 1;
  }

  constexpr int empty_tasks = 20000;  // as bench_tasks
  starpu_codelet no_data = codelet_of(empty, 0), one_datum = codelet_of(empty, 1), four_data = codelet_of(empty, 4),
                 spin = codelet_of(busy, 0);
  std::printf("{\"version\": \"%d.%d.%d\"", STARPU_MAJOR_VERSION, STARPU_MINOR_VERSION, STARPU_RELEASE_VERSION);
  const auto report = [&](const std::string& name, int count, const std::function<double()>& run) {
    const double seconds = fastest(least_seconds, run);
    std::printf(", \"%s\": {\"tasks\": %d, \"seconds\": %.9g}", name.c_str(), count, seconds);
  };
  report("independent", empty_tasks, [&] { return run_declared(empty_tasks, no_data, nullptr, false); });
  report("three", empty_tasks, [&] { return run_declared(empty_tasks, no_data, nullptr, true); });
  std::vector<starpu_data_handle_t> data(empty_tasks);
  for (starpu_data_handle_t& handle : data) starpu_void_data_register(&handle);
  report("inserted", empty_tasks, [&] { return run_inserted(data, one_datum, four_data); });
  for (const starpu_data_handle_t handle : data) starpu_data_unregister(handle);
  for (const int length : {1, 2, 5, 10, 20}) {
    const int count = std::max(1000, 20000 / length);
    report("busy/" + std::to_string(length) + "us", count, [&] { return run_declared(count, spin, &length, true); });
  }
  std::printf("}\n");
  starpu_shutdown();
}

// Times the task runtime, and the tile factorisations beside BLAS and LAPACK, on rank 0 alone.
//
//   task/independent/w1        one empty task without dependences; wN: N workers
//   task/three/w1              one empty task that waits for three others
//   task/inserted/w1           the same, and the time includes the insertion of the tasks with their tiles
//   task/rule/w1               one empty task of a Cholesky factorisation, whose dependences come from formulas
//   busy/5us/w2                tasks of 5 µs each that wait for three others; ideal_us: their time without a runtime
//   cholesky/double/n2048/t256 the factorisation of 2,048 rows in tiles of 256; t1024x256: 1,024 rows, 256 columns
//   potrf/double/n2048         that of LAPACK by as many threads
//   gemm/double/n2048          the matrix product of BLAS by as many threads: the bound of both
//
// Threads of the factorisations: as many as one call of BLAS uses (OMP_NUM_THREADS). Times of tasks include making the
// runtime and starting its threads; items_per_second are tasks per second. Half efficiency is the length of busy tasks
// whose time is twice the ideal one: the minimum effective task granularity of Slaughter et al., "Task Bench: A
// parameterized benchmark for evaluating parallel runtime performance", SC20.
#include "support/benchmark.hpp"

#include <aloni/core/blas_functions.hpp>
#include <aloni/core/blas_library.hpp>
#include <aloni/core/host_random.hpp>
#include <aloni/tasks/cholesky.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace aloni::bench {
namespace {

using tasks::TileMatrix;
using views::TileDistribution;
using views::TileShape;

constexpr int empty_tasks = 20000;

/// Checks that every task runs, and times a run.
template <class Tasks>
Case empty_run(std::shared_ptr<const Tasks> tasks, Index count, int workers) {
  const auto run = [tasks, count, workers] {
    if (tasks::Runtime(*tasks, [](const tasks::Task&, int) {}, {.workers = workers}).run().tasks != count)
      throw std::runtime_error("bench_tasks: a task did not run");
  };
  run();
  return {.run = run, .items = static_cast<double>(count), .on_first_rank = true};
}

Case independent(int workers) {
  auto graph = std::make_shared<tasks::TaskGraph>();
  for (int t = 0; t < empty_tasks; ++t) graph->add({tasks::Kernel::other, t, 0, 0}, {});
  return empty_run<tasks::TaskGraph>(graph, empty_tasks, workers);
}

/// Task t reads the tiles of three random tasks among the hundred before it, and writes its own.
tasks::TaskGraph three_dependences(int count) {
  tasks::TaskGraph graph;
  std::uint64_t next = 0;
  for (int t = 0; t < count; ++t) {
    std::vector<tasks::TileAccess> accesses{{{0, t, 0}, tasks::Access::write}};
    while (t >= 3 && accesses.size() < 4) {
      const int reach = std::min(t, 100);
      const tasks::TileAccess read{
          {0, t - 1 - static_cast<int>(random::host_integer(1, 0, next++) % static_cast<std::uint64_t>(reach)), 0}};
      if (std::find(accesses.begin(), accesses.end(), read) == accesses.end()) accesses.push_back(read);
    }
    graph.add({tasks::Kernel::other, t, 0, 0}, accesses);
    if (t >= 3 && graph.predecessors(t).size() != 3) throw std::runtime_error("bench_tasks: not three dependences");
  }
  return graph;
}

Case three(int workers) {
  return empty_run<tasks::TaskGraph>(std::make_shared<tasks::TaskGraph>(three_dependences(empty_tasks)), empty_tasks,
                                     workers);
}

Case inserted(int workers) {
  return {.run =
              [workers] {
                const tasks::TaskGraph graph = three_dependences(empty_tasks);
                tasks::Runtime(graph, [](const tasks::Task&, int) {}, {.workers = workers}).run();
              },
          .items = empty_tasks,
          .on_first_rank = true};
}

/// Tasks that each keep a worker busy for this time.
Case busy(int microseconds, int workers) {
  const int count = std::max(1000, 20000 / microseconds);
  auto graph = std::make_shared<tasks::TaskGraph>(three_dependences(count));
  const auto run = [graph, microseconds, workers] {
    const auto wait = [length = std::chrono::microseconds(microseconds)](const tasks::Task&, int) {
      const auto end = std::chrono::steady_clock::now() + length;
      while (std::chrono::steady_clock::now() < end) {
      }
    };
    if (tasks::Runtime(*graph, wait, {.workers = workers}).run().tasks != graph->size())
      throw std::runtime_error("bench_tasks: a task did not run");
  };
  run();
  return {.run = run,
          .items = static_cast<double>(count),
          .counters = {{"ideal_us", static_cast<double>(count) * microseconds / workers}},
          .on_first_rank = true};
}

Case rule(int workers) {
  constexpr Index tiles = 48;
  return empty_run<tasks::TaskRule>(std::make_shared<tasks::CholeskyRule>(tiles, 256),
                                    tiles * (tiles + 1) * (tiles + 2) / 6, workers);
}

double element(Index i, Index j, Index n) {
  const auto index = static_cast<std::uint64_t>(std::max(i, j)) << 32 | static_cast<std::uint64_t>(std::min(i, j));
  return random::host_uniform(1, 0, index) + (i == j ? static_cast<double>(n) : 0);
}

double cholesky_flops(Index n) { return std::pow(static_cast<double>(n), 3) / 3; }

int blas_threads() { return std::max(1, blas_library().threads); }

template <class T>
struct Potrf {
  Index n;
  std::vector<T> matrix = std::vector<T>(static_cast<std::size_t>(n * n)), factor = matrix;

  explicit Potrf(Index rows) : n(rows) {
    for (Index j = 0; j < n; ++j)
      for (Index i = 0; i < n; ++i) matrix[static_cast<std::size_t>(j * n + i)] = static_cast<T>(element(i, j, n));
  }
  void run() {
    if (blas::potrf('L', static_cast<int>(n), factor.data(), static_cast<int>(n)) != 0)
      throw std::runtime_error("bench_tasks: potrf failed");
  }
};

template <class T>
Case potrf(Index n) {
  auto state = std::make_shared<Potrf<T>>(n);
  return {.run = [state] { state->run(); },
          .flops = cholesky_flops(n),
          .counters = {{"threads", blas_threads()}},
          .on_first_rank = true,
          .before = [state] { state->factor = state->matrix; }};
}

template <class T>
Case cholesky(Index n, const TileShape& tile) {
  struct State {
    TileMatrix<T> matrix, factor;
  };
  const TileDistribution tiles(n, n, tile);
  auto state = std::make_shared<State>(
      State{TileMatrix<T>(tiles, tasks::TilePart::lower), TileMatrix<T>(tiles, tasks::TilePart::lower)});
  state->matrix.fill([n](Index i, Index j) { return element(i, j, n); });
  const auto run = [state] { tasks::cholesky(state->factor, {.workers = blas_threads()}); };
  state->factor.copy_from(state->matrix);
  run();
  Potrf<T> reference(n);
  reference.factor = reference.matrix;
  reference.run();
  std::vector<T> found(static_cast<std::size_t>(n * n));
  state->factor.copy_to(found.data(), n);
  for (Index j = 0; j < n; ++j)
    for (Index i = j; i < n; ++i) {
      const auto at = static_cast<std::size_t>(j * n + i);
      if (!(std::abs(found[at] - reference.factor[at]) <=
            100 * std::sqrt(static_cast<T>(n)) * std::numeric_limits<T>::epsilon()))
        throw std::runtime_error("bench_tasks: the factor differs from that of LAPACK");
    }
  return {.run = run,
          .flops = cholesky_flops(n),
          .counters = {{"threads", blas_threads()}},
          .on_first_rank = true,
          .before = [state] { state->factor.copy_from(state->matrix); }};
}

template <class T>
Case gemm(Index n) {
  struct State {
    std::vector<T> a, b, c;
  };
  const auto size = static_cast<std::size_t>(n * n);
  auto state = std::make_shared<State>(State{std::vector<T>(size, 1), std::vector<T>(size, 1), std::vector<T>(size)});
  const auto run = [state, n = static_cast<int>(n)] {
    blas::gemm('N', 'T', n, n, n, T(1), state->a.data(), n, state->b.data(), n, T(0), state->c.data(), n);
  };
  run();
  if (state->c.front() != static_cast<T>(n) || state->c.back() != static_cast<T>(n))
    throw std::runtime_error("bench_tasks: a wrong product");
  return {.run = run,
          .flops = 2 * std::pow(static_cast<double>(n), 3),
          .counters = {{"threads", blas_threads()}},
          .on_first_rank = true};
}

template <class T>
void register_type(const comm::Communicator& world, const std::string& type) {
  for (const Index n : {512, 2048, 4096, 8192}) {
    const TileShape tile = tasks::suggested_tile(n, blas_threads());
    const std::string size = type + "/n" + std::to_string(n);
    add_timed(world, "cholesky/" + size + "/t" + to_string(tile), [n, tile] { return cholesky<T>(n, tile); });
    add_timed(world, "potrf/" + size, [n] { return potrf<T>(n); });
    add_timed(world, "gemm/" + size, [n] { return gemm<T>(n); });
  }
}

}  // namespace

void register_benchmarks(const comm::Communicator& world) {
  for (const int workers : {1, 2}) {
    const std::string suffix = "/w" + std::to_string(workers);
    add_timed(world, "task/independent" + suffix, [workers] { return independent(workers); });
    add_timed(world, "task/three" + suffix, [workers] { return three(workers); });
    add_timed(world, "task/inserted" + suffix, [workers] { return inserted(workers); });
    add_timed(world, "task/rule" + suffix, [workers] { return rule(workers); });
    for (const int microseconds : {1, 2, 5, 10, 20})
      add_timed(world, "busy/" + std::to_string(microseconds) + "us" + suffix,
                [microseconds, workers] { return busy(microseconds, workers); });
  }
  register_type<double>(world, "double");
  register_type<float>(world, "float");
}

}  // namespace aloni::bench

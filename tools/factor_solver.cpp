#include <aloni/tools/factor_solver.hpp>

#include <aloni/tasks/cholesky.hpp>
#include <aloni/tasks/detail/processors.hpp>
#include <aloni/tasks/solve.hpp>

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <future>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace aloni::tools {

namespace {

std::vector<double> inverse_by_tasks(const std::vector<double>& matrix, Index order, int workers) {
  const views::TileShape tile = tasks::suggested_tile(order, workers);
  tasks::TileMatrix<double> a(views::TileDistribution(order, order, tile), tasks::TilePart::lower);
  tasks::TileMatrix<double> x(views::TileDistribution(order, order, tile.columns));  // as solve() wants them
  a.copy_from(matrix.data(), order);                                                 // symmetric: rows are columns
  tasks::cholesky(a, {.workers = workers});
  x.fill([](Index i, Index j) { return i == j ? 1.0 : 0.0; });
  tasks::solve(tasks::Factors::cholesky, a, x, {.workers = workers});
  std::vector<double> inverse(matrix.size());
  x.copy_to(inverse.data(), order);
  // Rounding makes the columns differ from the rows in the last bits.
  for (Index i = 0; i < order; ++i)
    for (Index j = 0; j < i; ++j)
      inverse[static_cast<std::size_t>(i * order + j)] = inverse[static_cast<std::size_t>(j * order + i)];
  return inverse;
}

class FactorThread {
 public:
  explicit FactorThread(int workers) : workers_(workers), thread_([this] { run(); }) {}
  ~FactorThread() {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }
  FactorThread(const FactorThread&) = delete;
  FactorThread& operator=(const FactorThread&) = delete;

  std::future<std::vector<double>> invert(std::vector<double> matrix, Index order) {
    Job job{std::move(matrix), order, {}};
    std::future<std::vector<double>> inverse = job.inverse.get_future();
    {
      const std::lock_guard lock(mutex_);
      jobs_.push_back(std::move(job));
    }
    changed_.notify_one();
    return inverse;
  }

 private:
  struct Job {
    std::vector<double> matrix;
    Index order = 0;
    std::promise<std::vector<double>> inverse;
  };

  void run() {
    // OMP_PROC_BIND may have tied the thread that made this one, and so this one, to the processor of the training.
    tasks::detail::use_processors(tasks::detail::processors_of_process());
    for (std::unique_lock lock(mutex_);;) {
      changed_.wait(lock, [this] { return ends_ || !jobs_.empty(); });
      if (ends_) return;
      Job job = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      try {
        job.inverse.set_value(inverse_by_tasks(job.matrix, job.order, workers_));
      } catch (...) {
        job.inverse.set_exception(std::current_exception());
      }
      lock.lock();
    }
  }

  int workers_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  bool ends_ = false;
  std::thread thread_;  // last: it uses all others
};

}  // namespace

nn::FactorSolver task_factor_solver(int workers) {
  auto thread = std::make_shared<FactorThread>(workers);
  return [thread](std::vector<double> matrix, Index order) { return thread->invert(std::move(matrix), order); };
}

}  // namespace aloni::tools

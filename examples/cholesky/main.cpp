// Cholesky factorisation of a matrix by tasks on its tiles, and the solution of a system with it. A task starts when
// the tiles that it reads are ready, so the workers rarely wait. The bits do not depend on the number of workers.
//   cholesky --n 4096 --workers 2 --json result.json --svg timeline.svg
//   cholesky --matrix matrix.mtx --tile 128
// Prints the rate, and that of the matrix product of BLAS by as many threads in the same run.
#include "matrix_file.hpp"
#include "options.hpp"
#include "timeline.hpp"

#include <aloni/core/comm/mpi.hpp>
#include <aloni/core/environment.hpp>
#include <aloni/core/host_random.hpp>
#include <aloni/tasks/cholesky.hpp>
#include <aloni/tasks/gemm_rate.hpp>
#include <aloni/tasks/solve.hpp>

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <limits>
#include <optional>
#include <vector>

namespace cholesky {

using aloni::tasks::TileMatrix;
using aloni::views::TileDistribution;

double random_element(Index i, Index j) {
  return 2 * aloni::random::host_uniform(1, 0, static_cast<std::uint64_t>(i) << 32 | static_cast<std::uint64_t>(j)) - 1;
}

/// Largest row sums of |A|, and A x, for a symmetric matrix of which the lower tiles are in memory.
struct Product {
  double norm = 0;
  std::vector<double> result;
};

template <class T>
Product multiply(const TileMatrix<T>& a, const std::vector<double>& x) {
  const TileDistribution& d = a.distribution();
  std::vector<double> sums(x.size()), y(x.size());
  for (Index tj = 0; tj < d.tile_columns(); ++tj)
    for (Index ti = tj; ti < d.tile_rows(); ++ti) {
      const T* const tile = a.tile({ti, tj});
      for (Index j = 0; j < d.width(tj); ++j)
        for (Index i = ti == tj ? j : 0; i < d.height(ti); ++i) {
          const auto row = static_cast<std::size_t>(ti * d.tile() + i),
                     column = static_cast<std::size_t>(tj * d.tile() + j);
          const auto value = static_cast<double>(tile[j * d.height(ti) + i]);
          y[row] += value * x[column];
          sums[row] += std::abs(value);
          if (row == column) continue;
          y[column] += value * x[row];
          sums[column] += std::abs(value);
        }
    }
  return {*std::max_element(sums.begin(), sums.end()), std::move(y)};
}

double largest(const std::vector<double>& x) {
  double most = 0;
  for (const double value : x) most = std::isnan(value) ? value : std::max(most, std::abs(value));
  return most;
}

/// max|b - A x| / (max row sum of |A| · max|x| + max|b|) of a solution x with the factor.
template <class T>
double residual(const TileMatrix<T>& a, const TileMatrix<T>& factor, int workers) {
  const Index n = a.distribution().rows();
  TileMatrix<T> x(TileDistribution(n, 1, a.distribution().tile()));
  x.fill([](Index i, Index) { return random_element(i, Index{1} << 30); });
  std::vector<double> b, solution;
  const auto values = [&] {
    std::vector<T> all(static_cast<std::size_t>(n));
    x.copy_to(all.data(), n);
    return std::vector<double>(all.begin(), all.end());
  };
  b = values();
  aloni::tasks::solve(aloni::tasks::Factors::cholesky, factor, x, {.workers = workers});
  solution = values();
  const Product product = multiply(a, solution);
  std::vector<double> difference(b.size());
  for (std::size_t i = 0; i < b.size(); ++i) difference[i] = b[i] - product.result[i];
  return largest(difference) / (product.norm * largest(solution) + largest(b));
}

void write_text(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  if (!(file << text) || !file.flush()) throw aloni::FileError("cholesky", path, "", "a file that can be written");
}

/// Returns whether the residual is small enough.
template <class T>
bool run(const Options& options) {
  const int workers = options.workers > 0 ? options.workers : aloni::tasks::count_processors();
  std::optional<Matrix> read;
  if (!options.matrix.empty()) read = read_matrix(options.matrix);
  const Index n = read ? read->n : options.n;
  const Index tile = options.tile > 0 ? options.tile : aloni::tasks::suggested_tile(n, workers);
  const TileDistribution tiles(n, n, std::min(n, tile));
  TileMatrix<T> matrix(tiles, aloni::tasks::TilePart::lower), factor(tiles, aloni::tasks::TilePart::lower);
  matrix.fill([&](Index i, Index j) {
    if (i < j) return 0.0;
    if (read) return read->elements[static_cast<std::size_t>(j * n + i)];
    return random_element(i, j) + (i == j ? static_cast<double>(n) : 0);
  });
  read.reset();

  // In turn, so that a change of the machine's speed meets both.
  const Index gemm_n = std::min<Index>(n, 4096);
  double gemm_seconds = std::numeric_limits<double>::infinity();
  std::optional<aloni::tasks::RunReport> best;
  for (Index r = 0; r < options.repeat; ++r) {
    gemm_seconds = std::min(gemm_seconds, aloni::tasks::gemm_seconds<T>(gemm_n, workers));
    factor.copy_from(matrix);
    auto report = aloni::tasks::cholesky(factor, {.workers = workers,
                                                  .schedule_seed = options.seed,
                                                  .record_times = !options.svg.empty() || !options.trace.empty()});
    if (!best || report.seconds() < best->seconds()) best = std::move(report);
  }
  const double rows = static_cast<double>(n), edge = static_cast<double>(gemm_n);
  const double gflops = rows * rows * rows / 3 * 1e-9 / best->seconds(),
               gemm_gflops = 2 * edge * edge * edge * 1e-9 / gemm_seconds, error = residual(matrix, factor, workers);
  const double bound = 16 * rows * static_cast<double>(std::numeric_limits<T>::epsilon());
  const char* const type = options.single ? "float" : "double";

  std::printf("%" PRId64 " rows in tiles of %" PRId64 ", %s, %d workers: %" PRId64 " tasks, %" PRId64 " stolen\n", n,
              tiles.tile(), type, workers, best->tasks, best->steals);
  std::printf("%.2f ms: %.2f GFLOP/s, %.3f of the product of %" PRId64 " rows (%.2f GFLOP/s)\n", best->seconds() * 1e3,
              gflops, gflops / gemm_gflops, gemm_n, gemm_gflops);
  std::printf("residual %.2e, %s %.2e\n", error, error <= bound ? "below" : "NOT below", bound);

  if (!options.json.empty()) {  // JSON has no NaN
    const double finite_error = std::isfinite(error) ? error : std::numeric_limits<double>::max();
    char json[800];
    std::snprintf(json, sizeof json,
                  "{\n  \"n\": %" PRId64 ",\n  \"tile\": %" PRId64
                  ",\n  \"precision\": \"%s\",\n  \"workers\": %d,\n"
                  "  \"seconds\": %.9g,\n  \"gflops\": %.6g,\n  \"gemm_n\": %" PRId64
                  ",\n  \"gemm_gflops\": %.6g,\n"
                  "  \"residual\": %.6g,\n  \"tasks\": %" PRId64 ",\n  \"steals\": %" PRId64
                  ",\n  \"bytes_sent\": 0,\n  \"bytes_swapped\": 0\n}\n",
                  n, tiles.tile(), type, workers, best->seconds(), gflops, gemm_n, gemm_gflops, finite_error,
                  best->tasks, best->steals);
    write_text(options.json, json);
  }
  const std::string title = "Cholesky factorisation of " + std::to_string(n) + " rows in tiles of " +
                            std::to_string(tiles.tile()) + ", " + type;
  if (!options.svg.empty()) write_text(options.svg, timeline_svg(*best, title));
  if (!options.trace.empty())
    write_text(options.trace,
               aloni::trace_file(std::vector{aloni::trace_events(trace_of(*best, 0, title), best->start)}));
  return error <= bound;
}

}  // namespace cholesky

int main(int argc, char** argv) {
  const aloni::Environment environment(argc, argv);  // removes the arguments of Kokkos
  const auto comm = aloni::comm::from_mpi(MPI_COMM_WORLD);
  try {
    const cholesky::Options options = cholesky::parse(argc, argv);
    if (options.help) {
      if (comm.rank() == 0) std::fputs(cholesky::usage, stdout);
      return 0;
    }
    if (comm.size() > 1)
      throw aloni::Unsupported("cholesky", "ranks", std::to_string(comm.size()), "one rank, and --workers for threads");
    return (options.single ? cholesky::run<float>(options) : cholesky::run<double>(options)) ? 0 : 1;
  } catch (const std::exception& e) {
    if (comm.rank() == 0) std::fprintf(stderr, "%s\n", e.what());
    return 2;
  }
}

// Cholesky factorisation of a matrix by tasks on its tiles, and the solution of a system with it. A task starts when
// the tiles that it reads are ready, so the workers rarely wait. The bits do not depend on the number of workers.
//   cholesky --n 4096 --workers 2 --json result.json --svg timeline.svg
//   cholesky --matrix matrix.mtx --tile 128
//   mpirun -n 4 cholesky --n 4096 --workers 1      tiles travel between ranks on request; the same bits again
//   mpirun -n 2 cholesky --n 4096 --speeds 2,1     rank 0 is twice as fast, so it owns two of three tile columns
//   cholesky --n 8192 --memory 128M                half of the tiles in memory, the others in a file; the same bits
//   cholesky --n 65536 --device --memory 8G        on a GPU that holds a part of the tiles; not the bits of the host
// Prints the rate, and that of the matrix product of BLAS by as many threads in the same run.
#include "limited.hpp"
#include "matrix_file.hpp"
#include "options.hpp"
#include "timeline.hpp"

#include <aloni/core/blas_library.hpp>
#include <aloni/core/comm/mpi.hpp>
#include <aloni/core/environment.hpp>
#include <aloni/core/host_random.hpp>
#include <aloni/core/trace.hpp>
#include <aloni/tasks/cholesky.hpp>
#include <aloni/tasks/device_cholesky.hpp>
#include <aloni/tasks/gemm_rate.hpp>
#include <aloni/tasks/solve.hpp>

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace cholesky {

using aloni::comm::Communicator;
using aloni::tasks::MemoryLimit;
using aloni::tasks::StoredMatrix;
using aloni::tasks::TileMatrix;
using aloni::views::TileDistribution;
using aloni::views::TileShape;

double random_element(Index i, Index j) {
  return 2 * aloni::random::host_uniform(1, 0, static_cast<std::uint64_t>(i) << 32 | static_cast<std::uint64_t>(j)) - 1;
}

/// Largest row sums of |A|, and A x, for a symmetric matrix. `read(tile)`: the elements of a lower tile.
struct Product {
  double norm = 0;
  std::vector<double> result;
};

/// `read(tile)`: the elements of a tile of this rank. Each rank multiplies its tiles. Collective.
template <class F>
Product multiply(const Communicator& comm, const TileDistribution& d, const std::vector<double>& x, const F& read) {
  using aloni::comm::Reduction;
  std::vector<double> sums(x.size()), y(x.size());
  for (const aloni::views::Tile& t : d.tiles_of(comm.rank())) {
    if (!d.is_lower(t)) continue;
    const auto* const tile = read(t);
    for (Index j = 0; j < d.width(t.column); ++j)
      for (Index i = std::max<Index>(0, d.first_column(t.column) + j - d.first_row(t.row)); i < d.height(t.row); ++i) {
        const auto row = static_cast<std::size_t>(d.first_row(t.row) + i),
                   column = static_cast<std::size_t>(d.first_column(t.column) + j);
        const auto value = static_cast<double>(tile[j * d.height(t.row) + i]);
        y[row] += value * x[column];
        sums[row] += std::abs(value);
        if (row == column) continue;
        y[column] += value * x[row];
        sums[column] += std::abs(value);
      }
  }
  comm.all_reduce(std::span(y), Reduction::sum);
  comm.all_reduce(std::span(sums), Reduction::sum);
  return {*std::max_element(sums.begin(), sums.end()), std::move(y)};
}

double largest(const std::vector<double>& x) {
  double most = 0;
  for (const double value : x) most = std::isnan(value) ? value : std::max(most, std::abs(value));
  return most;
}

/// max|b - A x| / (max row sum of |A| · max|x| + max|b|), where `product` is A x.
double residual(const std::vector<double>& b, const std::vector<double>& x, const Product& product) {
  std::vector<double> difference(b.size());
  for (std::size_t i = 0; i < b.size(); ++i) difference[i] = b[i] - product.result[i];
  return largest(difference) / (product.norm * largest(x) + largest(b));
}

/// The tiles of a right-hand side with one column.
TileDistribution one_column(const Communicator& comm, const TileDistribution& a) {
  return {a.rows(), 1, a.tile().columns, {comm.size(), 1}};
}

double right_hand_side(Index i, Index) { return random_element(i, Index{1} << 30); }

/// The elements of all ranks. Collective.
template <class T>
std::vector<double> values(const Communicator& comm, const TileMatrix<T>& x) {
  const Index n = x.distribution().rows();
  std::vector<T> own(static_cast<std::size_t>(n));
  x.copy_to(own.data(), n);
  std::vector<double> all(own.begin(), own.end());
  comm.all_reduce(std::span(all), aloni::comm::Reduction::sum);
  return all;
}

/// That of a solution x with the factor. Equal on all ranks. Collective.
template <class T>
double residual(const Communicator& comm, const TileMatrix<T>& a, const TileMatrix<T>& factor, int workers) {
  TileMatrix<T> x(comm, one_column(comm, a.distribution()));
  x.fill(right_hand_side);
  const std::vector<double> b = values(comm, x);
  constexpr auto kind = aloni::tasks::Factors::cholesky;
  if (comm.size() == 1) {
    aloni::tasks::solve(kind, factor, x, {.workers = workers});
  } else {
    aloni::tasks::solve(comm, kind, factor, x, {.workers = workers});
  }
  const std::vector<double> solution = values(comm, x);
  const auto tile_of = [&](const aloni::views::Tile& t) { return a.tile(t); };
  return residual(b, solution, multiply(comm, a.distribution(), solution, tile_of));
}

/// The same for a factor in a store, whose tiles of the matrix are made again, one at a time. Collective.
template <class T, class F>
double residual(const Communicator& comm, const F& element, const StoredMatrix<T>& factor, const MemoryLimit& limit,
                int workers) {
  const TileDistribution& d = factor.distribution();
  TileMatrix<T> x(one_column(comm, d), aloni::tasks::TilePart::whole, comm.rank());
  x.fill(right_hand_side);
  const std::vector<double> b = values(comm, x);
  aloni::tasks::MemoryTileStore store;
  StoredMatrix<T> stored(x.distribution(), x.part(), store, comm.rank());
  stored.copy_from(x);
  constexpr auto kind = aloni::tasks::Factors::cholesky;
  if (comm.size() == 1) {
    aloni::tasks::solve(kind, factor, stored, limit, {.workers = workers});
  } else {
    aloni::tasks::solve(comm, kind, factor, stored, limit, {.workers = workers});
  }
  stored.copy_to(x);
  const std::vector<double> solution = values(comm, x);
  std::vector<T> tile;
  return residual(b, solution, multiply(comm, d, solution, [&](const aloni::views::Tile& t) {
                    tile.clear();
                    for (Index j = 0; j < d.width(t.column); ++j)
                      for (Index i = 0; i < d.height(t.row); ++i)
                        tile.push_back(static_cast<T>(element(d.first_row(t.row) + i, d.first_column(t.column) + j)));
                    return tile.data();
                  }));
}

void write_text(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  if (!(file << text) || !file.flush()) throw aloni::FileError("cholesky", path, "", "a file that can be written");
}

/// Bytes that this rank has sent to others in messages.
double bytes_sent(const Communicator& comm) {
  double bytes = 0;
  for (const auto& [name, traffic] : comm.traffic())
    if (name != "self" && !name.ends_with("collectives")) bytes += static_cast<double>(traffic.bytes_sent);
  return bytes;
}

/// One factorisation by all ranks.
struct Result {
  aloni::tasks::RunReport report;  ///< of this rank
  double seconds = 0;              ///< of the slowest rank
  double tasks = 0, steals = 0, bytes_sent = 0;
  aloni::tasks::SwapCounts swaps{};  ///< of all ranks, with --memory or --device
  Index compulsory_bytes = 0;
  double copy_seconds = 0;  ///< on a device: of the copies before and after the tasks
};

/// `run()` factorises and returns the report of this rank. Times and counts are those of all ranks.
template <class F>
Result measure(const Communicator& comm, const F& run) {
  using aloni::comm::Reduction;
  Result result;
  comm.barrier();
  const double bytes_before = bytes_sent(comm);
  const std::int64_t start = aloni::trace_now();
  result.report = run();
  const double seconds = static_cast<double>(aloni::trace_now() - start) * 1e-9;
  result.seconds = comm.size() == 1 ? result.report.seconds() : comm.all_reduce(seconds, Reduction::max);
  result.bytes_sent = comm.all_reduce(bytes_sent(comm) - bytes_before, Reduction::sum);
  result.tasks = comm.all_reduce(static_cast<double>(result.report.tasks), Reduction::sum);
  result.steals = comm.all_reduce(static_cast<double>(result.report.steals), Reduction::sum);
  return result;
}

template <class T>
Result factorise(const Communicator& comm, TileMatrix<T>& a, const aloni::tasks::RuntimeOptions& options) {
  return measure(comm, [&] {
    return comm.size() == 1 ? aloni::tasks::cholesky(a, options) : aloni::tasks::cholesky(comm, a, options).run;
  });
}

/// The same within a limit of memory.
template <class T>
Result factorise(const Communicator& comm, StoredMatrix<T>& a, const MemoryLimit& limit,
                 const aloni::tasks::RuntimeOptions& runtime) {
  aloni::tasks::LimitedReport report;
  Result result = measure(comm, [&] {
    report =
        comm.size() == 1 ? aloni::tasks::cholesky(a, limit, runtime) : aloni::tasks::cholesky(comm, a, limit, runtime);
    return report.run;
  });
  aloni::tasks::SwapCounts& swaps = report.swaps;
  for (Index* const count :
       {&swaps.bytes_in, &swaps.bytes_out, &swaps.tiles.loads, &swaps.tiles.write_backs, &swaps.tiles.hits,
        &swaps.tiles.evictions, &swaps.tiles.prefetches, &report.compulsory_bytes})
    *count = comm.all_reduce(*count, aloni::comm::Reduction::sum);
  result.swaps = swaps;
  result.compulsory_bytes = report.compulsory_bytes;
  return result;
}

/// On a device. The copies to it and back count as time of the factorisation.
template <class T>
Result factorise_on_device(const Communicator& comm, TileMatrix<T>& a, const MemoryLimit& limit,
                           const aloni::tasks::RuntimeOptions& runtime) {
  aloni::tasks::DeviceReport report;
  Result result = measure(comm, [&] {
    report = aloni::tasks::cholesky_on_device(a, runtime, limit);
    return report.run;
  });
  result.seconds += report.copy_seconds;
  result.copy_seconds = report.copy_seconds;
  result.swaps = report.swaps;
  result.compulsory_bytes = report.compulsory_bytes;
  return result;
}

/// Refuses --device before a large matrix is made. Throws InvalidArgument and Unsupported on all ranks.
template <class T>
void check_device(const Communicator& comm) {
  if (comm.size() > 1)
    throw aloni::InvalidArgument("cholesky", "--device", std::to_string(comm.size()) + " ranks",
                                 "one rank; or no --device, for the processors of all ranks");
  try {
    TileMatrix<T> nothing(TileDistribution(0, 0, 1), aloni::tasks::TilePart::lower);
    aloni::tasks::cholesky_on_device(nothing, {.workers = 1});
  } catch (const aloni::Unsupported& e) {
    if (e.argument() != "device") throw;
    throw aloni::Unsupported("cholesky", "--device", e.value(),
                             "a build with aloni_ENABLE_CUDA=ON and a process with a GPU; or no --device, for the "
                             "processors");
  }
}

/// The tile of the options; what they leave open is chosen for the rows and for the workers of all ranks.
TileShape choose_tile(const Options& options, Index n, int workers) {
  using aloni::tasks::suggested_tile;
  TileShape tile(options.tile > 0 ? options.tile : std::min<Index>(n, 1024));  // of a device
  if (!options.device) tile = options.tile > 0 ? suggested_tile(n, workers, options.tile) : suggested_tile(n, workers);
  if (options.tall > 0) tile.rows = options.tall * tile.columns;
  return tile;
}

/// The ranks and their tile columns: an equal number for each, or by the speeds of the options. Collective.
template <class T>
aloni::views::TileGrid choose_grid(const Communicator& comm, const Options& options, int workers) {
  if (!options.measure_speeds && options.speeds.empty()) return aloni::views::squarest_grid(comm.size());
  std::vector<double> speeds = options.speeds;
  if (options.measure_speeds) {
    constexpr Index edge = 512;
    double seconds = std::numeric_limits<double>::infinity();
    comm.barrier();  // all ranks at once, as in the factorisation
    for (int i = 0; i < 8; ++i) seconds = std::min(seconds, aloni::tasks::gemm_seconds<T>(edge, workers));
    for (const std::int64_t nanoseconds : comm.all_gather(static_cast<std::int64_t>(seconds * 1e9)))
      speeds.push_back(1e9 / static_cast<double>(nanoseconds));
  }
  if (std::ssize(speeds) != comm.size())
    throw aloni::InvalidArgument("cholesky", "--speeds", std::to_string(speeds.size()) + " values",
                                 std::to_string(comm.size()) + ", one for each rank");
  aloni::views::TileGrid grid = aloni::views::grid_by_speed(speeds);
  if (comm.rank() == 0) {
    std::printf("ranks of consecutive tile columns, by speed:");
    for (int j = 0; j < (grid.column_cycle.empty() ? comm.size() : std::ssize(grid.column_cycle)); ++j)
      std::printf(" %d", grid.column_of(j));
    std::printf("\n");
  }
  return grid;
}

/// Returns on all ranks whether the residual is small enough.
template <class T>
bool run(const Communicator& comm, const Options& options) {
  if (options.device) check_device<T>(comm);
  const int processors = std::max(1, aloni::tasks::count_processors() / comm.size());
  const int default_workers = options.device ? 4 : processors;
  const int workers = options.workers > 0 ? options.workers : default_workers;
  std::optional<Matrix> read;
  if (!options.matrix.empty()) read = read_matrix(options.matrix);
  const Index n = read ? read->n : options.n;
  const TileShape tile = choose_tile(options, n, workers * comm.size());
  const TileDistribution tiles(n, n, tile, choose_grid<T>(comm, options, workers));
  constexpr auto lower = aloni::tasks::TilePart::lower;
  using aloni::tasks::Eviction;
  const bool limited = options.memory > 0 && !options.device;  // the store has the matrix
  const MemoryLimit limit{.bytes = options.memory, .eviction = options.lru ? Eviction::lru : Eviction::furthest};
  const TileDistribution in_memory = limited ? TileDistribution(0, 0, tile, tiles.grid()) : tiles;
  TileMatrix<T> matrix(in_memory, lower, comm.rank());
  auto factor = comm.size() == 1 ? TileMatrix<T>(in_memory, lower) : TileMatrix<T>(comm, in_memory, lower);
  const auto store =
      aloni::comm::collectively(comm, "cholesky", [&] { return limited ? make_store(options) : nullptr; });
  std::optional<StoredMatrix<T>> stored;
  if (limited) stored.emplace(tiles, lower, *store, comm.rank());
  const auto element = [&](Index i, Index j) {
    if (i < j) return 0.0;
    if (read) return read->elements[static_cast<std::size_t>(j * n + i)];
    return random_element(i, j) + (i == j ? static_cast<double>(n) : 0);
  };
  matrix.fill(element);
  if (!limited) read.reset();

  // In turn, so that a change of the machine's speed meets both.
  const Index gemm_n = std::min<Index>(n, 4096);
  const int gemm_workers = options.device ? processors : workers;  // the workers of a device only submit work
  double gemm_seconds = std::numeric_limits<double>::infinity();
  std::optional<Result> best;
  for (Index r = 0; r < options.repeat; ++r) {
    comm.barrier();
    const double seconds = aloni::tasks::gemm_seconds<T>(gemm_n, gemm_workers);  // each rank its own product
    gemm_seconds = std::min(gemm_seconds, comm.all_reduce(seconds, aloni::comm::Reduction::max));
    aloni::comm::collectively(comm, "cholesky", [&] { limited ? stored->fill(element) : factor.copy_from(matrix); });
    const aloni::tasks::RuntimeOptions runtime{.workers = workers,
                                               .schedule_seed = options.seed,
                                               .record_times = !options.svg.empty() || !options.trace.empty()};
    auto result = options.device ? factorise_on_device(comm, factor, limit, runtime)
                  : limited      ? factorise(comm, *stored, limit, runtime)
                                 : factorise(comm, factor, runtime);
    if (!best || result.seconds < best->seconds) best = std::move(result);
  }
  const double rows = static_cast<double>(n), edge = static_cast<double>(gemm_n);
  const double gflops = rows * rows * rows / 3 * 1e-9 / best->seconds,
               gemm_gflops = comm.size() * 2 * edge * edge * edge * 1e-9 / gemm_seconds;
  const double error =
      limited ? residual(comm, element, *stored, limit, workers) : residual(comm, matrix, factor, workers);
  const double bound = 16 * rows * static_cast<double>(std::numeric_limits<T>::epsilon());
  if (comm.rank() != 0) return error <= bound;
  const char* const type = options.single ? "float" : "double";
  const std::string ranks = comm.size() == 1 ? "" : std::to_string(comm.size()) + " ranks with ";

  std::printf("%" PRId64 " rows in tiles of %s, %s, %s%d workers: %.0f tasks, %.0f stolen\n", n,
              to_string(tile).c_str(), type, ranks.c_str(), workers, best->tasks, best->steals);
  std::printf("%.2f ms: %.2f GFLOP/s, %.3f of the product of %" PRId64 " rows (%.2f GFLOP/s)\n", best->seconds * 1e3,
              gflops, gflops / gemm_gflops, gemm_n, gemm_gflops);
  if (options.device)
    std::printf("on a device, with %.2f ms of copies before and after the tasks; the product is that of the host\n",
                best->copy_seconds * 1e3);
  if (limited || options.device)
    std::printf("%.1f MB moved, %.2f of the compulsory traffic: %" PRId64 " tiles loaded, %" PRId64 " written, %" PRId64
                " evicted\n",
                static_cast<double>(best->swaps.bytes()) * 1e-6,
                static_cast<double>(best->swaps.bytes()) / static_cast<double>(best->compulsory_bytes),
                best->swaps.tiles.loads, best->swaps.tiles.write_backs, best->swaps.tiles.evictions);
  std::printf("residual %.2e, %s %.2e\n", error, error <= bound ? "below" : "NOT below", bound);

  if (!options.json.empty()) {  // JSON has no NaN
    const double finite_error = std::isfinite(error) ? error : std::numeric_limits<double>::max();
    char json[1200];
    std::snprintf(json, sizeof json,
                  "{\n  \"n\": %" PRId64 ",\n  \"tile\": %" PRId64 ",\n  \"tile_rows\": %" PRId64
                  ",\n  \"precision\": \"%s\",\n  \"ranks\": %d,\n  \"workers\": %d,\n"
                  "  \"seconds\": %.9g,\n  \"gflops\": %.6g,\n  \"gemm_n\": %" PRId64
                  ",\n  \"gemm_gflops\": %.6g,\n  \"blas_kernels\": \"%s\",\n"
                  "  \"residual\": %.6g,\n  \"tasks\": %.0f,\n  \"steals\": %.0f"
                  ",\n  \"bytes_sent\": %.0f,\n  \"bytes_swapped\": %" PRId64 ",\n  \"bytes_swapped_in\": %" PRId64
                  ",\n  \"bytes_swapped_out\": %" PRId64 ",\n  \"bytes_compulsory\": %" PRId64 ",\n  \"hits\": %" PRId64
                  ",\n  \"evictions\": %" PRId64 ",\n  \"prefetches\": %" PRId64 "\n}\n",
                  n, tile.columns, tile.rows, type, comm.size(), workers, best->seconds, gflops, gemm_n, gemm_gflops,
                  aloni::blas_library().kernels.c_str(), finite_error, best->tasks, best->steals, best->bytes_sent,
                  best->swaps.bytes(), best->swaps.bytes_in, best->swaps.bytes_out, best->compulsory_bytes,
                  best->swaps.tiles.hits, best->swaps.tiles.evictions, best->swaps.tiles.prefetches);
    write_text(options.json, json);
  }
  const std::string title = "Cholesky factorisation of " + std::to_string(n) + " rows in tiles of " + to_string(tile) +
                            ", " + type + (comm.size() == 1 ? "" : ", rank 0");
  const aloni::tasks::RunReport& report = best->report;
  if (!options.svg.empty()) write_text(options.svg, timeline_svg(report, title));
  if (!options.trace.empty())
    write_text(options.trace,
               aloni::trace_file(std::vector{aloni::trace_events(trace_of(report, 0, title), report.start)}));
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
    return (options.single ? cholesky::run<float>(comm, options) : cholesky::run<double>(comm, options)) ? 0 : 1;
  } catch (const std::exception& e) {
    if (comm.rank() == 0) std::fprintf(stderr, "%s\n", e.what());
    return 2;
  }
}

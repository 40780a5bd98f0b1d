// Times the factorisation by tasks on several ranks beside a bulk-synchronous one with the same kernels and tiles.
//
//   cholesky/tasks/even/n4096/t256       tasks::cholesky, ranks of equal speed
//   cholesky/bulk/even/n4096/t256        the bulk-synchronous one (factorisation/bulk_synchronous_cholesky.hpp)
//   cholesky/no_barrier/even/n4096/t256  the same without its barriers
//   cholesky/copies/even/n4096/t256      with barriers, and with copies of tiles that the others read in place
//   cholesky/tasks/slow/n4096/t256       the last rank computes at half the speed (factorisation/slow_blas.hpp)
//   cholesky/tasks/by_speed/n4096/t256   the same, and ranks own tile columns by their speed (views::grid_by_speed)
//
// Double. Threads of a rank: as many as one call of BLAS uses (OMP_NUM_THREADS). Before the clock starts, the factors
// are compared bit by bit. Counters: sent_bytes of all ranks per factorisation, with those that tasks read in place;
// slowdown of a matrix product of one tile on the last rank.
//   OMP_NUM_THREADS=1 scripts/mpirun -n 2 build/host/bin/bench_cholesky
//   bench/two_hosts.sh up 1gbit && bench/two_hosts.sh run 1 build/host/bin/bench_cholesky --benchmark_filter=even
#include "factorisation/bulk_synchronous_cholesky.hpp"
#include "factorisation/slow_blas.hpp"
#include "support/benchmark.hpp"

#include <aloni/core/blas_functions.hpp>
#include <aloni/core/blas_library.hpp>
#include <aloni/core/error.hpp>
#include <aloni/core/host_random.hpp>
#include <aloni/tasks/cholesky.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace aloni::bench {
namespace {

using tasks::TileMatrix;
using views::TileDistribution;

enum class Version { tasks, bulk, no_barrier, copies };

enum class Speeds {
  even,
  slow,     ///< half of it on the last rank
  by_speed  ///< the same; ranks own tile columns in proportion
};

struct CholeskyCase {
  Version version = Version::tasks;
  Speeds speeds = Speeds::even;
  Index n = 0;
  views::TileShape tile = 1;

  double speed_of(int rank, int ranks) const { return speeds != Speeds::even && rank == ranks - 1 ? 0.5 : 1; }
};

const char* text_of(Version version) {
  constexpr const char* texts[] = {"tasks", "bulk", "no_barrier", "copies"};
  return texts[static_cast<int>(version)];
}
const char* text_of(Speeds speeds) {
  return speeds == Speeds::even ? "even" : speeds == Speeds::slow ? "slow" : "by_speed";
}

std::string name_of(const CholeskyCase& c) {
  return std::string("cholesky/") + text_of(c.version) + "/" + text_of(c.speeds) + "/n" + std::to_string(c.n) + "/t" +
         to_string(c.tile);
}

int threads_of_rank() { return std::max(1, blas_library().threads); }

double cholesky_element(Index i, Index j, Index n) {
  const auto index = static_cast<std::uint64_t>(std::max(i, j)) << 32 | static_cast<std::uint64_t>(std::min(i, j));
  return random::host_uniform(1, 0, index) + (i == j ? static_cast<double>(n) : 0);
}

/// Bytes that all ranks have sent to others so far. Collective.
double sent_bytes(const comm::Communicator& comm) {
  double bytes = 0;
  for (const auto& [name, traffic] : comm.traffic())
    if (!name.starts_with("self")) bytes += static_cast<double>(traffic.bytes_sent);
  return comm.all_reduce(bytes, comm::Reduction::sum);
}

/// Seconds of the product of two tiles with this slowdown of BLAS; the fastest of some.
double product_seconds(Index columns, int slowdown) {
  const auto n = static_cast<int>(columns);
  const std::vector<double> a(static_cast<std::size_t>(columns * columns), 1), b = a;
  std::vector<double> c = a;
  double best = 1e9;
  const OneBlasThread one;
  set_blas_slowdown(slowdown);
  for (int i = 0; i < 20; ++i) {
    const auto start = std::chrono::steady_clock::now();
    blas::gemm('N', 'T', n, n, n, -1., a.data(), n, b.data(), n, 1., c.data(), n);
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  set_blas_slowdown(1);
  return best;
}

/// One rank's part of a factorisation that is timed.
struct Factorisation {
  comm::Communicator comm;
  CholeskyCase choice;
  TileMatrix<double> matrix, factor;                      // the factor in memory that the ranks of a node share
  std::unique_ptr<BulkSynchronousCholesky<double>> bulk;  // null for tasks
  int slowdown;

  Factorisation(const comm::Communicator& world, const CholeskyCase& c, const TileDistribution& tiles)
      : comm(world),
        choice(c),
        matrix(tiles, tasks::TilePart::lower, world.rank()),
        factor(c.version == Version::copies ? TileMatrix<double>(tiles, tasks::TilePart::lower, world.rank())
                                            : TileMatrix<double>(world, tiles, tasks::TilePart::lower)),
        slowdown(static_cast<int>(1 / c.speed_of(world.rank(), world.size()))) {
    matrix.fill([n = c.n](Index i, Index j) { return cholesky_element(i, j, n); });
    if (c.version != Version::tasks)
      bulk = std::make_unique<BulkSynchronousCholesky<double>>(
          comm, factor, BulkSynchronousOptions{threads_of_rank(), c.version != Version::no_barrier});
  }

  void run() {
    set_blas_slowdown(slowdown);
    if (bulk) {
      bulk->factorise();
    } else {
      tasks::cholesky(comm, factor, {.workers = threads_of_rank()});
    }
    set_blas_slowdown(1);
  }

  /// Throws on all ranks unless the factor has the bits of tasks::cholesky without slowdown, and slowed kernels ran
  /// twice.
  void check() {
    factor.copy_from(matrix);
    const Index repeated = repeated_blas_calls();
    run();
    const bool as_slow = (repeated_blas_calls() > repeated) == (slowdown > 1 && matrix.bytes() > 0);
    TileMatrix<double> expected(comm, matrix.distribution(), tasks::TilePart::lower);
    expected.copy_from(matrix);
    tasks::cholesky(comm, expected, {.workers = threads_of_rank()});
    comm::collectively(comm, name_of(choice), [&] {
      if (!as_slow)
        throw std::runtime_error("bench_cholesky: the slowdown of BLAS has no effect; link aloni as static libraries");
      const TileDistribution& d = matrix.distribution();
      for (const views::Tile& t : d.tiles_of(comm.rank())) {
        const auto bytes = static_cast<std::size_t>(d.elements(t)) * sizeof(double);
        if (matrix.has(t) && std::memcmp(factor.tile(t), expected.tile(t), bytes) != 0)
          throw std::runtime_error("bench_cholesky: tile " + to_string(t) + " has other bits than by tasks::cholesky");
      }
    });
  }
};

Case prepare(const comm::Communicator& world, const CholeskyCase& c) {
  std::vector<double> speeds;
  for (int rank = 0; rank < world.size(); ++rank) speeds.push_back(c.speed_of(rank, world.size()));
  const TileDistribution tiles(
      c.n, c.n, c.tile,
      c.speeds == Speeds::by_speed ? views::grid_by_speed(speeds) : views::squarest_grid(world.size()));
  auto state = std::make_shared<Factorisation>(world, c, tiles);
  state->check();
  state->factor.copy_from(state->matrix);
  const double before = sent_bytes(world);
  state->run();
  const double sent = sent_bytes(world) - before;
  std::map<std::string, double> counters{{"threads", threads_of_rank()}};
  if (!state->bulk || !state->bulk->reads_in_place()) counters["sent_bytes"] = sent;
  if (c.speeds != Speeds::even) {
    const double ratio = product_seconds(c.tile.columns, state->slowdown) / product_seconds(c.tile.columns, 1);
    counters["slowdown"] = world.all_reduce(ratio, comm::Reduction::max);
  }
  return {.run = [state] { state->run(); },
          .flops = std::pow(static_cast<double>(c.n), 3) / 3,
          .counters = counters,
          .before = [state] { state->factor.copy_from(state->matrix); }};
}

}  // namespace

void register_benchmarks(const comm::Communicator& world) {
  constexpr std::pair<Index, views::TileShape> sizes[] = {
      {500, 64},   {500, {128, 64}},    {2048, 128}, {2048, 256},         {4096, 128}, {4096, 256},
      {4096, 512}, {4096, {1024, 256}}, {8192, 256}, {8192, {1024, 256}}, {8192, 512}};
  for (const auto& [n, tile] : sizes)
    for (const Speeds speeds : {Speeds::even, Speeds::slow, Speeds::by_speed})
      for (const Version version : {Version::tasks, Version::bulk, Version::no_barrier, Version::copies}) {
        const CholeskyCase c{version, speeds, n, tile};
        add_timed(world, name_of(c), [&world, c] { return prepare(world, c); });
      }
}

}  // namespace aloni::bench

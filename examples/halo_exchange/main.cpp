// Heat flow through a square plate with insulated edges. The plate is split into blocks. In each time step the halo
// exchange overlaps with the interior of the block; then the border is computed. The result has the same bits for any
// number of ranks and any split.
//   mpirun -n 4 halo_exchange [GRID]        GRID: h4 (default: split by rows), w4, h2w2, …
#include <aloni/core/comm/mpi.hpp>
#include <aloni/core/environment.hpp>
#include <aloni/core/random.hpp>
#include <aloni/halo/exchange.hpp>

#include <cinttypes>
#include <cstdio>
#include <string>

namespace {

using namespace aloni;
using views::Dim;
using views::Side;
using Field = views::DistributedView<double, 2>;
using Cells = Field::view_type;  // sample, height, width, channel
using Exec = Kokkos::DefaultExecutionSpace;

constexpr Index edge = 64, steps = 200;

struct Fill {
  Cells u;
  views::GlobalIndex<2> global;
  KOKKOS_FUNCTION void operator()(Index n, Index i, Index j, Index c) const {
    const auto at = global(n, i, j, c);
    u(n, i, j, c) = random::uniform<double>(1, 0, at[1] * edge + at[2]);
  }
};

/// @pre `u` covers one more cell than `next` on each side.
struct Step {
  Cells u, next;
  KOKKOS_FUNCTION void operator()(Index n, Index i, Index j, Index c) const {
    const Index y = i + 1, x = j + 1;
    const double around = (u(n, y - 1, x, c) + u(n, y + 1, x, c)) + (u(n, y, x - 1, c) + u(n, y, x + 1, c));
    next(n, i, j, c) =
        u(n, y, x, c) + 0.125 * (around - 4 * u(n, y, x, c));  // powers of two: -ffp-contract changes no bits
  }
};

/// Sum of the values' bits, weighted by position. Integers make it independent of the order.
struct Checksum {
  Cells u;
  views::GlobalIndex<2> global;
  KOKKOS_FUNCTION void operator()(Index n, Index i, Index j, Index c, std::uint64_t& sum) const {
    const auto at = global(n, i, j, c);
    sum += Kokkos::bit_cast<std::uint64_t>(u(n, i, j, c)) * (2 * static_cast<std::uint64_t>(at[1] * edge + at[2]) + 1);
  }
};

std::uint64_t run(const comm::Communicator& comm, const views::ProcessGrid& grid) {
  const Queue<> queue;
  const Exec& exec = queue.space();
  const auto plate = views::Distribution::block(views::make_extents(1, {edge, edge}, 1), grid, comm.size());
  views::GhostWidths one;
  for (Dim d : {Dim::height, Dim::width}) one(d, Side::low) = one(d, Side::high) = 1;
  const Field u(exec, "u", plate, comm.rank(), one), next(exec, "next", plate, comm.rank());
  // A ghost beyond the edge of the plate repeats the last cell: no heat flows out.
  const auto insulated = halo::BoundaryConditions::all(halo::Boundary::replicate);
  const halo::Exchange<> exchange(comm, queue, {{u, insulated}});
  const auto advance = [&](const views::Box& part) {
    if (part.empty()) return;
    Kokkos::parallel_for("heat: step", next.policy(exec, part), Step{u.subview(grow(part, one)), next.subview(part)});
  };

  Kokkos::parallel_for("heat: fill", u.owned_policy(exec), Fill{u.owned(), u.global_index()});
  for (Index t = 0; t < steps; ++t) {
    auto ghosts = exchange.start(queue);
    advance(u.interior(one));
    ghosts.finish();
    for (const views::Box& part : u.boundary(one)) advance(part);
    deep_copy(exec, u, next);
  }
  std::uint64_t sum = 0;
  Kokkos::parallel_reduce("heat: checksum", u.owned_policy(exec), Checksum{u.owned(), u.global_index()}, sum);
  return comm.all_reduce(sum, comm::Reduction::sum);
}

}  // namespace

int main(int argc, char** argv) {
  const Environment environment(argc, argv);
  const auto comm = comm::from_mpi(MPI_COMM_WORLD);
  try {
    const std::string grid = argc > 1 ? argv[1] : "h" + std::to_string(comm.size());
    const std::uint64_t sum = run(comm, views::ProcessGrid::parse(grid));
    if (comm.rank() == 0)
      std::printf("%d steps, split %s: checksum %016" PRIx64 "\n", static_cast<int>(steps), grid.c_str(), sum);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "rank %d: %s\n", comm.rank(), e.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
}

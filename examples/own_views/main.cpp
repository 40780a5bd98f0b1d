// From a code's own View to an exchange. The code has MPI, Kokkos and its field: 16³ cells per rank, five numbers per
// cell, two ghosts around, x the fastest as in Fortran. The box is periodic and split along z.
#include <aloni/core/comm/mpi.hpp>
#include <aloni/halo/exchange.hpp>
#include <cstdio>

using namespace aloni;
using views::Dim, views::Side;

void your_code(MPI_Comm mpi) {
  const auto comm = comm::from_mpi(mpi);
  const int rank = comm.rank(), ranks = comm.size();
  Kokkos::View<double****, Kokkos::LayoutLeft> field("field", 20, 20, 20, 5);  // x, y, z, quantity
  Kokkos::deep_copy(field, rank);

  const views::ProcessGrid grid{.blocks = {1, ranks, 1, 1, 1}};  // sample, depth, height, width, channel
  const auto box = views::Distribution::block(views::make_extents(1, {16 * ranks, 16, 16}, 5), grid, ranks);
  views::GhostWidths two;
  for (const Dim d : views::spatial_dims) two(d, Side::low) = two(d, Side::high) = 2;
  const auto view = views::DistributedView<double, 3>::wrap_permuted(
      field, {Dim::width, Dim::height, Dim::depth, Dim::channel}, box, rank, two);
  const Queue<> queue;
  const halo::Exchange<> exchange(comm, queue, {{view, halo::BoundaryConditions::all(halo::Boundary::periodic)}});

  exchange.run(queue);  // in each time step; or start(), the interior, finish(), the cells along the borders
  queue.fence("your code: the host reads the ghosts");
  const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, field);
  std::printf("rank %d: below me is rank %g, above me rank %g\n", rank, host(0, 0, 0, 4), host(19, 19, 19, 4));
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  Kokkos::initialize(argc, argv);
  your_code(MPI_COMM_WORLD);
  Kokkos::finalize();
  MPI_Finalize();
}

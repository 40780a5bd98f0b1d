#include <aloni/core/comm/mpi.hpp>
#include <aloni/core/environment.hpp>
#include <aloni/halo/exchange.hpp>
#include <cstdio>

int main(int argc, char** argv) {
  using namespace aloni;
  const Environment environment(argc, argv);  // or the application's own MPI_Init and Kokkos::initialize
  const auto comm = comm::from_mpi(MPI_COMM_WORLD);
  const int rank = comm.rank(), ranks = comm.size();
  // The application's field (sample, height, width, channel): 4 owned rows per rank, one ghost row above and below.
  Kokkos::View<double****> field("field", 1, 6, 3, 1);
  Kokkos::deep_copy(field, rank);
  // The field is split by height. wrap() uses the memory of the application's View and copies nothing.
  const views::ProcessGrid grid{.blocks = {1, 1, ranks, 1, 1}};
  const auto rows = views::Distribution::block(views::make_extents(1, {4 * ranks, 3}, 1), grid, ranks);
  views::GhostWidths ghosts;
  ghosts(views::Dim::height, views::Side::low) = ghosts(views::Dim::height, views::Side::high) = 1;
  const auto view = views::DistributedView<double, 2>::wrap(field, rows, rank, ghosts);
  const Queue<> queue;
  halo::Exchange<>(comm, queue, {{view, halo::BoundaryConditions::all(halo::Boundary::periodic)}}).run(queue);
  queue.fence("first_steps: the host reads the ghosts");
  const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, field);
  std::printf("rank %d: above me is rank %g, below me rank %g\n", rank, host(0, 0, 0, 0), host(0, 5, 0, 0));
}

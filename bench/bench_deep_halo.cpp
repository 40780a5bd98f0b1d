// Times steps of a stencil with few operations per cell. The halo is exchanged in every step, or once in two, four or
// eight steps.
//
//   heat/EDGE/everyK/TRANSPORT    eight steps of the five-point stencil on EDGE² cells, split in height, with an
//                                 exchange once in K steps
//
// messages: messages of all ranks in one repetition. redundant: redundant cells in per cent of owned cells, the largest
// of all ranks. TRANSPORT: shared, or mpi (without shared memory). bench/two_hosts.sh runs the cases between two hosts.
#include "support/benchmark.hpp"

#include <aloni/core/comm/mpi.hpp>
#include <aloni/halo/deep_halo.hpp>
#include <aloni/halo/exchange.hpp>
#include <aloni/halo/refill.hpp>

#include <Kokkos_Core.hpp>

#include <array>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

namespace aloni::bench {

/// Computes `width` cells of each row. Row 0 starts at index `first`; both Views have rows of `stride` cells.
struct Heat {
  const double* now;
  double* next;
  Index first, stride, width;

  /// Computes one row; for hosts.
  KOKKOS_FUNCTION void operator()(Index row) const {
    for (Index i = 0; i < width; ++i) cell(first + row * stride + i);
  }
  /// Computes one cell; for devices.
  KOKKOS_FUNCTION void operator()(Index i, Index row) const { cell(first + row * stride + i); }
  KOKKOS_FORCEINLINE_FUNCTION void cell(Index at) const {
    const double around = (now[at - stride] + now[at + stride]) + (now[at - 1] + now[at + 1]);
    next[at] = now[at] + 0.125 * (around - 4 * now[at]);
  }
};

namespace {

using halo::Boundary;
using halo::BoundaryConditions;
using views::Box;
using views::Dim;
using views::Distribution;
using views::GhostWidths;
using views::ProcessGrid;
using views::Side;
using Exec = Kokkos::DefaultExecutionSpace;
using View = views::DistributedView<double, 2>;

constexpr int steps = 8;

struct Fill {
  View::view_type cells;
  views::GlobalIndex<2> global;
  KOKKOS_FUNCTION void operator()(Index n, Index h, Index w, Index c) const {
    const auto at = global(n, h, w, c);
    cells(n, h, w, c) = static_cast<double>((7 * at[1] + 11 * at[2]) % 64);
  }
};

class Plate {
 public:
  Plate(const comm::Communicator& comm, Index edge, int every)
      : domain_(Distribution::block(views::make_extents(1, {edge, edge}, 1), ProcessGrid{{1, 1, comm.size(), 1, 1}},
                                    comm.size())),
        deep_(domain_, comm.rank(), one(), every, insulated()) {
    for (std::size_t i = 0; i < 2; ++i) {
      plates_[i] = View(comm, queue_.space(), "aloni::bench: plate", domain_, deep_.ghosts());
      exchanges_[i] = halo::Exchange<>(comm, queue_, {{plates_[i], insulated()}});
      refills_[i] = halo::make_refill(comm, queue_, deep_, {{plates_[i], insulated()}});
    }
    Kokkos::parallel_for("aloni::bench: fill", plates_[0].owned_policy(queue_.space()),
                         Fill{plates_[0].owned(), plates_[0].global_index()});
  }

  void run() {
    for (int n = 0; n < steps; ++n) {
      const auto now = static_cast<std::size_t>(n % 2);
      (deep_.exchange_due(n) ? exchanges_[now].start(queue_) : refills_[now].start(queue_)).finish();
      advance(plates_[now], plates_[1 - now], deep_.computed(n));
    }
    queue_.fence("aloni::bench: end of repetition");
  }

  bool equals(const Plate& other) const {
    const auto mine = plates_[0].owned(), theirs = other.plates_[0].owned();
    int different = 0;
    Kokkos::parallel_reduce(
        "aloni::bench: compare", plates_[0].owned_policy(queue_.space()),
        KOKKOS_LAMBDA(Index n, Index h, Index w, Index c, int& sum) { sum += mine(n, h, w, c) != theirs(n, h, w, c); },
        different);
    return different == 0;
  }

  /// Number of messages that this rank sends in one repetition.
  double messages() const {
    return static_cast<double>(exchanges_[0].counts().sent_messages * (steps / deep_.steps()));
  }
  /// Redundant cells of this rank, in per cent of its owned cells.
  double redundant() const {
    const auto owned = static_cast<double>(deep_.computed_cells() - deep_.redundant_cells());
    return owned == 0 ? 0 : 100 * static_cast<double>(deep_.redundant_cells()) / owned;
  }

 private:
  static GhostWidths one() {
    GhostWidths radius;
    for (const Dim d : {Dim::height, Dim::width}) radius(d, Side::low) = radius(d, Side::high) = 1;
    return radius;
  }
  static BoundaryConditions insulated() { return BoundaryConditions::all(Boundary::replicate); }

  void advance(const View& now, const View& next, const Box& part) const {
    if (part.empty()) return;
    const Box all = now.box_with_ghosts();
    const Index stride = all.extent(Dim::width), height = part.extent(Dim::height), width = part.extent(Dim::width);
    const Heat heat{.now = now.local_unchecked().data(),
                    .next = next.local_unchecked().data(),
                    .first = (part.lower(Dim::height) - all.lower(Dim::height)) * stride + part.lower(Dim::width) -
                             all.lower(Dim::width),
                    .stride = stride,
                    .width = width};
    constexpr const char* label = "aloni::bench: heat";
    const Exec& exec = queue_.space();
    if constexpr (std::is_same_v<Exec::memory_space, Kokkos::HostSpace>) {
      Kokkos::parallel_for(label, Kokkos::RangePolicy<Exec, Kokkos::IndexType<Index>>(exec, 0, height), heat);
    } else {
      using Tiles = Kokkos::Rank<2, Kokkos::Iterate::Left, Kokkos::Iterate::Left>;
      Kokkos::parallel_for(
          label, Kokkos::MDRangePolicy<Exec, Tiles, Kokkos::IndexType<Index>>(exec, {0, 0}, {width, height}), heat);
    }
    next.mark_stale();
  }

  Distribution domain_;
  halo::DeepHalo deep_;
  Queue<Exec> queue_;
  std::array<View, 2> plates_;
  std::array<halo::Exchange<>, 2> exchanges_;
  std::array<halo::Transfer<>, 2> refills_;
};

}  // namespace

void register_benchmarks(const comm::Communicator& world) {
  for (const auto& [transport, options] :
       {std::pair<std::string, comm::TransportOptions>{"shared", {}}, {"mpi", {.shared_memory = false}}})
    for (const Index edge : {64, 256, 1024})
      for (const int every : {1, 2, 4, 8})
        add_timed(world, "heat/" + std::to_string(edge) + "/every" + std::to_string(every) + "/" + transport,
                  [&world, edge, every, options] {
                    const auto comm = comm::from_mpi(MPI_COMM_WORLD, options);
                    const auto plate = std::make_shared<Plate>(comm, edge, every);
                    Plate usual(comm, edge, 1);
                    plate->run();
                    usual.run();
                    if (!plate->equals(usual))
                      throw std::runtime_error("bench_deep_halo: wrong result with a deep halo");
                    return Case{
                        .run = [plate] { plate->run(); },
                        .counters = {{"messages", world.all_reduce(plate->messages(), comm::Reduction::sum)},
                                     {"redundant", world.all_reduce(plate->redundant(), comm::Reduction::max)}}};
                  });
}

}  // namespace aloni::bench

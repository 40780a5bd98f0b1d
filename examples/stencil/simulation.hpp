#pragma once
// The application: wraps its own Views, and computes time steps whose ghosts travel while the interior is computed. On
// request one exchange serves several substeps.
#include "model.hpp"

#include <aloni/core/comm/shared_view.hpp>
#include <aloni/halo/deep_halo.hpp>
#include <aloni/halo/exchange.hpp>
#include <aloni/halo/exchange_tuning.hpp>
#include <aloni/halo/refill.hpp>

#include <array>
#include <cstdint>
#include <memory>
#include <numbers>
#include <vector>

namespace stencil {

using aloni::Queue;
using aloni::views::Box;
using aloni::views::Dim;
using aloni::views::Distribution;
using aloni::views::GhostWidths;
using aloni::views::ProcessGrid;
using aloni::views::Side;
namespace comm = aloni::comm;
namespace halo = aloni::halo;

inline halo::BoundaryConditions periodic() { return halo::BoundaryConditions::all(halo::Boundary::periodic); }

inline Distribution domain_of(Index depth, Index height, Index width, const ProcessGrid& grid) {
  return Distribution::block(aloni::views::make_extents(1, {depth, height, width}, quantities), grid, grid.size());
}
/// size³ cells in all.
inline Distribution cube(Index size, const ProcessGrid& grid) { return domain_of(size, size, size, grid); }
/// size³ cells for each rank.
inline Distribution cube_per_rank(Index size, const ProcessGrid& grid) {
  return domain_of(size * grid[Dim::depth], size * grid[Dim::height], size * grid[Dim::width], grid);
}

/// The halo of this stencil, exchanged once in `substeps` substeps.
inline halo::DeepHalo deep_halo(const Distribution& domain, int rank, int substeps) {
  GhostWidths cells;
  for (const Dim d : aloni::views::spatial_dims) cells(d, Side::low) = cells(d, Side::high) = radius;
  return halo::DeepHalo(domain, rank, cells, substeps, periodic());
}

template <class T>
class Simulation {
 public:
  using Exec = Kokkos::DefaultExecutionSpace;
  using View = aloni::views::DistributedView<T, 3>;

  /// Collective. A period of 2π has `cells_per_period` cells; the domain has a whole number of periods in each
  /// direction. One exchange serves `every` substeps. `tune`: measure the methods of exchange and take the fastest.
  Simulation(const comm::Communicator& comm, const Distribution& domain, Index cells_per_period, int every,
             bool tune = false);

  /// Three substeps.
  void step() {
    for (int i = 0; i < 3; ++i, ++substep_) {
      if (deep_.exchange_due(substep_))
        compute_beside_exchange(i);
      else
        compute_after_refill(i);
      now_ = 1 - now_;
    }
    queue_.fence("aloni::stencil: end of the step");
  }

  // The parts of a step, for timing. They leave the state unchanged: the next step computes their results again.
  void exchange_only() {
    for (int i = 0; i < 3; ++i) {
      if (deep_.exchange_due(substep_ + i)) {
        if (i > 0) changes_.run(queue_);
        now().within.run(queue_);
        now().between.run(queue_);
      } else {
        now().refill.run(queue_);
      }
    }
    queue_.fence("aloni::stencil: end of the exchange");
  }
  void compute_in_parts() {
    for (int i = 0; i < 3; ++i) {
      const Box all = deep_.computed(substep_ + i);
      const Box interior = deep_.exchange_due(substep_ + i) ? view().interior(reach()) : all;
      compute(interior, 0);
      for (const Box& part : difference(all, interior)) compute(part, 0);
    }
    queue_.fence("aloni::stencil: end of the computation");
  }
  /// Computes the owned cells, each once.
  void compute_at_once() {
    for (int i = 0; i < 3; ++i) compute(view().owned_box(), 0);
    queue_.fence("aloni::stencil: end of the computation");
  }

  const View& view() const { return now().view; }
  const Cells<T>& cells() const { return now().cells; }
  /// Messages and elements of this rank in one exchange with other ranks.
  halo::TransferCount counts() const { return now().between.counts(); }
  const halo::DeepHalo& deep() const { return deep_; }
  /// Measured times of the exchange methods, fastest first; empty if not tuned.
  const std::vector<halo::MethodTime>& methods() const { return methods_; }
  double time_step() const { return model_.time_step; }
  double cell_width() const { return width_; }

  /// Collective: sum of the bits of all values, weighted by position. Integers, so that the order does not matter.
  std::uint64_t checksum() const;
  /// Collective: the smallest and the largest density; the smallest is −∞ if a density is not a number.
  std::array<double, 2> density_range() const;

 private:
  // The application owns the Views and chooses their layout and memory; an existing code would wrap the Views that it
  // has. The other ranks of the node reach memory of allocate_shared(), and copy their ghosts from it in one pass. From
  // other memory, values are packed, copied and unpacked.
  struct Field {
    std::shared_ptr<void> memory;
    Cells<T> cells;
    View view;
    // The box is periodic. In a dimension that is not split, the ghosts of a rank are copies of its own cells. They are
    // filled first, so that the interior covers the whole dimension. All other ghosts come in messages, one from each
    // neighbour, while the interior is computed.
    halo::Exchange<> within, between;
    halo::Transfer<> refill;  ///< ghosts from the rank itself, for substeps without an exchange
  };
  const Field& now() const { return fields_[now_]; }
  void allocate(Field& field, const Distribution& domain) const;
  using ExchangeFields = std::vector<halo::Exchange<>::field_type>;
  /// The ghosts that the exchanges of a field fill.
  struct Ghosts {
    ExchangeFields within, between;
  };
  Ghosts ghosts_of(const Field& field, const Distribution& domain) const;
  halo::Exchange<> exchange_of_changes(const Distribution& domain) const;

  /// The ghosts travel while the interior is computed.
  void compute_beside_exchange(int i) const {
    if (i > 0) changes_.run(queue_);  // the first substep of a step starts a new change
    now().within.run(queue_);
    auto ghosts = now().between.start(queue_);
    const Box interior = view().interior(reach());
    compute(interior, i);
    ghosts.finish();
    for (const Box& part : difference(deep_.computed(substep_), interior)) compute(part, i);
  }
  /// On ghosts that the substeps since the last exchange have computed.
  void compute_after_refill(int i) const {
    now().refill.run(queue_);
    compute(deep_.computed(substep_), i);
  }

  /// Width of the border, which waits for messages. Three cells suffice; along x it is a whole cache line, because rows
  /// of three cells cost as much as rows of eight.
  GhostWidths reach() const {
    GhostWidths cells;
    for (const Dim d : aloni::views::spatial_dims) {
      const Index width = view().distribution().grid()[d] == 1 ? 0 : d == Dim::width ? 8 : radius;
      cells(d, Side::low) = cells(d, Side::high) = width;
    }
    return cells;
  }
  void compute(const Box& part, int i) const {
    static constexpr std::array<double, 3> alpha{0, -5. / 9, -153. / 128}, beta{1. / 3, 15. / 16, 8. / 15};
    const Box all = view().box_with_ghosts();
    Substep<T> substep{.u = cells(),
                       .change = change_.cells,
                       .next = fields_[1 - now_].cells,
                       .first = {},
                       .extent = {},
                       .model = model_,
                       .alpha = static_cast<T>(alpha[static_cast<std::size_t>(i)]),
                       .beta = static_cast<T>(beta[static_cast<std::size_t>(i)])};
    for (int axis = 0; axis < 3; ++axis) {
      const Dim d = aloni::views::spatial_dims[static_cast<std::size_t>(axis)];
      substep.first[axis] = part.lower(d) - all.lower(d);
      substep.extent[axis] = part.extent(d);
    }
    run(queue_.space(), substep);
  }

  comm::Communicator comm_;
  Queue<Exec> queue_;
  double width_;  ///< of a cell
  Model<T> model_;
  halo::DeepHalo deep_;
  std::vector<halo::MethodTime> methods_;
  Index substep_ = 0;            ///< since the start
  std::array<Field, 2> fields_;  ///< one holds the current values, the other the next ones
  Field change_;
  halo::Exchange<> changes_;
  std::size_t now_ = 0;
};

/// Position of the owned cells in a View with ghosts, and in the whole domain.
struct Place {
  Kokkos::Array<Index, 3> ghosts, first, extent, domain;  ///< z, y, x

  template <class View>
  explicit Place(const View& view) {
    for (int axis = 0; axis < 3; ++axis) {
      const Dim d = aloni::views::spatial_dims[static_cast<std::size_t>(axis)];
      ghosts[axis] = view.ghosts()(d, Side::low);
      first[axis] = view.owned_box().lower(d);
      extent[axis] = view.owned_box().extent(d);
      domain[axis] = view.distribution().extents()[d];
    }
  }
  KOKKOS_FUNCTION Index number(Index z, Index y, Index x) const {
    return ((first[0] + z) * domain[1] + first[1] + y) * domain[2] + first[2] + x;
  }
  /// Value of quantity q at an owned cell; `cells`: a View like Cells, in the memory of a device or the host.
  template <class View>
  KOKKOS_FUNCTION decltype(auto) value(const View& cells, int q, Index z, Index y, Index x) const {
    return cells(q, z + ghosts[0], y + ghosts[1], x + ghosts[2]);
  }
  auto policy(const Kokkos::DefaultExecutionSpace& exec) const {
    using Policy = Kokkos::MDRangePolicy<Kokkos::DefaultExecutionSpace, Kokkos::Rank<3>, Kokkos::IndexType<Index>>;
    return Policy(exec, {0, 0, 0}, {extent[0], extent[1], extent[2]});
  }
};

template <class T>
struct Start {
  Cells<T> cells;
  Place place;
  double width;
  KOKKOS_FUNCTION void operator()(Index z, Index y, Index x) const {
    const auto centre = [&](int axis, Index i) { return width * (static_cast<double>(place.first[axis] + i) + 0.5); };
    const auto values = start_at<T>(centre(2, x), centre(1, y), centre(0, z));
    for (int q = 0; q < quantities; ++q) place.value(cells, q, z, y, x) = values[q];
  }
};

template <class T>
struct Checksum {
  using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  Cells<T> cells;
  Place place;
  KOKKOS_FUNCTION void operator()(Index z, Index y, Index x, std::uint64_t& sum) const {
    for (int q = 0; q < quantities; ++q)
      sum += static_cast<std::uint64_t>(Kokkos::bit_cast<Bits>(place.value(cells, q, z, y, x))) *
             (2 * static_cast<std::uint64_t>(quantities * place.number(z, y, x) + q) + 1);
  }
};

template <class T>
struct DensityRange {
  Cells<T> cells;
  Place place;
  KOKKOS_FUNCTION void operator()(Index z, Index y, Index x, double& low, double& high) const {
    const double rho = place.value(cells, density, z, y, x);
    low = Kokkos::min(low, rho == rho ? rho : -Kokkos::Experimental::infinity_v<double>);
    high = Kokkos::max(high, rho);
  }
};

template <class T>
void Simulation<T>::allocate(Field& field, const Distribution& domain) const {
  const Box box = grow(domain.owned(comm_.rank()), deep_.ghosts());
  const auto n = [&](Dim d) { return static_cast<std::size_t>(box.extent(d)); };
  const auto allocation =
      comm::allocate_shared<T>(comm_, queue_.space(), "stencil: field", static_cast<std::size_t>(box.size()));
  field.memory = std::make_shared<std::remove_const_t<decltype(allocation)>>(allocation);
  field.cells = Cells<T>(allocation.first.data(), quantities, n(Dim::depth), n(Dim::height), n(Dim::width));
  field.view = View::wrap_permuted(field.cells, {Dim::channel, Dim::depth, Dim::height, Dim::width}, domain,
                                   comm_.rank(), deep_.ghosts());
}

template <class T>
auto Simulation<T>::ghosts_of(const Field& field, const Distribution& domain) const -> Ghosts {
  // Slabs on both sides of each split dimension; the slabs of the first dimension contain the edges and corners. The
  // remaining ghosts, in dimensions that are not split, come from the rank itself.
  ExchangeFields slabs;
  std::vector<Dim> done;
  const auto box_without = [domain, every = deep_.steps()](int rank, const std::vector<Dim>& dims) {
    GhostWidths ghosts = deep_halo(domain, rank, every).ghosts();
    for (const Dim d : dims) ghosts(d, Side::low) = ghosts(d, Side::high) = 0;
    return grow(domain.owned(rank), ghosts);
  };
  for (const Dim d : aloni::views::spatial_dims) {
    if (domain.grid()[d] == 1) continue;
    for (const Side side : {Side::low, Side::high}) {
      slabs.emplace_back(field.view, periodic(), [domain, box_without, done, d, side](int rank) {
        const Box own = domain.owned(rank);
        Box slab = box_without(rank, done);
        if (side == Side::low) slab.set(d, slab.lower(d), own.lower(d));
        if (side == Side::high) slab.set(d, own.upper(d), slab.upper(d));
        return slab;
      });
    }
    done.push_back(d);
  }
  const auto own_ghosts = [box_without, done](int rank) { return box_without(rank, done); };
  return {.within = {{field.view, periodic(), own_ghosts}}, .between = slabs};
}

/// A substep adds to the change of the last substep in all cells that it computes, after an exchange also in ghosts. So
/// the change is exchanged too, before the interior is computed: computing overwrites the change.
template <class T>
halo::Exchange<> Simulation<T>::exchange_of_changes(const Distribution& domain) const {
  const auto computed = [domain, every = deep_.steps()](int rank) {
    return deep_halo(domain, rank, every).computed(0);
  };
  return halo::Exchange<>(comm_, queue_, {{change_.view, periodic(), computed}});
}

template <class T>
Simulation<T>::Simulation(const comm::Communicator& comm, const Distribution& domain, Index cells_per_period, int every,
                          bool tune)
    : comm_(comm),
      width_(2 * std::numbers::pi / static_cast<double>(cells_per_period)),
      model_(Model<T>::with_cells_of(width_)),
      deep_(deep_halo(domain, comm.rank(), every)) {
  // If one rank has too little memory, all ranks throw.
  comm::collectively(comm_, "stencil: allocating the fields", [&] {
    for (Field* field : {&fields_[0], &fields_[1], &change_}) allocate(*field, domain);
  });
  if (tune) methods_ = halo::measure_methods(comm_, queue_, ghosts_of(fields_[0], domain).between);
  const halo::ExchangeMethod method = methods_.empty() ? halo::ExchangeMethod{} : methods_.front().method;
  for (Field& field : fields_) {
    const Ghosts ghosts = ghosts_of(field, domain);
    field.within = halo::Exchange<>(comm_, queue_, ghosts.within);
    field.between = halo::Exchange<>(comm_, queue_, ghosts.between, method);
    field.refill = halo::make_refill(comm_, queue_, deep_, {{field.view, periodic()}});
  }
  changes_ = exchange_of_changes(domain);
  const Place place(view());
  Kokkos::parallel_for("stencil: start", place.policy(queue_.space()), Start<T>{cells(), place, width_});
  queue_.fence("aloni::stencil: the start is there");
}

template <class T>
std::uint64_t Simulation<T>::checksum() const {
  const Place place(view());
  std::uint64_t sum = 0;
  Kokkos::parallel_reduce("stencil: checksum", place.policy(queue_.space()), Checksum<T>{cells(), place}, sum);
  return comm_.all_reduce(sum, comm::Reduction::sum);
}

template <class T>
std::array<double, 2> Simulation<T>::density_range() const {
  const Place place(view());
  double low = 0, high = 0;
  Kokkos::parallel_reduce("stencil: range of densities", place.policy(queue_.space()), DensityRange<T>{cells(), place},
                          Kokkos::Min<double>(low), Kokkos::Max<double>(high));
  return {comm_.all_reduce(low, comm::Reduction::min), comm_.all_reduce(high, comm::Reduction::max)};
}

}  // namespace stencil

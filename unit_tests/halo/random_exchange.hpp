#pragma once
// An exchange of several random Views. One generator draws types, memory, layouts, extents, grids, uneven blocks, ghost
// widths per side and rank, boundaries and methods. It knows the right value of every ghost.
#include <aloni/halo/exchange.hpp>

#include <gtest/gtest.h>
#include <halo/distributed.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <vector>

namespace aloni::halo::testing_support {

using views::DistributedView;
using views::GhostState;
using views::GhostWidths;

/// One View of a random exchange, as functions on it.
struct Quantity {
  Field<Memory> field;
  std::function<void(int variant)> fill;     ///< sets owned cells by global index, ghosts to -1
  std::function<void(int variant)> compare;  ///< compares all cells with the cells they come from
  std::function<void()> expect_poison;       ///< checks that all ghosts to be filled are poisoned
};

/// The ghost widths of a rank. differ: they are different on different ranks.
inline GhostWidths random_widths(Random& pick, int rank, bool differ) {
  GhostWidths widths;
  for (const Dim dim : all_dims)
    for (const Side side : {Side::low, Side::high}) {
      const bool is_space = dim != Dim::sample && dim != Dim::channel;
      const Index width = pick.one_in(is_space ? 2 : 8) ? pick(1, pick.one_in(6) ? 9 : 3) : 0;
      const int shift = pick(0, 2);
      widths(dim, side) = differ ? std::max<Index>(0, width - (rank + shift) % 3) : width;
    }
  return widths;
}

inline Distribution random_domain(Random& pick, int ranks) {
  Extents extents;
  for (const Dim dim : all_dims) extents[dim] = pick.one_in(40) ? 0 : pick(1, pick.one_in(3) ? 7 : 4);
  if (pick.one_in(3)) return random_distribution(pick, extents, ranks);
  const auto grids = views::all_grids(ranks, {Dim::depth, Dim::height, Dim::width});
  return Distribution::block(extents, grids[static_cast<std::size_t>(pick(0, static_cast<int>(grids.size()) - 1))],
                             ranks);
}

/// A distribution without empty blocks, for exchanges by dimension.
inline Distribution random_blocks(Random& pick, int ranks) {
  const auto grids = views::all_grids(ranks, {Dim::depth, Dim::height, Dim::width});
  const ProcessGrid& grid = grids[static_cast<std::size_t>(pick(0, static_cast<int>(grids.size()) - 1))];
  Extents extents;
  for (const Dim dim : all_dims) extents[dim] = grid[dim] + pick(0, 3);
  return Distribution::block(extents, grid, ranks);
}

template <class T>
class Maker {
 public:
  Maker(const comm::Communicator& comm, const Queue<Exec>& queue, Random& pick)
      : comm_(comm), queue_(queue), pick_(pick) {}

  Quantity operator()(const Distribution& d, const GhostWidths& ghosts, const BoundaryConditions& boundaries) {
    using View = DistributedView<T, 3>;
    const Box box = views::grow(d.owned(comm_.rank()), ghosts);
    const auto n = [&](Dim dim) { return static_cast<std::size_t>(box.extent(dim)); };
    View x;
    switch (pick_(0, 4)) {
      case 0:
        x = View(queue_.space(), "x", d, comm_.rank(), ghosts);
        break;
      case 1:
        x = View::wrap(Kokkos::View<T*****, Kokkos::LayoutLeft, Memory>("left", n(Dim::sample), n(Dim::depth),
                                                                        n(Dim::height), n(Dim::width), n(Dim::channel)),
                       d, comm_.rank(), ghosts);
        break;
      case 2:
        x = View::wrap_permuted(
            Kokkos::View<T*****, Kokkos::LayoutRight, Memory>("channels first", n(Dim::channel), n(Dim::sample),
                                                              n(Dim::width), n(Dim::height), n(Dim::depth)),
            {Dim::channel, Dim::sample, Dim::width, Dim::height, Dim::depth}, d, comm_.rank(), ghosts);
        break;
      default:
        x = View(comm_, queue_.space(), "x", d, ghosts);
    }
    return {{x, boundaries},
            [x](int variant) {
              set_cells(x, [&](const Cell& c) { return holds(x.owned_box(), c) ? value_of(c, variant) : -1; });
              x.mark_stale();
            },
            [x, d, boundaries](int variant) {
              ASSERT_EQ(x.ghost_state(), GhostState::fresh);
              for_each_value(x, [&](const Cell& c, double value) {
                Cell from;
                const Origin origin = trace_cell(c, d.extents(), boundaries, from);
                ASSERT_EQ(value, origin == Origin::value  ? value_of(from, variant)
                                 : origin == Origin::zero ? 0
                                                          : -1)
                    << "cell " << testing::PrintToString(c);
              });
            },
            [x, d, boundaries] {
              for_each_value(x, [&](const Cell& c, double value) {
                Cell from;
                if (holds(x.owned_box(), c) || trace_cell(c, d.extents(), boundaries, from) == Origin::untouched)
                  return;
                ASSERT_TRUE(std::isnan(value) || value == static_cast<double>(std::numeric_limits<T>::lowest()));
              });
            }};
  }

 private:
  const comm::Communicator& comm_;
  const Queue<Exec>& queue_;
  Random& pick_;
};

class RandomExchange {
 public:
  /// Collective. @pre `pick` has equal states on all ranks
  RandomExchange(const comm::Communicator& comm, const Queue<Exec>& queue, Random& pick) : queue_(queue) {
    options_ = {.direct_bytes = pick.one_in(2) ? std::size_t{0} : TransferOptions{}.direct_bytes,
                .consolidate_below = pick.one_in(2) ? ~std::size_t{0} : std::size_t{0},
                .poison = pick.one_in(2)};
    ExchangeMethod method{.fused = !pick.one_in(3), .by_dimension = pick.one_in(3)};
    if (pick.one_in(3)) method.consolidated = pick.one_in(2);
    Distribution d;
    for (int i = pick(1, 5); i > 0; --i) {
      // Several quantities share one grid, as in most codes.
      if (quantities_.empty() || pick.one_in(3))
        d = method.by_dimension ? random_blocks(pick, comm.size()) : random_domain(pick, comm.size());
      const Extents& extents = d.extents();
      BoundaryConditions boundaries;
      for (const Dim dim : all_dims)
        for (const Side side : {Side::low, Side::high})
          boundaries(dim, side) = extents[dim] == 0 ? (pick.one_in(2) ? Boundary::zero : Boundary::none)
                                                    : static_cast<Boundary>(pick(0, 4));
      const GhostWidths ghosts = random_widths(pick, comm.rank(), pick.one_in(4) && !method.by_dimension);
      const auto add = [&]<class T>(T) { quantities_.push_back(Maker<T>(comm, queue, pick)(d, ghosts, boundaries)); };
      switch (pick(0, 3)) {
        case 0:
          add(float{});
          break;
        case 1:
          add(double{});
          break;
        case 2:
          add(std::int32_t{});
          break;
        default:
          add(std::int64_t{});
      }
    }
    std::vector<Field<Memory>> fields;
    for (const Quantity& q : quantities_) fields.push_back(q.field);
    exchange_.emplace(comm, queue, fields, method, options_);
  }

  /// Fills, exchanges and compares, with different values for each variant. Compares nothing if the exchange throws.
  /// Collective.
  void run(int variant) {
    for (const Quantity& q : quantities_) q.fill(variant);
    Pending pending = exchange_->start(queue_);
    if (options_.poison) {
      queue_.fence("aloni::test: before reading");
      for (const Quantity& q : quantities_) q.expect_poison();
    }
    pending.finish();
    queue_.fence("aloni::test: before reading");
    for (const Quantity& q : quantities_) q.compare(variant);
  }

  const Exchange<Exec>& exchange() const { return *exchange_; }

 private:
  const Queue<Exec>& queue_;
  TransferOptions options_;
  std::vector<Quantity> quantities_;
  std::optional<Exchange<Exec>> exchange_;
};

}  // namespace aloni::halo::testing_support

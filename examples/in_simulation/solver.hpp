#pragma once
// Smoke in the wind: a cheap step, which smears the smoke, and an accurate one. Each rank has some rows.
#include <aloni/core/comm/communicator.hpp>
#include <aloni/halo/exchange.hpp>
#include <aloni/halo/redistribution.hpp>

#include <cmath>
#include <utility>
#include <vector>

namespace in_simulation {

using namespace aloni;
using views::Dim;
using views::Distribution;
using views::Side;
using Exec = Kokkos::DefaultExecutionSpace;
using Field = views::DistributedView<float, 2>;
using Cells = Field::view_type;  // sample, row, column, channel

enum Channel { smoke, wind_y, wind_x, channels };         // of the fields; wind without its mean
constexpr float mean_wind_y = 0.25F, mean_wind_x = 0.6F;  // cells per unit of time
constexpr int ghost_width = 2;
constexpr float time_step = 0.8F;

/// Three chimneys near the corner from which the wind blows. Each smokes for half of the time.
KOKKOS_INLINE_FUNCTION float smoke_of_chimneys(float time, float size, Index row, Index column) {
  float sum = 0;
  for (int k = 0; k < 3; ++k) {
    const float dy = static_cast<float>(row) - size * (0.1F + 0.2F * static_cast<float>(k));
    const float dx = static_cast<float>(column) - size * (0.1F + 0.05F * static_cast<float>(k));
    const float strength = Kokkos::sin(0.15F * time + 2.0F * static_cast<float>(k));
    if (strength > 0) sum += strength * Kokkos::exp(-(dy * dy + dx * dx) / 8);
  }
  return sum;
}

/// Wind that winds its way to the right, and the first smoke.
struct Start {
  Cells fields;
  views::GlobalIndex<2> global;
  float size;
  KOKKOS_FUNCTION void operator()(Index n, Index i, Index j, Index c) const {
    const auto at = global(n, i, j, c);
    const float y = (static_cast<float>(at[1]) + 0.5F) / size, x = (static_cast<float>(at[2]) + 0.5F) / size;
    if (c == wind_y) fields(n, i, j, c) = 0.25F * Kokkos::sin(7 * x);
    if (c == wind_x) fields(n, i, j, c) = 0.1F * Kokkos::sin(5 * y);
    if (c == smoke) fields(n, i, j, c) = smoke_of_chimneys(0, size, at[1], at[2]);
  }
};

/// next = base + dt times the rate of change of `now`: wind and chimneys. Differences are upwind, of first
/// or third order.
struct Stage {
  Cells now;  ///< with ghosts
  Cells base, next;
  views::GlobalIndex<2> global;
  float size, time, dt;
  bool accurate;
  KOKKOS_FUNCTION float slope(float wind, Index i, Index j, Index di, Index dj) const {
    if (wind < 0) di = -di, dj = -dj;  // against the wind
    const auto at = [&](Index k) { return now(0, i + k * di, j + k * dj, smoke); };
    const float rise = accurate ? (2 * at(1) + 3 * at(0) - 6 * at(-1) + at(-2)) / 6 : at(0) - at(-1);
    return Kokkos::abs(wind) * rise;
  }
  KOKKOS_FUNCTION void operator()(int i, int j) const {
    const Index y = i + ghost_width, x = j + ghost_width;
    const auto at = global(0, i, j, 0);
    float rate = 0.1F * smoke_of_chimneys(time, size, at[1], at[2]);
    rate -=
        slope(mean_wind_y + now(0, y, x, wind_y), y, x, 1, 0) + slope(mean_wind_x + now(0, y, x, wind_x), y, x, 0, 1);
    next(0, i, j, smoke) = base(0, i, j, smoke) + dt * rate;
  }
};

/// The first channel: target = p * a + q * b.
struct Combine {
  Cells target, a, b;
  float p, q;
  KOKKOS_FUNCTION void operator()(int i, int j) const { target(0, i, j, 0) = p * a(0, i, j, 0) + q * b(0, i, j, 0); }
};

/// Sum over cells of (a - b)².
struct Difference {
  Cells a, b;
  KOKKOS_FUNCTION void operator()(int i, int j, double& sum) const {
    const double d = static_cast<double>(a(0, i, j, 0)) - static_cast<double>(b(0, i, j, 0));
    sum += d * d;
  }
};

/// The fields of one simulation, with ghosts.
struct State {
  Field fields;
  halo::Exchange<> exchange;

  State(const comm::Communicator& comm, const Queue<>& queue, const Distribution& rows)
      : fields(queue.space(), "fields", rows, comm.rank(), ghosts()), exchange(comm, queue, {fields}) {
    const auto size = static_cast<float>(rows.extents()[Dim::height]);
    Kokkos::parallel_for("in_simulation: start", fields.owned_policy(queue.space()),
                         Start{fields.owned(), fields.global_index(), size});
  }
  static views::GhostWidths ghosts() {
    views::GhostWidths widths;
    for (const Dim d : {Dim::height, Dim::width}) widths(d, Side::low) = widths(d, Side::high) = ghost_width;
    return widths;
  }
};

/// Steps of the smoke. The communicator and the queue outlive it.
class Solver {
 public:
  Solver(const comm::Communicator& comm, const Queue<>& queue, Index size)
      : comm_(comm), queue_(queue), size_(size), first_(state()), second_(state()) {}

  /// Rows of all columns. A rank has more rows than the ranks before it.
  Distribution rows(Index of_channels) const {
    std::vector<Index> sizes;
    Index first = 0;
    const Index ranks = comm_.size();
    for (Index r = 1; r <= ranks; ++r) {
      const Index end = size_ * r * (r + 1) / (ranks * (ranks + 1));
      sizes.push_back(end - std::exchange(first, end));
    }
    const views::ProcessGrid grid{.blocks = {1, 1, comm_.size(), 1, 1}};
    return Distribution::block(views::make_extents(1, {size_, size_}, of_channels), grid, comm_.size())
        .with_blocks(Dim::height, sizes);
  }
  State state() const { return {comm_, queue_, rows(channels)}; }
  Field cells(const char* label) const { return {queue_.space(), label, rows(1), comm_.rank()}; }

  void cheap_step(Index step, const State& from, const Field& to) const {
    stage(step, from, from, to, time_step, false);
  }
  /// `to` may be the fields of `from`.
  void accurate_step(Index step, const State& from, const Field& to) const {
    stage(step, from, from, first_.fields, time_step / 3, true);
    stage(step, first_, from, second_.fields, time_step / 2, true);
    stage(step, second_, from, to, time_step, true);
  }
  /// The first channel: target = p * a + q * b.
  void combine(const Field& target, float p, const Field& a, float q, const Field& b) const {
    Kokkos::parallel_for("in_simulation: combine", policy(), Combine{target.owned(), a.owned(), b.owned(), p, q});
  }
  /// Root of the mean square. Collective.
  double difference(const Field& a, const Field& b) const {
    double sum = 0;
    Kokkos::parallel_reduce("in_simulation: difference", policy(), Difference{a.owned(), b.owned()}, sum);
    return std::sqrt(comm_.all_reduce(sum, comm::Reduction::sum) / static_cast<double>(size_ * size_));
  }
  /// The first channel on rank 0. Collective.
  auto gather(const Field& field) const {
    const auto on_root = Distribution::on_root(field.distribution().extents(), comm_.size(), 0);
    const Field all(queue_.space(), "all", on_root, comm_.rank());
    halo::Redistribution<>(comm_, queue_, field, all).run(queue_);
    queue_.fence("in_simulation: the host draws the field");
    return Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, all.owned());
  }

 private:
  Kokkos::MDRangePolicy<Exec, Kokkos::Rank<2>> policy() const {
    const auto own = first_.fields.owned();
    return {queue_.space(), {0, 0}, {static_cast<long>(own.extent(1)), static_cast<long>(own.extent(2))}};
  }
  void stage(Index step, const State& now, const State& base, const Field& next, float dt, bool accurate) const {
    now.exchange.run(queue_);
    Kokkos::parallel_for("in_simulation: stage", policy(),
                         Stage{now.fields.with_ghosts(), base.fields.owned(), next.owned(), next.global_index(),
                               static_cast<float>(size_), static_cast<float>(step) * time_step, dt, accurate});
  }

  const comm::Communicator& comm_;
  const Queue<>& queue_;
  Index size_;
  State first_, second_;  ///< of the stages of an accurate step
};

}  // namespace in_simulation

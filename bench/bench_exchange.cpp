// Times halo exchanges and redistributions, and memcpy of the same number of bytes on the same ranks.
//
//   exchange/CASE/forward/GRID      start and finish of one exchange; bytes: sent by all ranks
//   exchange/CASE/adjoint/GRID      the adjoint of this exchange
//   redistribution/CASE/forward/GRID-GRID
//   memcpy/CASE/GRID                every rank copies as many bytes as it sends in the exchange, all ranks at once
//
// Each case runs for every process grid of the ranks over its split dimensions. A split in height has contiguous faces,
// a split in width has strided faces.
#include "support/benchmark.hpp"

#include <aloni/halo/exchange.hpp>
#include <aloni/halo/redistribution.hpp>
#include <aloni/halo/stencil.hpp>

#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

namespace aloni::bench {

namespace {

using halo::Boundary;
using halo::BoundaryConditions;
using views::Box;
using views::Dim;
using views::DistributedView;
using views::Distribution;
using views::Extents;
using views::ProcessGrid;
using Exec = Kokkos::DefaultExecutionSpace;
using Memory = Exec::memory_space;

struct Problem {
  std::string name;
  Extents extents;
  halo::Stencil stencil;
  std::vector<Dim> split;
  Boundary boundary = Boundary::zero;
};

halo::Stencil window(Index kernel, Index padding) {
  halo::Stencil s;
  for (Dim d : {Dim::height, Dim::width}) s[d] = {.kernel = kernel, .pad_low = padding, .pad_high = padding};
  return s;
}

halo::Stencil cube(Index kernel, Index padding) {
  halo::Stencil s = window(kernel, padding);
  s[Dim::depth] = s[Dim::height];
  return s;
}

std::vector<Problem> problems() {
  const std::vector<Dim> plane{Dim::height, Dim::width}, volume{Dim::depth, Dim::height, Dim::width};
  return {
      {"lenet-conv1", views::make_extents(64, {28, 28}, 1), window(5, 2), plane},
      {"lenet-conv2", views::make_extents(64, {14, 14}, 6), window(5, 0), plane},
      {"image512-c64", views::make_extents(1, {512, 512}, 64), window(3, 1), plane, Boundary::periodic},
      {"volume64-c16", views::make_extents(1, {64, 64, 64}, 16), cube(3, 1), volume, Boundary::periodic},
  };
}

// Value of a cell: a small integer, so that sums are exact.
float value(Index n, Index d, Index h, Index w, Index c) {
  return static_cast<float>((7 * n + 5 * d + 3 * h + 11 * w + c) % 64);
}

template <class F>
void for_each_cell(const Box& box, F&& f) {
  for (Index n = box.lo[0]; n < box.hi[0]; ++n)
    for (Index d = box.lo[1]; d < box.hi[1]; ++d)
      for (Index h = box.lo[2]; h < box.hi[2]; ++h)
        for (Index w = box.lo[3]; w < box.hi[3]; ++w)
          for (Index c = box.lo[4]; c < box.hi[4]; ++c) f(n, d, h, w, c);
}

// A tensor with the ghosts that the stencil needs, and its exchange.
struct State {
  using View = DistributedView<float, 3>;

  const comm::Communicator& world;
  Queue<Exec> queue;
  const Problem problem;
  Distribution distribution;
  View view;
  halo::Exchange<> exchange;

  State(const comm::Communicator& w, const Problem& p, const ProcessGrid& grid)
      : world(w), problem(p), distribution(Distribution::block(p.extents, grid, w.size())) {
    const auto outputs = Distribution::block(p.stencil.output_extents(p.extents), grid, w.size());
    const auto needed = [&](int rank) {
      // Padding is stored only for periodic boundaries. Otherwise the needed box ends at the domain.
      const Box box = p.stencil.input_box(outputs.owned(rank));
      return p.boundary == Boundary::periodic ? box : intersect(box, whole(p.extents));
    };
    const auto ghosts = views::widths_to_cover(distribution.owned(w.rank()), needed(w.rank()));
    view = View(w, queue.space(), "aloni::bench: tensor", distribution, ghosts);
    exchange = halo::Exchange<>(w, queue, {{view, BoundaryConditions::all(p.boundary)}});
    check();
  }

  double sent_bytes() const { return 4.0 * static_cast<double>(exchange.counts().sent_elements); }

  void check() {
    const auto host = views::create_mirror_view(view);
    const auto cells = host.local_unchecked();
    const Box box = view.box_with_ghosts(), own = view.owned_box();
    const auto at = [&](Index n, Index d, Index h, Index w, Index c) -> float& {
      return cells(n - box.lo[0], d - box.lo[1], h - box.lo[2], w - box.lo[3], c - box.lo[4]);
    };
    const auto send_up = [&] {
      if constexpr (!std::is_same_v<Memory, Kokkos::HostSpace>) deep_copy(queue.space(), view, host);
    };
    const auto bring_down = [&] {
      if constexpr (!std::is_same_v<Memory, Kokkos::HostSpace>) deep_copy(queue.space(), host, view);
      queue.fence("aloni::bench: before checking");
    };
    for_each_cell(own, [&](auto... i) { at(i...) = value(i...); });
    send_up();
    exchange.run(queue);
    bring_down();
    const auto& e = problem.extents.values;
    for_each_cell(box, [&](Index n, Index d, Index h, Index w, Index c) {
      if (at(n, d, h, w, c) != value(n, (d + e[1]) % e[1], (h + e[2]) % e[2], (w + e[3]) % e[3], c))
        throw std::runtime_error("bench_exchange: wrong value after the halo exchange of " + problem.name);
    });
    // All cells and ghosts are 1 before the adjoint. Afterwards the sum over owned cells is their total number.
    for_each_cell(box, [&](auto... i) { at(i...) = 1; });
    send_up();
    exchange.run_adjoint(queue);
    bring_down();
    Index sum = 0;
    for_each_cell(own, [&](auto... i) { sum += static_cast<Index>(at(i...)); });
    if (world.all_reduce(sum, comm::Reduction::sum) != world.all_reduce(box.size(), comm::Reduction::sum))
      throw std::runtime_error("bench_exchange: wrong sum after the adjoint of " + problem.name);
  }
};

// Sum over all ranks. Collective.
double over_ranks(const comm::Communicator& world, double bytes) {
  return world.all_reduce(bytes, comm::Reduction::sum);
}

void add_exchange(const comm::Communicator& world, const Problem& problem, const ProcessGrid& grid) {
  const std::string variant = to_string(grid);
  const auto make = [&world, problem, grid](bool adjoint) {
    const auto state = std::make_shared<State>(world, problem, grid);
    return Case{
        .run =
            [state, adjoint] {
              if (adjoint)
                state->exchange.run_adjoint(state->queue);
              else
                state->exchange.run(state->queue);
              state->queue.fence("aloni::bench: end of repetition");
            },
        .bytes = over_ranks(world, state->sent_bytes()),
        .counters = {{"messages", over_ranks(world, static_cast<double>(state->exchange.counts().sent_messages))}}};
  };
  add_timed(world, "exchange/" + problem.name + "/forward/" + variant, [make] { return make(false); });
  add_timed(world, "exchange/" + problem.name + "/adjoint/" + variant, [make] { return make(true); });
  add_timed(world, "memcpy/" + problem.name + "/" + variant,
            [&world, problem, grid] { return memcpy_case(world, State(world, problem, grid).sent_bytes()); });
}

void add_redistribution(const comm::Communicator& world, const Problem& problem, const ProcessGrid& from,
                        const ProcessGrid& to) {
  add_timed(world, "redistribution/" + problem.name + "/forward/" + to_string(from) + "-" + to_string(to),
            [&world, problem, from, to] {
              using View = State::View;
              const Queue<Exec> queue;
              const View x(world, queue.space(), "aloni::bench: source",
                           Distribution::block(problem.extents, from, world.size()));
              const View y(world, queue.space(), "aloni::bench: destination",
                           Distribution::block(problem.extents, to, world.size()));
              const auto move = std::make_shared<halo::Redistribution<>>(world, queue, x, y);
              const auto source = views::create_mirror_view(x), destination = views::create_mirror_view(y);
              const auto cells = source.local_unchecked(), arrived = destination.local_unchecked();
              const Box a = x.owned_box(), b = y.owned_box();
              for_each_cell(a, [&](Index n, Index d, Index h, Index w, Index c) {
                cells(n - a.lo[0], d - a.lo[1], h - a.lo[2], w - a.lo[3], c - a.lo[4]) = value(n, d, h, w, c);
              });
              if constexpr (!std::is_same_v<Memory, Kokkos::HostSpace>) deep_copy(queue.space(), x, source);
              move->run(queue);
              if constexpr (!std::is_same_v<Memory, Kokkos::HostSpace>) deep_copy(queue.space(), destination, y);
              queue.fence("aloni::bench: before checking");
              for_each_cell(b, [&](Index n, Index d, Index h, Index w, Index c) {
                if (arrived(n - b.lo[0], d - b.lo[1], h - b.lo[2], w - b.lo[3], c - b.lo[4]) != value(n, d, h, w, c))
                  throw std::runtime_error("bench_exchange: wrong value after the redistribution of " + problem.name);
              });
              return Case{.run =
                              [move, queue] {
                                move->run(queue);
                                queue.fence("aloni::bench: end of repetition");
                              },
                          .bytes = over_ranks(world, 4.0 * static_cast<double>(move->counts().sent_elements))};
            });
}

}  // namespace

void register_benchmarks(const comm::Communicator& world) {
  for (const Problem& problem : problems())
    for (const ProcessGrid& grid : views::all_grids(world.size(), problem.split)) add_exchange(world, problem, grid);
  for (const Problem& problem : problems()) {
    if (problem.extents[Dim::sample] < world.size()) continue;
    ProcessGrid samples, rows;
    samples[Dim::sample] = rows[Dim::height] = world.size();
    add_redistribution(world, problem, rows, samples);
    add_redistribution(world, problem, samples, rows);
  }
}

}  // namespace aloni::bench

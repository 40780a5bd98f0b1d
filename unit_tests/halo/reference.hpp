#pragma once
// The right value of each needed cell, index by index, without arithmetic on ranges; and random cases from a seed.
#include <aloni/halo/transfer_plan.hpp>

#include <array>
#include <random>
#include <string>
#include <vector>

namespace aloni::halo::testing_support {

using views::all_dims;
using views::Box;
using views::Dim;
using views::Distribution;
using views::Extents;
using views::position;
using views::ProcessGrid;
using views::Side;
using Cell = std::array<Index, views::num_dims>;

enum class Origin { value, zero, untouched };

/// The index inside [0, n) from which index i takes its value, found step by step.
inline Origin trace_index(Index i, Index n, Boundary low, Boundary high, Index& source) {
  source = i;
  const Boundary kind = i < 0 ? low : high;
  if (i >= 0 && i < n) return Origin::value;
  switch (kind) {
    case Boundary::none:
      return Origin::untouched;
    case Boundary::zero:
      return Origin::zero;
    case Boundary::replicate:
      source = i < 0 ? 0 : n - 1;
      return Origin::value;
    case Boundary::periodic:
      while (source < 0) source += n;
      while (source >= n) source -= n;
      return Origin::value;
    case Boundary::reflect:
      if (n == 1) {
        source = 0;
        return Origin::value;
      }
      while (source < 0 || source >= n) source = source < 0 ? -source : 2 * (n - 1) - source;
      return Origin::value;
  }
  return Origin::untouched;
}

inline Origin trace_cell(const Cell& cell, const Extents& extents, const BoundaryConditions& boundaries, Cell& source) {
  Origin result = Origin::value;
  for (Dim d : all_dims) {
    const auto i = static_cast<std::size_t>(position(d));
    const Origin o = trace_index(cell[i], extents[d], boundaries(d, Side::low), boundaries(d, Side::high), source[i]);
    if (o == Origin::untouched || (o == Origin::zero && result != Origin::untouched)) result = o;
  }
  return result;
}

template <class F>
void for_each_cell(const Box& box, F&& f) {
  Cell c;
  for (c[0] = box.lo[0]; c[0] < box.hi[0]; ++c[0])
    for (c[1] = box.lo[1]; c[1] < box.hi[1]; ++c[1])
      for (c[2] = box.lo[2]; c[2] < box.hi[2]; ++c[2])
        for (c[3] = box.lo[3]; c[3] < box.hi[3]; ++c[3])
          for (c[4] = box.lo[4]; c[4] < box.hi[4]; ++c[4]) f(c);
}

/// Row-major number of a cell of a box.
inline std::size_t number(const Cell& cell, const Box& box) {
  Index n = 0;
  for (std::size_t i = 0; i < views::num_dims; ++i) n = n * (box.hi[i] - box.lo[i]) + cell[i] - box.lo[i];
  return static_cast<std::size_t>(n);
}

inline bool holds(const Box& box, const Cell& cell) {
  for (std::size_t i = 0; i < views::num_dims; ++i)
    if (cell[i] < box.lo[i] || cell[i] >= box.hi[i]) return false;
  return true;
}

/// Two distributions of one tensor, and a needed box for every rank: around the box that the rank owns, or anywhere.
struct RandomCase {
  Distribution source, destination;
  std::vector<Box> needed;
  BoundaryConditions boundaries;

  NeededBox needed_box() const {
    return [this](int rank) { return needed[static_cast<std::size_t>(rank)]; };
  }
};

class Random {
 public:
  explicit Random(unsigned seed) : engine_(seed) {}
  int operator()(int lo, int hi) { return std::uniform_int_distribution<int>(lo, hi)(engine_); }
  bool one_in(int n) { return (*this)(1, n) == 1; }

 private:
  std::mt19937 engine_;
};

inline std::vector<Index> random_sizes(Random& pick, Index extent, int blocks) {
  std::vector<Index> sizes(static_cast<std::size_t>(blocks), 0);
  for (Index i = 0; i < extent; ++i) ++sizes[static_cast<std::size_t>(pick(0, blocks - 1))];
  return sizes;
}

/// A random distribution over exactly `ranks` ranks: any grid whose size divides `ranks`, uneven and empty blocks,
/// replication.
inline Distribution random_distribution(Random& pick, const Extents& extents, int ranks) {
  std::vector<int> divisors;
  for (int d = 1; d <= ranks; ++d)
    if (ranks % d == 0) divisors.push_back(d);
  const int size =
      pick.one_in(3) ? divisors[static_cast<std::size_t>(pick(0, static_cast<int>(divisors.size()) - 1))] : ranks;
  const auto grids = views::all_grids(size, {all_dims.begin(), all_dims.end()});
  const ProcessGrid grid = grids[static_cast<std::size_t>(pick(0, static_cast<int>(grids.size()) - 1))];
  Distribution dist = Distribution::block(extents, grid, ranks);
  for (Dim d : all_dims) {
    if (pick.one_in(3)) dist = dist.with_blocks(d, random_sizes(pick, extents[d], grid[d]));
    if (pick.one_in(8)) dist = dist.with_replicated(d);
  }
  if (pick.one_in(10)) dist = Distribution::on_root(extents, ranks, pick(0, ranks - 1));
  return dist;
}

inline RandomCase random_case(Random& pick, int ranks, int max_extent = 6) {
  RandomCase c;
  Extents extents;
  for (Dim d : all_dims) extents[d] = pick.one_in(40) ? 0 : pick(1, pick.one_in(3) ? max_extent : (max_extent + 1) / 2);
  c.source = random_distribution(pick, extents, ranks);
  c.destination = random_distribution(pick, extents, ranks);
  for (Dim d : all_dims)
    for (Side s : {Side::low, Side::high})
      c.boundaries(d, s) =
          extents[d] == 0 ? (pick.one_in(2) ? Boundary::zero : Boundary::none) : static_cast<Boundary>(pick(0, 4));
  const int reach = pick.one_in(4) ? 2 * max_extent : 2;
  for (int r = 0; r < ranks; ++r) {
    Box box = c.destination.owned(r);
    if (pick.one_in(10)) box = Box{};
    for (Dim d : all_dims) {
      if (pick.one_in(8)) {
        const Index lo = pick(-3, 3);
        box.set(d, lo, lo + pick(1, 4));
      } else if (pick.one_in(3)) {
        box.set(d, box.lower(d) - pick(0, reach), box.upper(d) + pick(0, reach));
      }
    }
    if (box.size() > 20000) box = c.destination.owned(r);
    c.needed.push_back(box);
  }
  return c;
}

inline std::string describe(const RandomCase& c) {
  std::string text = to_string(c.source) + " -> " + to_string(c.destination) + ", boundaries";
  for (Dim d : all_dims)
    text += std::string(" ") + name(c.boundaries(d, Side::low)) + "/" + name(c.boundaries(d, Side::high));
  for (std::size_t r = 0; r < c.needed.size(); ++r)
    text += "\n  rank " + std::to_string(r) + " needs " + to_string(c.needed[r]);
  return text;
}

}  // namespace aloni::halo::testing_support

#include <aloni/halo/deep_halo.hpp>

#include <aloni/core/error.hpp>

#include <algorithm>
#include <string>
#include <utility>

namespace aloni::halo {

namespace {

using views::all_dims;
using views::Box;
using views::Dim;
using views::Distribution;
using views::GhostWidths;
using views::num_dims;
using views::Side;

constexpr const char* deep_halo_operation = "aloni::halo::DeepHalo";

bool is_split(const Distribution& distribution, Dim d) {
  return distribution.grid()[d] > 1 && !distribution.replicated(d);
}

/// Whether ghosts beyond this end are periodic images of cells, which evolve as these cells do. Beyond all other ends,
/// ghosts are refilled.
bool is_image(const Distribution& distribution, const BoundaryConditions& boundaries, Dim d, Side side) {
  return is_split(distribution, d) && boundaries(d, side) == Boundary::periodic;
}

Box read_by(const Box& computed, const GhostWidths& radius) {
  return computed.empty() ? computed : grow(computed, radius);
}

/// The box that must be computed before a step can read all of `read`: `read` without its refilled ghosts, and the
/// cells that these ghosts are copied from. At a reflecting end these cells may lie outside `read`: with the radii 3
/// and 0, cell 0 reads −3, the mirror image of 3.
Box computed_for(const Box& read, const Distribution& distribution, const BoundaryConditions& boundaries) {
  Box box = read;
  for (const Dim d : all_dims) {
    const Index n = distribution.extents()[d], below = -read.lower(d), above = read.upper(d) - n;
    Index lo = read.lower(d), hi = read.upper(d);
    if (below > 0 && !is_image(distribution, boundaries, d, Side::low)) {
      lo = 0;
      if (boundaries(d, Side::low) == Boundary::reflect) hi = std::max(hi, std::min(n, below + 1));
    }
    if (above > 0 && !is_image(distribution, boundaries, d, Side::high)) {
      hi = n;
      if (boundaries(d, Side::high) == Boundary::reflect) lo = std::min(lo, std::max<Index>(0, n - 1 - above));
    }
    box.set(d, lo, hi);
  }
  return box;
}

std::vector<Box> computed_boxes(const Distribution& distribution, int rank, const GhostWidths& radius, int steps,
                                const BoundaryConditions& boundaries) {
  std::vector<Box> boxes(static_cast<std::size_t>(steps), distribution.owned(rank));
  for (std::size_t i = boxes.size(); --i > 0;)
    if (!boxes[i].empty()) boxes[i - 1] = computed_for(read_by(boxes[i], radius), distribution, boundaries);
  return boxes;
}

void check(const Distribution& distribution, int rank, const GhostWidths& radius, int steps,
           const BoundaryConditions& boundaries) {
  if (rank < 0 || rank >= distribution.ranks())
    throw InvalidArgument(deep_halo_operation, "rank", std::to_string(rank),
                          "a rank of the distribution, from 0 to " + std::to_string(distribution.ranks() - 1));
  for (const Dim d : all_dims)
    for (const Side side : {Side::low, Side::high})
      if (radius(d, side) < 0)
        throw InvalidArgument(deep_halo_operation, std::string("radius, ") + views::name(d),
                              std::to_string(radius(d, side)), "at least 0");
  if (steps < 1) throw InvalidArgument(deep_halo_operation, "steps", std::to_string(steps), "at least 1");
  if (steps == 1) return;
  for (const Dim d : all_dims) {
    const Boundary low = boundaries(d, Side::low), high = boundaries(d, Side::high);
    if (is_split(distribution, d) && radius(d, Side::low) > 0 && radius(d, Side::high) > 0 &&
        (low == Boundary::periodic) != (high == Boundary::periodic))
      throw Unsupported(deep_halo_operation, std::string("boundaries of ") + views::name(d),
                        std::string(name(low)) + " and " + name(high),
                        "periodic on both sides or on neither, a dimension that is not split, or an exchange in every "
                        "step (steps = 1)");
  }
}

}  // namespace

DeepHalo::DeepHalo(const Distribution& distribution, int rank, const GhostWidths& radius, int steps,
                   const BoundaryConditions& boundaries)
    : distribution_(distribution), radius_(radius), boundaries_(boundaries) {
  check(distribution, rank, radius, steps, boundaries);
  computed_ = computed_boxes(distribution, rank, radius, steps, boundaries);
}

GhostWidths DeepHalo::ghosts() const { return widths_to_cover(computed_.back(), read_by(computed_.front(), radius_)); }

NeededBox DeepHalo::needed() const {
  return [d = distribution_, r = radius_, k = steps(), b = boundaries_](int rank) {
    return read_by(computed_boxes(d, rank, r, k, b).front(), r);
  };
}

TransferPlan DeepHalo::refill() const {
  if (steps() == 1 || computed_.front().empty()) return {};
  // The first step after an exchange computes the largest box. The second step reads the largest box that is not
  // exchanged. Cells that the second reads, but the first has not computed, lie beyond an end of the domain, and the
  // first step computed up to that end. So for the arithmetic of boundaries the computed box is a domain of one rank.
  const Box& from = computed_[0];
  const auto shift = [&](Box box, int sign) {
    for (std::size_t i = 0; i < num_dims; ++i) {
      box.lo[i] += sign * from.lo[i];
      box.hi[i] += sign * from.lo[i];
    }
    return box;
  };
  const Box to = shift(read_by(computed_[1], radius_), -1);
  const auto alone = Distribution::block(extents_of(from), {}, 1);
  TransferPlan plan = plan_halo_receives(
      alone, [&](int) { return to; }, boundaries_, 0);
  for (Move& move : plan.local) {
    move.destination = shift(move.destination, 1);
    move.source = shift(move.source, 1);
  }
  for (Box& box : plan.fills) box = shift(box, 1);
  return plan;
}

Index DeepHalo::computed_cells() const {
  Index cells = 0;
  for (const Box& box : computed_) cells += box.size();
  return cells;
}

Index DeepHalo::redundant_cells() const { return computed_cells() - steps() * computed_.back().size(); }

}  // namespace aloni::halo

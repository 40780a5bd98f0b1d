#pragma once
// Deep halos: one exchange for k time steps of a stencil. The ghosts are k times as wide as the stencil reaches, and
// what the neighbours would send after a step is computed here once more, from what they sent before: in the first
// step around the owned box, in each further step one radius less far, in the last one nothing but the owned box.
//
//   GhostWidths radius;                                                // how far one step reads
//   for (Dim d : {Dim::height, Dim::width}) radius(d, Side::low) = radius(d, Side::high) = 1;
//   const DeepHalo deep(domain, comm.rank(), radius, 4, boundaries);
//   const View u[2] = {{exec, "u", domain, comm.rank(), deep.ghosts()}, {exec, "v", domain, comm.rank(), deep.ghosts()}};
//   ...                                                                // for each: an Exchange, and make_refill()
//   for (Index n = 0; n < steps; ++n) {
//     const auto now = n % 2;
//     if (deep.exchange_due(n)) exchange[now].run(queue);
//     else refill[now].run(queue);                                     // halo/refill.hpp: no messages
//     advance(u[now], u[1 - now], deep.computed(n));                   // reads the radius around that box
//     u[1 - now].mark_stale();
//   }
//
// Messages are a k-th as many; their bytes together are as many or, with the edges of a block, more. That pays where
// latency is what messages cost: little work per cell, small blocks, slow links. Where the interior of a block hides
// the exchange, exchange in every step.
// The bits are those of an exchange in every step if a cell's new value is the same function of what it reads on
// whichever rank it is computed. In a periodic dimension that is split, cells are computed beyond the ends of the
// domain: a coefficient that depends on the place must be that of the place inside.
//
// What isn't computed twice. Ghosts beyond an end of the domain that isn't periodic follow from the cells inside, and
// those of a dimension that isn't split, periodic or not, from the rank's own: both are as wide as one step reads, and
// are filled again before each step, which is a copy within the rank (refill()). Beyond an end of the kind `none` they
// are the caller's as ever.
//
// C. Ding, Y. He, "A Ghost Cell Expansion Method for Reducing Communications in Solving PDE Problems", SC 2001;
// J. Demmel, M. Hoemmen, M. Mohiyuddin, K. Yelick, "Avoiding Communication in Sparse Matrix Computations", IPDPS 2008
// (algorithm PA1).
#include <aloni/halo/transfer_plan.hpp>
#include <aloni/views/ghost_widths.hpp>

#include <vector>

namespace aloni::halo {

/// Pure arithmetic, of one rank. Steps are counted from 0; boxes are in global indices.
class DeepHalo {
 public:
  /// radius: how many cells beyond the one that it computes a step reads, in each dimension and on each side. `steps`
  /// of them follow each exchange; 1 is a halo as usual.
  /// @pre 0 ≤ rank < distribution.ranks(), radius ≥ 0, steps ≥ 1. Throws InvalidArgument.
  /// Throws Unsupported (equal on all ranks) for more than one step when a dimension that is split and read on both
  /// sides is periodic on one only: its image on the other side doesn't evolve as the cells that it is an image of.
  DeepHalo(const views::Distribution& distribution, int rank, const views::GhostWidths& radius, int steps,
           const BoundaryConditions& boundaries = {});

  const views::Distribution& distribution() const { return distribution_; }
  const views::GhostWidths& radius() const { return radius_; }
  int steps() const { return static_cast<int>(computed_.size()); }

  /// What a View must have room for: where the domain is split steps × radius, elsewhere and beyond an end that isn't
  /// periodic the radius. More where a reflecting end needs its mirror image: behind a block that is thinner than the
  /// radius. None around an empty block. Ranks differ.
  views::GhostWidths ghosts() const;
  /// The owned box with these ghosts, of any rank: what an exchange must fill.
  NeededBox needed() const;

  /// @pre step ≥ 0, here and below
  bool exchange_due(Index step) const { return step % steps() == 0; }
  /// What a step must compute: the owned box and around it what the steps up to the next exchange will read.
  const views::Box& computed(Index step) const { return computed_[static_cast<std::size_t>(step % steps())]; }
  /// Before each step that has no exchange: the ghosts that the step reads and that the one before could not compute,
  /// copied from cells of this rank's box with ghosts, or zero. Has no messages.
  TransferPlan refill() const;

  /// Cells that this rank computes from one exchange to the next, and those of them that it doesn't own.
  Index computed_cells() const;
  Index redundant_cells() const;

 private:
  views::Distribution distribution_;
  views::GhostWidths radius_;
  BoundaryConditions boundaries_;
  std::vector<views::Box> computed_;  ///< by steps since the exchange
};

}  // namespace aloni::halo

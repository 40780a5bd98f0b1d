#pragma once
// Deep halos: one halo exchange for k time steps of a stencil. The ghosts are k times as wide as the stencil's radius.
// Instead of receiving ghosts after each step, the rank computes them itself. The first step computes the widest region
// around the owned box, each further step one radius less, the last step the owned box alone.
//
//   GhostWidths radius;                                                // cells that one step reads on each side
//   for (Dim d : {Dim::height, Dim::width}) radius(d, Side::low) = radius(d, Side::high) = 1;
//   const DeepHalo deep(domain, comm.rank(), radius, 4, boundaries);
//   const View u[2] = {{exec, "u", domain, comm.rank(), deep.ghosts()},
//                      {exec, "v", domain, comm.rank(), deep.ghosts()}};
//   ...                                                                // for each: an Exchange, and make_refill()
//   for (Index n = 0; n < steps; ++n) {
//     const auto now = n % 2;
//     if (deep.exchange_due(n)) exchange[now].run(queue);
//     else refill[now].run(queue);                                     // halo/refill.hpp: no messages
//     advance(u[now], u[1 - now], deep.computed(n));                   // reads that box and one radius around it
//     u[1 - now].mark_stale();
//   }
//
// Cost. There are k times fewer messages. Their total bytes are equal, or larger because of the edges of a block. Deep
// halos pay off if latency dominates: little work per cell, small blocks, slow links. If the interior of a block hides
// the exchange, exchange in every step.
//
// Bits. The result has the bits of an exchange in every step. The condition is that a cell's new value is the same
// function of its inputs on every rank. In a periodic dimension that is split, cells beyond the ends of the domain are
// computed too. For these cells, take a coefficient that depends on the position from the position inside the domain.
//
// Refill. Some ghosts are copied within the rank before each step instead of computed (refill()); they are one radius
// wide. Ghosts beyond an end of the domain that is not periodic follow from cells inside. Ghosts of a dimension that is
// not split, periodic or not, follow from the rank's own cells. Beyond an end of kind `none`, the caller fills the
// ghosts as usual.
//
// C. Ding, Y. He, "A Ghost Cell Expansion Method for Reducing Communications in Solving PDE Problems", SC 2001;
// J. Demmel, M. Hoemmen, M. Mohiyuddin, K. Yelick, "Avoiding Communication in Sparse Matrix Computations", IPDPS 2008
// (algorithm PA1).
#include <aloni/halo/transfer_plan.hpp>
#include <aloni/views/ghost_widths.hpp>

#include <vector>

namespace aloni::halo {

/// The deep halo of one rank, by pure arithmetic. Steps are counted from 0; boxes are in global indices.
class DeepHalo {
 public:
  /// radius: number of cells that a step reads beyond the cell it computes, in each dimension and on each side.
  /// steps: number of steps after each exchange; 1 is an ordinary halo.
  /// @pre 0 ≤ rank < distribution.ranks(), radius ≥ 0, steps ≥ 1. Throws InvalidArgument.
  /// Throws Unsupported (equal on all ranks) if steps > 1 and a dimension is periodic on one side only. This concerns
  /// dimensions that are split and read on both sides. The cells beyond that side would not evolve as the cells inside
  /// that they copy.
  DeepHalo(const views::Distribution& distribution, int rank, const views::GhostWidths& radius, int steps,
           const BoundaryConditions& boundaries = {});

  const views::Distribution& distribution() const { return distribution_; }
  const views::GhostWidths& radius() const { return radius_; }
  int steps() const { return static_cast<int>(computed_.size()); }

  /// Ghost widths that a View needs: steps × radius where the domain is split; the radius elsewhere and beyond an end
  /// that is not periodic. They are larger where a block thinner than the radius lies at a reflecting end and needs the
  /// mirror image. 0 around an empty block. Ranks differ.
  views::GhostWidths ghosts() const;
  /// For any rank the box that an exchange must fill: the owned box and its ghosts().
  NeededBox needed() const;

  /// Whether an exchange must precede this step. @pre step ≥ 0, here and below
  bool exchange_due(Index step) const { return step % steps() == 0; }
  /// The box that a step must compute: the owned box and the cells around it that later steps read before the next
  /// exchange.
  const views::Box& computed(Index step) const { return computed_[static_cast<std::size_t>(step % steps())]; }
  /// The transfer before each step without an exchange: fills the ghosts that the step reads and that the previous step
  /// did not compute. Copies cells of this rank or sets zero; has no messages.
  TransferPlan refill() const;

  /// Number of cells that this rank computes from one exchange to the next.
  Index computed_cells() const;
  /// Number of computed cells that this rank does not own.
  Index redundant_cells() const;

 private:
  views::Distribution distribution_;
  views::GhostWidths radius_;
  BoundaryConditions boundaries_;
  std::vector<views::Box> computed_;  ///< indexed by the number of steps since the exchange
};

}  // namespace aloni::halo

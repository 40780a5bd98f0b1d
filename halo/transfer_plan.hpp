#pragma once
// Which box goes from which rank to which rank. Halo exchange, redistribution, gather and scatter are one computation:
// the box that a rank needs, intersected with the boxes that other ranks own.
//
//   const auto x = Distribution::block(make_extents(8, {28, 28}, 6), ProcessGrid::parse("h2"), 2);
//   const auto needed = [&](int rank) { return conv.input_box(y.owned(rank)); };
//   const TransferPlan plan = plan_halo(x, needed, BoundaryConditions{}, my_rank);
//   count(plan).sent_elements;
//
// Plans are plain data made by pure arithmetic. Every rank makes its own plan without communication, in O(ranks) time.
// The messages that one rank plans to send have the content and order that the other rank plans to receive. There are
// no special cases for these:
// - uneven or empty blocks;
// - blocks thinner than the halo, where several ranks send to one ghost region;
// - corners, and ghosts wider than the domain;
// - replicated tensors;
// - one or two ranks on a periodic axis.
// halo/transfer.hpp runs a plan.
#include <aloni/halo/boundary.hpp>
#include <aloni/halo/stencil.hpp>
#include <aloni/views/distribution.hpp>

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

namespace aloni::halo {

/// The cells of a destination box take their values from a source box. In each dimension:
///   step +1: cell destination.lo + i takes source.lo + i;
///   step −1: cell destination.lo + i takes source.hi − 1 − i (mirrored);
///   step  0: every cell takes the one source index (source extent 1).
struct Move {
  views::Box destination;
  views::Box source;
  std::array<std::int8_t, views::num_dims> step{1, 1, 1, 1, 1};

  friend bool operator==(const Move&, const Move&) = default;
};

/// All moves from one rank to another, in the same order on both ranks. A message contains the *source* box of each
/// move, dense, channels last; a replicated value travels once.
struct Message {
  int peer = 0;
  std::vector<Move> moves;
  Index elements = 0;  ///< sum of the source boxes' sizes

  friend bool operator==(const Message&, const Message&) = default;
};

/// The messages, copies and fills of one rank in a transfer.
struct TransferPlan {
  std::vector<Message> sends, receives;  ///< ascending by peer; no empty messages, no messages to itself
  std::vector<Move> local;               ///< copies within this rank
  std::vector<views::Box> fills;         ///< destination cells that become zero

  friend bool operator==(const TransferPlan&, const TransferPlan&) = default;
};

/// The box of global indices that a rank needs; it may reach outside the domain and may be empty. Planners call it for
/// every rank; it must return equal boxes on all ranks.
using NeededBox = std::function<views::Box(int rank)>;

/// The plan of a halo exchange: source and destination are one tensor. It fills the cells of needed(rank) that the rank
/// does not own. In a replicated distribution each replica exchanges within itself. The adjoint runs this plan
/// backwards.
/// @pre 0 ≤ rank < distribution.ranks()
/// @pre a domain without elements has only boundaries zero or none
/// Throws InvalidArgument (equal on all ranks).
TransferPlan plan_halo(const views::Distribution& distribution, const NeededBox& needed,
                       const BoundaryConditions& boundaries, int rank);
/// The same plan in less time, for a caller that knows who reads cells of the rank.
/// @pre `readers` is ascending, and contains every rank that needs a cell of `rank`; others do no harm
TransferPlan plan_halo(const views::Distribution& distribution, const NeededBox& needed,
                       const BoundaryConditions& boundaries, int rank, const std::vector<int>& readers);
/// plan_halo without the sends. It is faster when a caller plans for many ranks, because it calls needed(rank) only.
TransferPlan plan_halo_receives(const views::Distribution& distribution, const NeededBox& needed,
                                const BoundaryConditions& boundaries, int rank);

/// A halo exchange in one step per dimension, in the order of Dim; each step starts after the previous one is complete.
/// Edges and corners travel with the faces of a later step, so that only neighbours along the axes exchange messages.
/// Steps of dimensions without ghosts are empty. The adjoint runs the steps in reverse order.
/// @pre as plan_halo
/// Throws Unsupported (equal on all ranks) if blocks are empty, or if neighbours along an axis have different ghost
/// widths in the other dimensions. Use plan_halo for these.
std::array<TransferPlan, views::num_dims> plan_halo_by_dimension(const views::Distribution& distribution,
                                                                 const NeededBox& needed,
                                                                 const BoundaryConditions& boundaries, int rank);

/// The plan of a redistribution: fills needed(rank) from the source distribution. Without `needed`, it fills the box
/// that the rank owns in the destination distribution. A rank takes values that it owns from itself. If several ranks
/// own a value, it comes from the rank whose coordinates in the source's replicated dimensions equal the receiver's;
/// this spreads the load. Gather and scatter are redistributions to and from Distribution::on_root.
/// @pre source.extents() == destination.extents(), source.ranks() == destination.ranks()
/// Throws InvalidArgument (equal on all ranks).
TransferPlan plan_redistribution(const views::Distribution& source, const views::Distribution& destination,
                                 const NeededBox& needed, const BoundaryConditions& boundaries, int rank);
/// `readers`: as for plan_halo.
TransferPlan plan_redistribution(const views::Distribution& source, const views::Distribution& destination,
                                 const NeededBox& needed, const BoundaryConditions& boundaries, int rank,
                                 const std::vector<int>& readers);
TransferPlan plan_redistribution(const views::Distribution& source, const views::Distribution& destination, int rank);

/// The numbers of messages and elements in a rank's plan.
struct TransferCount {
  Index sent_messages = 0, sent_elements = 0;
  Index received_messages = 0, received_elements = 0;
  Index local_elements = 0;   ///< destination cells written by local copies
  Index filled_elements = 0;  ///< destination cells set to zero

  friend bool operator==(const TransferCount&, const TransferCount&) = default;
};
TransferCount count(const TransferPlan& plan);

/// 64-bit digest of these arguments, which must be equal on all ranks for their plans to match.
std::uint64_t agreement_digest(const views::Distribution& source, const views::Distribution& destination,
                               const NeededBox& needed, const BoundaryConditions& boundaries);

}  // namespace aloni::halo

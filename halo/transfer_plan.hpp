#pragma once
// Which box goes from which rank to which rank. Halo exchange, redistribution between two distributions, gather and
// scatter are one computation: what a rank needs, intersected with what the others own.
//
//   const auto x = Distribution::block(make_extents(8, {28, 28}, 6), ProcessGrid::parse("h2"), 2);
//   const auto needed = [&](int rank) { return conv.input_box(y.owned(rank)); };
//   const TransferPlan plan = plan_halo(x, needed, BoundaryConditions{}, my_rank);
//   count(plan).sent_elements;
//
// Plans are plain data made by pure arithmetic: every rank makes its own without asking anybody (O(ranks) time), and
// what one rank plans to send is, in content and order, what the other plans to receive. Uneven blocks, empty blocks,
// blocks thinner than the halo (values then come from several ranks), corners, ghosts outside the domain on any side
// and wider than it, replicated tensors, one or two ranks on a periodic axis: all take the same path.
// halo/transfer.hpp executes a plan.
#include <aloni/halo/boundary.hpp>
#include <aloni/halo/stencil.hpp>
#include <aloni/views/distribution.hpp>

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

namespace aloni::halo {

/// Cells of a destination box that take their values from a source box. In each dimension:
///   step +1: cell destination.lo + i takes source.lo + i;
///   step −1: cell destination.lo + i takes source.hi − 1 − i (mirrored);
///   step  0: every cell takes the one source index (source extent 1).
struct Move {
  views::Box destination;
  views::Box source;
  std::array<std::int8_t, views::num_dims> step{1, 1, 1, 1, 1};

  friend bool operator==(const Move&, const Move&) = default;
};

/// All moves from one rank to another, in an order on which both agree. On the wire each move is its *source* box,
/// dense, channels last; a replicated value travels once.
struct Message {
  int peer = 0;
  std::vector<Move> moves;
  Index elements = 0;  ///< sum of the source boxes' sizes

  friend bool operator==(const Message&, const Message&) = default;
};

/// What one rank does in a transfer.
struct TransferPlan {
  std::vector<Message> sends, receives;  ///< ascending by peer, none empty, none to itself
  std::vector<Move> local;               ///< copies within this rank
  std::vector<views::Box> fills;         ///< destination cells that become zero

  friend bool operator==(const TransferPlan&, const TransferPlan&) = default;
};

/// The box of global indices that a rank needs; may reach outside the domain and may be empty. Called for every rank,
/// and must give the same answer on every rank.
using NeededBox = std::function<views::Box(int rank)>;

/// Source and destination are the same tensor: fills needed(rank) outside of what the rank owns itself. With a
/// replicated distribution each replica exchanges within itself. The same plan serves the adjoint, read backwards.
/// @pre 0 ≤ rank < distribution.ranks()
/// @pre a domain without elements has only boundaries zero or none
/// Throws InvalidArgument (equal on all ranks).
TransferPlan plan_halo(const views::Distribution& distribution, const NeededBox& needed,
                       const BoundaryConditions& boundaries, int rank);
/// The same without the sends: for those who ask for many ranks, because it asks for no other rank's box.
TransferPlan plan_halo_receives(const views::Distribution& distribution, const NeededBox& needed,
                                const BoundaryConditions& boundaries, int rank);

/// The same in one step per dimension, in their order, each after the one before is complete: edges and corners come along with the faces of
/// a later step, so that there are messages to neighbours along the axes only. The steps of dimensions without ghosts are empty. The
/// adjoint takes them in reverse order.
/// @pre as of plan_halo
/// Throws Unsupported, equal on all ranks, where neighbours along an axis don't have ghosts of the same width in the other dimensions, or
/// blocks are empty: plan_halo serves those.
std::array<TransferPlan, views::num_dims> plan_halo_by_dimension(const views::Distribution& distribution,
                                                                 const NeededBox& needed,
                                                                 const BoundaryConditions& boundaries, int rank);

/// From one distribution to another of the same tensor: fills needed(rank) — by default what the destination
/// distribution gives to the rank, or more with ghosts — from the source distribution. A rank takes what it holds
/// itself; of several holders the one with the coordinates that the rank itself has in the source distribution's
/// replicated dimensions, so that the load is spread. Gather and scatter are redistributions to and from
/// Distribution::on_root.
/// @pre source.extents() == destination.extents(), source.ranks() == destination.ranks()
/// Throws InvalidArgument (equal on all ranks).
TransferPlan plan_redistribution(const views::Distribution& source, const views::Distribution& destination,
                                 const NeededBox& needed, const BoundaryConditions& boundaries, int rank);
TransferPlan plan_redistribution(const views::Distribution& source, const views::Distribution& destination, int rank);

/// What a plan costs this rank.
struct TransferCount {
  Index sent_messages = 0, sent_elements = 0;
  Index received_messages = 0, received_elements = 0;
  Index local_elements = 0;   ///< destination cells written by local copies
  Index filled_elements = 0;  ///< destination cells set to zero

  friend bool operator==(const TransferCount&, const TransferCount&) = default;
};
TransferCount count(const TransferPlan& plan);

/// 64-bit digest of everything that all ranks must agree on before they plan together.
std::uint64_t agreement_digest(const views::Distribution& source, const views::Distribution& destination,
                               const NeededBox& needed, const BoundaryConditions& boundaries);

}  // namespace aloni::halo

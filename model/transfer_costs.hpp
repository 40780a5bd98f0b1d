#pragma once
// The time of a message, or of a halo exchange, between two ranks of a machine, and its constants from measurements.
//
//   const PairTransfer halo{.method = TransferMethod::messages, .link = LinkKind::between_nodes, .bytes = 1 << 20};
//   transfer_seconds(halo, machine);
//   const std::vector<CollectiveTime> measured{{1024, 3e-6}, {1 << 20, 4e-4}};
//   machine.transfers = {fit_transfer(halo, machine, measured)};
//
// The rules are those of transfer_cost() (communication.hpp), by which simulate() prices the transfers of a step. Pure.
#include <aloni/model/collective_costs.hpp>
#include <aloni/model/machine.hpp>
#include <aloni/model/transfer_fit.hpp>

#include <cstddef>
#include <span>

namespace aloni::model {

/// A message from one rank to another, or a halo exchange in which each of two ranks has one box of values for the
/// other.
struct PairTransfer {
  TransferMethod method = TransferMethod::send;
  LinkKind link = LinkKind::within_node;  ///< as TransferFit::link
  std::size_t bytes = 0;                  ///< of the values for one rank; a multiple of 4
  bool shared_data = false;               ///< as TransferFit::shared_data
};

/// Whether a transfer of this method can take this link.
bool can_take(TransferMethod method, LinkKind link);

/// The fit of a method; null if the machine has none.
const TransferFit* transfer_fit(const Machine& machine, TransferMethod method, LinkKind link, bool shared_data = false);

/// Seconds from the start on both ranks to the end on both, by the fit if the machine has one, otherwise by the links
/// alone. Throws InvalidArgument for a link that the method cannot take, and for bytes that are no multiple of 4.
double transfer_seconds(const PairTransfer& transfer, const Machine& machine);

/// The same by the links alone.
double unfitted_transfer_seconds(const PairTransfer& transfer, const Machine& machine);

/// Constants with which transfer_seconds() gives exactly these times, unless one is shorter than the parts of it that
/// no factor changes. The shortest size decides the time of a call and of its messages. The others decide the factor of
/// all times per byte, each at its size. `transfer.bytes` does not count.
/// @pre `times` are of ascending sizes above 0 and of positive seconds, and not empty. Throws InvalidArgument; also as
/// transfer_seconds(), and for a link that has no latency or no bandwidth.
TransferFit fit_transfer(const PairTransfer& transfer, const Machine& machine, std::span<const CollectiveTime> times);

}  // namespace aloni::model

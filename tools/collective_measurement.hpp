#pragma once
// Measured times of messages, halo exchanges and collectives beside those of the cost model, and the constants that
// follow from them.
//
//   std::vector<CommunicationTimes> all = measure_transfers(comm, machine, {.largest_bytes = 4 << 20});
//   fit_transfers(all, machine);                                    // fills machine.transfers
//   all = measure_collectives(comm, machine, {.largest_bytes = 4 << 20});
//   fit_collectives(all, machine, comm.size());                     // fills machine.collectives
//
// From 64 KiB on every second size is left out of the fits; its errors say how good they are.
#include <aloni/core/comm/communicator.hpp>
#include <aloni/model/collective_costs.hpp>
#include <aloni/model/machine.hpp>
#include <aloni/model/transfer_costs.hpp>

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace aloni::tools {

struct CollectiveMeasurementOptions {
  std::size_t largest_bytes = std::size_t{32} << 20;
  double seconds_per_case = 0.02;  ///< for each method, memory and size; each runs at least eight times
  /// Called on all ranks after each measured time; every size of every method has two.
  std::function<void(std::size_t done, std::size_t all)> progress = {};
};

/// One operation by one method, with data in one kind of memory.
struct CommunicationTimes {
  struct Time {
    std::size_t bytes = 0;
    double seconds = 0;
    double predicted = 0;   ///< by the cost model: with the fit, if there is one
    double by_links = 0;    ///< by the links alone
    bool left_out = false;  ///< of the fit
  };
  std::string operation = {}, method = {}, memory = {};  ///< memory: "private" or "shared"
  std::optional<model::CollectiveCall> call = {};        ///< of a collective; its bytes are 0
  std::optional<model::PairTransfer> transfer = {};      ///< of a message or a halo exchange; its bytes are 0
  std::vector<Time> times = {};                          ///< by ascending sizes

  /// Mean relative errors at sizes that were left out, for error() those of at least `least_bytes`; negative if none
  /// were.
  double error(std::size_t least_bytes = 0) const;
  double links_error() const;
};

/// Measures messages and halo exchanges of two ranks of the first node, and of two ranks of the first two nodes. All
/// other ranks wait meanwhile. Equal on all ranks. Collective. On one rank: nothing.
/// @pre machine.links has the links of this job (measure_machine())
std::vector<CommunicationTimes> measure_transfers(const comm::Communicator& comm, const model::Machine& machine,
                                                  const CollectiveMeasurementOptions& options = {});

/// Whether the machine has constants of all transfers that measure_transfers() would measure.
bool has_transfers(const comm::Communicator& comm, const model::Machine& machine);

/// Sets the constants in machine.transfers of these methods and links, and the predictions in `all`. Not collective;
/// equal on all ranks for equal arguments. Throws InvalidArgument as model::fit_transfer().
void fit_transfers(std::vector<CommunicationTimes>& all, model::Machine& machine);

/// Measures collectives. Equal on all ranks. Collective. On one rank: nothing.
/// @pre as above
std::vector<CommunicationTimes> measure_collectives(const comm::Communicator& comm, const model::Machine& machine,
                                                    const CollectiveMeasurementOptions& options = {});

/// Sets the constants in machine.collectives of as many ranks and nodes, and the predictions in `all`. Nothing on more
/// than model::most_fitted_ranks ranks.
/// Not collective; equal on all ranks for equal arguments.
void fit_collectives(std::vector<CommunicationTimes>& all, model::Machine& machine, int ranks);

}  // namespace aloni::tools

#pragma once
// Constants of a collective, fitted to its measured times (collective_costs.hpp).
#include <aloni/core/comm/collective_schedules.hpp>
#include <aloni/model/size_factor.hpp>

#include <vector>

namespace aloni::model {

/// Of one method with data in one kind of memory. Factors multiply the constants of the machine's links, so they hold
/// for links of other bandwidths too.
struct CollectiveFit {
  comm::OperationKind operation = comm::OperationKind::all_reduce;
  comm::CollectiveMethod method = comm::CollectiveMethod::ring;
  bool shared_data = false;     ///< the data lie in Communicator::shared_memory()
  int ranks = 0, nodes = 0;     ///< where it was measured
  double seconds_per_call = 0;  ///< besides messages and bytes
  double message_factor = 1;    ///< of latency and seconds_per_message
  /// Of all times per byte, by the bytes of the operation.
  std::vector<SizeFactor> rates = {};
  /// Mean relative errors at sizes left out of the fit: of the fit, and of the links alone. 0: none were left out.
  double error = 0, links_error = 0;

  friend bool operator==(const CollectiveFit&, const CollectiveFit&) = default;
};

}  // namespace aloni::model

#pragma once
// Constants of a collective, fitted to its measured times (collective_costs.hpp).
#include <aloni/core/comm/collective_schedules.hpp>

#include <cstddef>
#include <vector>

namespace aloni::model {

/// Of one method with data in one kind of memory. Factors multiply the constants of the machine's links, so they hold
/// for links of other bandwidths too.
struct CollectiveFit {
  /// Factor of all times per byte in an operation of so many bytes. In between: linear over the logarithm of the size.
  /// The rate of a cache that is left is such a factor (parameterised LogP: Kielmann, Bal and Verstoep 2000).
  struct Rate {
    std::size_t bytes = 0;
    double factor = 1;

    friend bool operator==(const Rate&, const Rate&) = default;
  };

  comm::OperationKind operation = comm::OperationKind::all_reduce;
  comm::CollectiveMethod method = comm::CollectiveMethod::ring;
  bool shared_data = false;      ///< the data lie in Communicator::shared_memory()
  int ranks = 0, nodes = 0;      ///< where it was measured
  double seconds_per_call = 0;   ///< besides messages and bytes
  double message_factor = 1;     ///< of latency and seconds_per_message
  std::vector<Rate> rates = {};  ///< by ascending sizes
  /// Mean relative errors at sizes left out of the fit: of the fit, and of the links alone. 0: none were left out.
  double error = 0, links_error = 0;

  /// @pre rates is not empty
  double rate_factor(std::size_t bytes) const;

  friend bool operator==(const CollectiveFit&, const CollectiveFit&) = default;
};

}  // namespace aloni::model

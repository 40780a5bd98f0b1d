#pragma once
// Checks of the arguments of a training, before anything is allocated.
#include <aloni/core/comm/agreement.hpp>
#include <aloni/nn/data/dataset.hpp>
#include <aloni/nn/network_description.hpp>
#include <aloni/nn/strategy.hpp>
#include <aloni/nn/trainer.hpp>

#include <optional>
#include <string>

namespace aloni::nn {

/// Throws InvalidArgument on all ranks if one has passed another argument. It comes before all other checks: an error
/// on some ranks only would leave the others waiting. `element`: name of the type of activations. `data`: of the
/// training and the test set. Collective.
void check_replicated(const comm::Communicator& comm, const std::string& element, const NetworkDescription& network,
                      const Strategy& strategy, const comm::ReplicatedValues& data, const TrainOptions& options);

/// Throws InvalidArgument. Equal on all ranks that pass equal arguments, as the function below.
void check_arguments(const TrainOptions& options);
/// As above. Throws also as check_fits (nn/data/host_batch.hpp).
void check_arguments(const NetworkDescription& network, const Dataset& train_set,
                     const std::optional<Dataset>& test_set, const TrainOptions& options);

}  // namespace aloni::nn

#pragma once
// Where a network that only evaluates gets its parameters from: a file of weights, or the checkpoints of a training.
// Pure. nn/read_trained_weights.hpp reads them.
#include <string>

namespace aloni::nn {

/// One of the two is given.
struct TrainedWeights {
  std::string file = {};         ///< as nn/weights_file.hpp
  std::string checkpoints = {};  ///< folder of a training (docs/checkpoint.md): its newest whole checkpoint
};

}  // namespace aloni::nn

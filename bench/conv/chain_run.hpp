#pragma once
// Inference through thin layers, whose exchanges cost more by their number than by their bytes.
#include <aloni/core/comm/communicator.hpp>
#include <aloni/nn/network.hpp>
#include <aloni/nn/strategy.hpp>

namespace aloni::bench {

/// Eight times 16 -> 16 channels, 3x3, and ReLU, on a square of 64 pixels, split in height among all ranks.
class ChainRun {
 public:
  /// Collective. Throws std::runtime_error when the result is not that of one rank alone.
  ChainRun(const comm::Communicator& world, nn::Overlap overlap);

  /// Collective. Ends with the work done.
  void run();

 private:
  Queue<> queue_;
  nn::NetworkDescription net_;
  nn::Parameters<float> parameters_;
  nn::Network<float> network_;
};

}  // namespace aloni::bench

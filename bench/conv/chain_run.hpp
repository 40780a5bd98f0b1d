#pragma once
// Inference through thin layers. The number of their exchanges costs more time than the bytes of these exchanges.
#include <aloni/core/comm/communicator.hpp>
#include <aloni/nn/network.hpp>
#include <aloni/nn/strategy.hpp>

namespace aloni::bench {

/// Eight 3x3 convolutions, 16 -> 16 channels, each with ReLU, on 64 x 64 pixels, split in height over all ranks.
class ChainRun {
 public:
  /// Runs the chain once and checks it. Collective. Throws std::runtime_error on a rank whose result differs from the
  /// result of one rank alone.
  ChainRun(const comm::Communicator& world, nn::Overlap overlap);

  /// One forward pass; returns when it is complete. Collective.
  void run();

 private:
  Queue<> queue_;
  nn::NetworkDescription net_;
  nn::Parameters<float> parameters_;
  nn::Network<float> network_;
};

}  // namespace aloni::bench

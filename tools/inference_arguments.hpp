#pragma once
// The options that `aloni evaluate` and `aloni predict` share: the weights, the strategy, the size of mini-batches.
#include <aloni/core/comm/agreement.hpp>
#include <aloni/nn/inference.hpp>
#include <aloni/tools/strategy_argument.hpp>

#include <cstdint>
#include <string>

namespace CLI {
class App;
}

namespace aloni::tools {

class InferenceArguments {
 public:
  /// Adds the options to `command`. @pre this object outlives `command`
  void add_options(CLI::App& command);
  /// Throws UsageError for a value out of range, and unless weights are given once.
  void check() const;
  /// The options that all ranks must pass alike.
  void add_to(comm::ReplicatedValues& values) const;

  nn::TrainedWeights weights() const { return {weights_, checkpoint_}; }
  nn::InferenceOptions options() const;
  const StrategyArgument& strategy() const { return strategy_; }
  const std::string& precision() const { return precision_; }

 private:
  CLI::App* command_ = nullptr;
  std::string weights_, checkpoint_, precision_ = "float", backend_ = "automatic";
  StrategyArgument strategy_{FewerBlocks::repeated};
  std::int64_t batch_ = 64;
};

}  // namespace aloni::tools

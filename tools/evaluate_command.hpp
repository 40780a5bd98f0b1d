#pragma once
// aloni evaluate: loss and metrics of a trained network on the test set of a folder.
#include <aloni/core/comm/agreement.hpp>
#include <aloni/core/comm/communicator.hpp>
#include <aloni/nn/metrics.hpp>
#include <aloni/tools/inference_arguments.hpp>
#include <aloni/tools/train_output.hpp>

#include <string>

namespace CLI {
class App;
}

namespace aloni::tools {

/// {"samples", "test_loss", "test_accuracy", "test_iou" or another metric, "peak_memory_bytes", "run": {version,
/// members of TrainRun without the seed}}, with the names of the results of aloni train. Numbers that are not finite
/// become null.
std::string to_json(const nn::TestResult& result, Index samples, std::uint64_t peak_bytes, const TrainRun& run);

class EvaluateCommand {
 public:
  /// Adds the subcommand and its options to `app`. @pre this object outlives `app`
  explicit EvaluateCommand(CLI::App& app);

  bool chosen() const;
  /// Throws UsageError.
  void check() const;
  /// The options that all ranks must pass alike. Of --data and --json, only whether they are given.
  void add_to(comm::ReplicatedValues& values) const;
  /// Collective. Throws UsageError, and the exceptions of nn::evaluate.
  void run(const comm::Communicator& comm) const;

 private:
  CLI::App* command_;
  std::string model_ = "lenet5", data_, json_;
  InferenceArguments inference_;
};

}  // namespace aloni::tools

#pragma once
// aloni predict: the outputs of a trained network for the samples of a file.
#include <aloni/core/comm/agreement.hpp>
#include <aloni/core/comm/communicator.hpp>
#include <aloni/nn/data/dataset.hpp>
#include <aloni/tools/inference_arguments.hpp>

#include <cstdint>
#include <string>

namespace CLI {
class App;
}

namespace aloni::tools {

class PredictCommand {
 public:
  /// Adds the subcommand and its options to `app`. @pre this object outlives `app`
  explicit PredictCommand(CLI::App& app);

  bool chosen() const;
  /// Throws UsageError.
  void check() const;
  /// The options that all ranks must pass alike.
  void add_to(comm::ReplicatedValues& values) const;
  /// Collective. Throws UsageError, and the exceptions of nn::predict.
  void run(const comm::Communicator& comm) const;

 private:
  nn::Dataset open() const;

  CLI::App* command_;
  std::string model_, input_, output_, mean_ = "0", deviation_ = "1";
  std::int64_t classes_ = 0;
  double scale_ = 1;
  InferenceArguments inference_;
};

}  // namespace aloni::tools

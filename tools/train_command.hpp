#pragma once
// aloni train: trains a named network on a data set in IDX files with a strategy; prints and writes the results.
#include <aloni/core/comm/communicator.hpp>
#include <aloni/nn/trainer.hpp>
#include <aloni/tools/progress.hpp>

#include <string>

namespace CLI {
class App;
}

namespace aloni::tools {

class TrainCommand {
 public:
  /// Adds the subcommand and its options to `app`. @pre this object outlives `app`
  explicit TrainCommand(CLI::App& app);

  bool chosen() const;
  /// Checks the ranges of values, which the parser does not know. Throws UsageError.
  void check() const;
  /// Collective. Throws UsageError and the exceptions of the library.
  void run(const comm::Communicator& comm) const;

 private:
  template <class T>
  nn::TrainReport train(const comm::Communicator& comm, const nn::NetworkDescription& network,
                        const nn::Strategy& strategy, const nn::TrainAndTest& data, nn::TrainObserver* observer) const;

  CLI::App* command_;
  std::string model_ = "lenet5", data_, strategy_, precision_ = "float", schedule_ = "linear", backend_ = "automatic",
              gradients_ = "all", progress_ = "automatic", json_, tuning_;
  std::int64_t seed_ = 1;  // signed, because the parser would turn -1 into a large number
  nn::TrainOptions options_;
};

}  // namespace aloni::tools

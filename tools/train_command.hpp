#pragma once
// aloni train: a network by name, a data set in IDX files, a strategy; prints and writes what became of it.
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
  /// Adds the subcommand and its options; this object must live as long as `app`.
  explicit TrainCommand(CLI::App& app);

  bool chosen() const;
  /// What the parser can't know: values out of range. Throws UsageError.
  void check() const;
  /// Collective. Throws UsageError and whatever the library throws.
  void run(const comm::Communicator& comm) const;

 private:
  template <class T>
  nn::TrainReport train(const comm::Communicator& comm, const nn::NetworkDescription& network,
                        const nn::Strategy& strategy, const nn::TrainAndTest& data, nn::TrainObserver* observer) const;

  CLI::App* command_;
  std::string model_ = "lenet5", data_, strategy_, precision_ = "float", schedule_ = "linear", backend_ = "automatic",
              gradients_ = "all", progress_ = "automatic", json_, tuning_;
  std::int64_t seed_ = 1;  // signed, or the parser would take -1 for a large number
  nn::TrainOptions options_;
};

}  // namespace aloni::tools

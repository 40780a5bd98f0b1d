#pragma once
// aloni train: trains a named network with a strategy, on the data sets of a folder or on made-up data. Prints and
// writes the results.
#include <aloni/core/comm/agreement.hpp>
#include <aloni/core/comm/communicator.hpp>
#include <aloni/core/measured_implementations.hpp>
#include <aloni/nn/plan/memory_savings.hpp>
#include <aloni/nn/trainer.hpp>
#include <aloni/tools/automatic_strategy.hpp>
#include <aloni/tools/checkpoint_arguments.hpp>
#include <aloni/tools/convolution_report.hpp>
#include <aloni/tools/data_arguments.hpp>
#include <aloni/tools/machine_measurement.hpp>
#include <aloni/tools/memory_arguments.hpp>
#include <aloni/tools/optimiser_arguments.hpp>
#include <aloni/tools/plan_summary.hpp>
#include <aloni/tools/progress.hpp>
#include <aloni/tools/step_comparison.hpp>
#include <aloni/tools/strategy_argument.hpp>
#include <aloni/tools/train_output.hpp>

#include <cstdint>
#include <optional>
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
  /// The options that all ranks must pass alike. Of paths, only whether they are given.
  void add_to(comm::ReplicatedValues& values) const;
  /// Collective. Throws UsageError, the exceptions of the library, and Stopped on all ranks after a signal.
  void run(const comm::Communicator& comm) const;

 private:
  /// The strategy of the training, and the options of its steps that go with it.
  struct ChosenStep {
    nn::Strategy strategy = {};
    nn::MemoryWish memory = {};
    std::optional<Index> bucket_bytes = {}, chunk_bytes = {}, direct_bytes = {}, consolidate_below = {};
    std::optional<double> largest_overhead = {}, multiplications_per_slab = {};
    MeasuredImplementations convolutions = {};
    std::optional<WorkPerCopiedByte> work_per_copied_byte = {};
  };

  template <class T>
  nn::TrainReport train(const comm::Communicator& comm, const nn::NetworkDescription& network, const ChosenStep& step,
                        const nn::TrainAndTestSets& data, nn::TrainObserver* observer) const;
  nn::TrainOptions options_for(const nn::TrainAndTestSets& data) const;
  /// The strategy of a training without --strategy. Collective.
  AutomaticStrategy choose_strategy(const comm::Communicator& comm, const nn::NetworkDescription& network,
                                    const nn::TrainAndTestSets& data, const std::optional<model::Machine>& machine,
                                    const ChosenStep& step) const;
  /// The machine of --machine. Its measured all-reduces decide those of `comm`. Collective.
  std::optional<model::Machine> read_machine(const comm::Communicator& comm) const;
  /// The steps to time for --trace and --compare.
  std::int64_t timed_steps(const nn::TrainAndTestSets& data) const;
  /// Sets the limits of the step by the machine. The result says so, in one or two lines. Collective.
  std::string choose_limits(const comm::Communicator& comm, const nn::NetworkDescription& network,
                            const nn::TrainAndTestSets& data, const model::Machine& machine, const KernelPlace& place,
                            ChosenStep& step) const;
  /// The measured convolutions of the machine for the ranks and threads of this job. Equal on all ranks. Collective.
  MeasuredImplementations convolutions_of(const comm::Communicator& comm, const model::Machine& machine,
                                          KernelPlace place) const;
  /// The implementations of the convolutions of rank 0, and why. Collective; the result is that of rank 0.
  ConvolutionReport report_convolutions(const comm::Communicator& comm, const nn::NetworkDescription& network,
                                        const ChosenStep& step, const nn::TrainAndTestSets& data,
                                        const std::optional<model::Machine>& machine, const KernelPlace& place) const;
  /// The step of this rank by the cost model, for --compare. Collective.
  StepPrediction predict(const comm::Communicator& comm, const nn::NetworkDescription& network, const ChosenStep& step,
                         const nn::TrainAndTestSets& data, const std::optional<model::Machine>& machine,
                         const KernelPlace& place) const;
  /// Without --memory-limit: throws InvalidArgument on all ranks if the buffers of a rank exceed its share of the
  /// memory. Otherwise the system ends the job when the memory is full, or another one. With any limit: also if its
  /// activations in host memory exceed its share of the node. Collective.
  void check_memory(const comm::Communicator& comm, const nn::NetworkDescription& network, const ChosenStep& step,
                    const nn::TrainAndTestSets& data, const KernelPlace& place) const;
  /// Of a mini-batch, and of the part of it that a step computes.
  Index samples_of(const nn::TrainAndTestSets& data) const;
  Index samples_of_step(const nn::TrainAndTestSets& data) const;
  nn::NetworkDescription network_for(const nn::TrainAndTestSets& data) const;
  std::string describe(const nn::TrainAndTestSets& data, const nn::NetworkDescription& network) const;

  PlanRequest plan_request(const nn::NetworkDescription& network, const nn::Strategy& strategy, int ranks) const;
  TrainRun train_run(const comm::Communicator& comm, const nn::Strategy& strategy) const;

  CLI::App* command_;
  std::string model_ = "lenet5", precision_ = "float", backend_ = "automatic", gradients_ = "all",
              progress_ = "automatic", json_, machine_, trace_, weights_, export_, run_, config_, drawing_;
  std::string input_;
  std::int64_t classes_ = 0;
  std::int64_t trace_steps_ = 3;
  bool compare_ = false;
  std::int64_t seed_ = 1;  // signed, because the parser would turn -1 into a large number
  DataArguments data_;
  OptimiserArguments optimiser_;
  CheckpointArguments checkpoint_;
  MemoryArguments memory_;
  StrategyArgument strategy_{FewerBlocks::refused, "the cost model chooses, and real steps of the best few are timed"};
  nn::TrainOptions options_;
};

}  // namespace aloni::tools

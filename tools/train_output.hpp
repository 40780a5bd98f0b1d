#pragma once
// Output of `aloni train`, for people (rank 0 only) and for programs.
#include <aloni/nn/trainer.hpp>
#include <aloni/tools/progress.hpp>
#include <aloni/tools/step_comparison.hpp>

#include <array>
#include <string>
#include <utility>

namespace aloni::tools {

/// The request of the user, apart from TrainOptions.
struct TrainRun {
  std::string model, data, strategy, precision;
  int ranks = 1;
  Index batch = 64;
  std::int64_t seed = 1;
};

/// Shows progress on stderr and prints one line per epoch to stdout.
class TrainSpeaker : public nn::TrainObserver {
 public:
  TrainSpeaker(ProgressStyle style, Index batch, Index samples_per_epoch);

  void after_step(const nn::StepReport& report) override;
  void after_epoch(int epoch, int epochs, const nn::EpochReport& report, double samples_per_second) override;

 private:
  Progress progress_;
  Index batch_;
  std::int64_t steps_per_epoch_;
  double step_seconds_ = 0;  ///< running mean
};

/// "97.50 %" for an accuracy, otherwise "0.8512".
std::string value_text(const nn::Metric& metric);

/// The seconds of each phase, with its name.
std::array<std::pair<const char*, double>, 4> phases(const nn::TimeReport& time);

/// Text for stdout, several lines: speed, time of each phase, memory.
std::string summary(const nn::TrainReport& report);

/// {"losses": [per step], "epochs": [{"loss", "test_accuracy", "test_loss", "test_iou" or another metric}],
/// "step_seconds", "samples_per_second", "time": {"compute", "halo", "collective", "input"}, "peak_memory_bytes",
/// "memory_of_all_ranks_bytes", "predicted_memory_bytes", "bytes_sent", "messages", "run": {version, members of
/// TrainRun}}. Names of metrics are those of nn/metrics.hpp after "test_". Without a test set no member begins with
/// "test_". "bytes_sent" and "messages" are those of one training step. Numbers that are not finite become null.
/// With a comparison there is "comparison": {"machine", "steps", "input_seconds", "step", "phases", "kinds", "layers",
/// "nodes", "mean_error", "worst_error", "worst_layer"}. "step" and the elements of the lists are {"name",
/// "predicted_seconds", "measured_seconds", "error"}. Nodes are those of rank 0. See StepComparison.
std::string to_json(const nn::TrainReport& report, const TrainRun& run, const StepComparison* comparison = nullptr);

/// The times of all ranks as Chrome trace events (core/trace.hpp) on rank 0; empty on the other ranks.
/// Collective. @pre report.times
std::string trace_text(const comm::Communicator& comm, const nn::TrainReport& report, const TrainRun& run);

}  // namespace aloni::tools

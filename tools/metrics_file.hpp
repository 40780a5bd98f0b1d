#pragma once
// The metrics of a training as JSON Lines, written while it runs: one line for each step, and one for each epoch.
//
//   {"step": 17, "loss": 0.31, "learning_rate": 0.05, "seconds": 0.0052}
//   {"epoch": 1, "step": 938, "loss": 0.21, "test_accuracy": 0.981, "samples_per_second": 12300}
//
// Numbers that are not finite become null. Lines reach the file at least every second.
#include <aloni/nn/trainer.hpp>

#include <chrono>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <vector>

namespace aloni::tools {

class MetricsFile : public nn::TrainObserver {
 public:
  /// Opens a new file, or goes on with an existing one: the first step that comes replaces its lines of this step and
  /// of later ones. Throws FileError.
  explicit MetricsFile(const std::string& path);

  void after_step(const nn::StepReport& step) override;
  void after_epoch(int epoch, int epochs, const nn::EpochReport& report, double samples_per_second) override;

  /// Writes the rest. Throws FileError for the first error since the file was opened: a training goes on without its
  /// metrics.
  void finish();

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  /// The training goes on after the step before.
  void begin_at(std::int64_t step);
  void write(const std::string& line);

  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
  std::chrono::steady_clock::time_point flushed_;
  std::int64_t last_step_ = 0;
  bool has_begun_ = false;
  int error_ = 0;  ///< of the system
};

struct Metrics {
  std::vector<double> learning_rates = {};    ///< of all steps, from the first; NaN where a line is missing
  std::vector<std::int64_t> last_steps = {};  ///< of each epoch
};

/// Reads a file of metrics. Lines that are no metrics are left out. Throws FileError if the file cannot be read.
Metrics read_metrics(const std::string& path);

/// Removes the lines of steps above `step`, and of epochs that ended after it: the training goes on from there. Lines
/// that are no metrics, for example a torn last one, are removed too. Throws FileError.
void shorten_metrics(const std::string& path, std::int64_t step);

}  // namespace aloni::tools

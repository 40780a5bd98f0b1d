#pragma once
// The folder of a run (`aloni train --run DIR`), written by rank 0:
//
//   config.json     the options, which start the same run again (tools/run_configuration.hpp)
//   model.json, machine.json              copies of the files that the options name
//   strategy        a copy of the file of --strategy, or the strategy that the command chose
//   convolutions.txt    the implementation of each convolution of rank 0, and why (tools/convolution_report.hpp)
//   metrics.jsonl   a line for each step and each epoch (tools/metrics_file.hpp)
//   checkpoints/    unless --checkpoint names another folder (docs/checkpoint.md)
//   report.html     the training as one page (tools/report_page.hpp)
#include <aloni/nn/network_description.hpp>
#include <aloni/nn/trainer.hpp>
#include <aloni/tools/metrics_file.hpp>
#include <aloni/tools/plan_summary.hpp>
#include <aloni/tools/run_configuration.hpp>
#include <aloni/tools/train_output.hpp>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace aloni::tools {

class RunFolder {
 public:
  using Options = RunConfiguration::Options;

  /// Makes the folder. Copies the files that the given options name, and writes config.json. `chosen_strategy`: the
  /// text of the strategy that the command chose; empty: it is given.
  /// Throws FileError, also if the folder has a run already and `resumes` is false.
  RunFolder(const std::string& path, RunConfiguration configuration, const std::string& chosen_strategy, bool resumes);

  /// Writes convolutions.txt. Throws FileError.
  void explain_convolutions(const std::string& table) const;

  nn::TrainObserver& metrics() { return *metrics_; }
  std::string report_path() const { return path_ + "/report.html"; }

  /// Ends metrics.jsonl and writes report.html. `plan`: the request of the plan's table. Throws FileError.
  void finish(const nn::TrainReport& report, const TrainRun& run, const PlanRequest& plan);

 private:
  std::string path_;
  Options options_;
  std::optional<MetricsFile> metrics_;
};

/// Passes each call on to all observers, in their order.
class TrainObservers : public nn::TrainObserver {
 public:
  void add(nn::TrainObserver& observer) { observers_.push_back(&observer); }
  void after_step(const nn::StepReport& step) override {
    for (auto* const observer : observers_) observer->after_step(step);
  }
  void after_epoch(int epoch, int epochs, const nn::EpochReport& report, double samples_per_second) override {
    for (auto* const observer : observers_) observer->after_epoch(epoch, epochs, report, samples_per_second);
  }

 private:
  std::vector<nn::TrainObserver*> observers_;
};

}  // namespace aloni::tools

#pragma once
// The options of a training that write checkpoints and resume from them.
#include <aloni/core/comm/agreement.hpp>
#include <aloni/nn/trainer.hpp>

#include <string>

namespace CLI {
class App;
}

namespace aloni::tools {

class CheckpointArguments {
 public:
  /// Adds the options to `command`. @pre this object outlives `command`
  void add_options(CLI::App& command);
  /// Throws UsageError for a value out of range, and for an option that needs --checkpoint or --run.
  void check() const;
  /// The options that all ranks must pass alike.
  void add_to(comm::ReplicatedValues& values) const;

  /// The folder without --checkpoint; empty: none. Before check().
  void set_default_folder(const std::string& folder) { default_folder_ = folder; }

  bool given() const { return !folder().empty(); }
  const std::string& folder() const { return folder_.empty() ? default_folder_ : folder_; }
  bool resumes() const { return resume_; }
  /// Without CheckpointOptions::stop. @pre check() throws nothing
  nn::CheckpointOptions options() const;

 private:
  CLI::App* command_ = nullptr;
  std::string folder_, default_folder_, every_ = "0";
  std::int64_t keep_ = nn::CheckpointOptions{}.keep;
  bool resume_ = false;
};

}  // namespace aloni::tools

#pragma once
// The options of `aloni train --optimiser kfac`.
#include <aloni/core/comm/agreement.hpp>
#include <aloni/nn/kfac_options.hpp>

#include <cstdint>
#include <optional>
#include <string>

namespace CLI {
class App;
}

namespace aloni::tools {

class KfacArguments {
 public:
  /// Adds the options to `command`. @pre this object outlives `command`
  void add_options(CLI::App& command);
  /// Throws UsageError for a value out of range, and for an option of K-FAC unless `chosen`.
  void check(bool chosen) const;
  /// The options that all ranks must pass alike.
  void add_to(comm::ReplicatedValues& values) const;

  /// Starts the thread of the solver. @pre check() has returned
  nn::KfacOptions options() const;
  /// "every 10 steps, used 5 steps later, by tasks".
  std::string describe() const;

 private:
  bool given(const char* option) const;
  std::int64_t delay() const;

  CLI::App* command_ = nullptr;
  std::int64_t every_ = nn::KfacOptions{}.every, factors_every_ = nn::KfacOptions{}.factors_every, delay_ = 0;
  double damping_ = nn::KfacOptions{}.damping, decay_ = nn::KfacOptions{}.decay, clip_ = nn::KfacOptions{}.kl_clip;
  std::string solver_;
};

}  // namespace aloni::tools

#pragma once
// Kernels and communication with round times, for tests of simulated steps.
#include <aloni/model/kernel_times.hpp>
#include <aloni/model/machine.hpp>
#include <aloni/nn/network_plan.hpp>
#include <aloni/nn/strategy.hpp>

#include <string>

namespace aloni::model {

/// Each kernel takes the same time, or a time for each flop.
class RoundTimes final : public KernelTimes {
 public:
  explicit RoundTimes(double seconds, double seconds_per_flop = 0) : seconds_(seconds), per_flop_(seconds_per_flop) {}
  Estimate of(const KernelProblem& problem) const override {
    return {seconds_ + per_flop_ * problem.flops(), KernelSource::measured, 0};
  }

 private:
  double seconds_, per_flop_;
};

/// A machine whose communication is free.
inline Machine free_machine() {
  Machine machine = generic_machine();
  machine.links = {};
  machine.combine_seconds_per_byte = machine.exchange_seconds = 0;
  return machine;
}

inline nn::NetworkPlan layers_of(const nn::NetworkDescription& net, const std::string& split, int ranks,
                                 Index samples) {
  return nn::plan_network(net, nn::resolve(nn::Strategy::uniform(nn::LayerSplit::parse(split)), net, ranks), ranks,
                          samples);
}

}  // namespace aloni::model

#pragma once
// Sources of the times of a simulated step, for `aloni simulate` and `aloni plan`: text for people, and JSON.
//
//   const StepSources sources = sources_of(step);
//   to_text(sources);             // "kernels    90 % learned, 10 % roofline\n           expected error 17.0 % …"
//   source_text(sources.kernels[3]);                                                             // "learned 17.0 %"
#include <aloni/model/communication.hpp>
#include <aloni/model/kernel_times.hpp>
#include <aloni/model/simulate.hpp>

#include <array>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace aloni::tools {

/// Members of model::SimulatedStep.
struct StepSources {
  std::vector<model::KernelSeconds> kernels = {};  ///< by layer; the last element belongs to no layer
  std::array<double, model::communication_sources> sums = {}, transfers = {};

  model::KernelSeconds all_kernels() const;
};

StepSources sources_of(const model::SimulatedStep& step);

/// The source of most time, and the expected error of measured and learned times: "learned 17.0 %". Without the error
/// if it is not known. Empty if the kernels take no time.
std::string source_text(const model::KernelSeconds& kernels);

/// Lines `kernels`, with the expected error, `sums` and `transfers`. The latter two are left out on one rank.
std::string to_text(const StepSources& sources);

/// Adds "kernel_sources" (shares), "kernel_error" (KernelSeconds::relative_error(), null if empty), "sum_sources" and
/// "transfer_sources".
void add_sources(const StepSources& sources, nlohmann::ordered_json& json);

/// Adds "kernel_source" and "kernel_source_share" (KernelSeconds::main_source()) and "kernel_error"; null if empty.
void add_sources(const model::KernelSeconds& kernels, nlohmann::ordered_json& json);

}  // namespace aloni::tools

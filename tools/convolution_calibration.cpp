#include <aloni/tools/convolution_calibration.hpp>

#include <aloni/core/error.hpp>
#include <aloni/model/machine_file.hpp>
#include <aloni/model/measure_convolutions.hpp>
#include <aloni/model/step_limits.hpp>
#include <aloni/nn/local/cudnn_engines.hpp>
#include <aloni/tools/kernel_measurement.hpp>
#include <aloni/tools/model_argument.hpp>
#include <aloni/tools/option.hpp>
#include <aloni/tools/precision_argument.hpp>
#include <aloni/tools/together.hpp>

#include <CLI/App.hpp>

#include <memory>
#include <optional>
#include <sstream>

namespace aloni::tools {

namespace {

using nn::local::ConvolutionBackend;
using nn::local::ConvolutionCase;

/// On devices the engines of cuDNN take its place. Rank 0 lists them: the ranks measure together, and their libraries
/// may differ.
model::ListImplementations list_on(const comm::Communicator& comm, const MachineDescription& planning,
                                   Index most_workspace_bytes) {
  if (!planning.cudnn) return {};
  const auto engines = comm.rank() == 0 ? std::make_shared<nn::local::ConvolutionEngines>() : nullptr;
  return [comm, planning, most_workspace_bytes, engines](const ConvolutionCase& c) {
    std::string text = comm::collectively(comm, "aloni calibrate: engines of a convolution", [&] {
      std::ostringstream list;
      if (engines)
        for (const nn::local::ConvolutionEngine& e : engines->of(c, most_workspace_bytes))
          list << e.engine << ' ' << e.workspace_bytes << ' ';
      return list.str();
    });
    comm.broadcast(text, 0);
    std::vector<model::ImplementationToMeasure> all = model::list_implementations(c, planning);
    std::erase_if(all, [](const auto& i) { return i.implementation.backend == ConvolutionBackend::cudnn; });
    std::istringstream list(text);
    model::ImplementationToMeasure next{.implementation = {.backend = ConvolutionBackend::cudnn}};
    while (list >> next.implementation.engine >> next.workspace_bytes) all.push_back(next);
    return all;
  };
}

}  // namespace

void ConvolutionArguments::add_options(CLI::App& command) {
  command_ = &command;
  network_.add_options(command);
  add_option(command, "--batch", batch_, "With --model: samples per step, summed over all ranks", "N");
  strategy_.add_options(command);
  add_option(command, "--precision", precision_, "With --model: type of activations: " + listed(precisions), "TYPE");
  add_option(command, "--workspace", workspace_,
             "With --model: implementations of convolutions that take more memory are not measured, nor chosen later",
             "BYTES");
  command.footer(
      "With --model the implementations of all convolutions of that network are measured too. A training with the "
      "machine file chooses by them.");
}

bool ConvolutionArguments::given() const { return command_->count("--model") > 0; }

void ConvolutionArguments::check() const {
  for (const char* option :
       {"--input", "--classes", "--batch", "--strategy", "--complete", "--precision", "--workspace"})
    if (!given() && command_->count(option) > 0) refuse(option, "given", "--model NAME beside it");
  if (!given()) return;
  network_.check();
  check_range("--batch", batch_, 1, most_of_an_option);
  check_range("--workspace", workspace_, 0, Index{1} << 50);
  strategy_.check();
  check_computed_precision(precision_);
}

void ConvolutionArguments::add_to(comm::ReplicatedValues& values) const {
  network_.add_to(values);
  strategy_.add_to(values);
  values.add("--batch", batch_).add("--precision", precision_).add("--workspace", workspace_);
}

std::vector<model::PlannedNetwork> ConvolutionArguments::planned(const comm::Communicator& comm) const {
  const nn::Strategy strategy = strategy_.read(comm);
  const model::PlannedNetwork planned{
      .network = comm::collectively(comm, "aloni calibrate --model", [&] { return network_.network(); }),
      .strategy = strategy,
      .ranks = comm.size(),
      .samples = batch_,
      .kind = nn::StepKind::training,
      .step = {.activations = precision_of(precision_)}};
  // A training with the machine file may compute interiors first or not (model/step_limits.hpp). Their convolutions are
  // other problems.
  std::vector<model::PlannedNetwork> all;
  for (const nn::StepKind kind : {nn::StepKind::training, nn::StepKind::inference})
    for (const std::optional<double> overhead : {std::optional<double>(), std::optional(model::interior_at_once),
                                                 std::optional(model::interior_always_first)}) {
      if (overhead && comm.size() == 1) continue;  // no exchanges of ghosts
      model::PlannedNetwork& next = all.emplace_back(planned);
      next.kind = kind;
      next.step.largest_overhead = overhead;
    }
  return all;
}

void add_convolutions(const comm::Communicator& comm, model::Machine& machine,
                      const std::vector<model::PlannedNetwork>& networks, Index most_workspace_bytes,
                      const std::function<void(std::size_t done, std::size_t all)>& progress,
                      const std::function<void()>& save) {
  const std::vector<model::ConvolutionTask> tasks = convolution_tasks(networks, machine);
  const model::MeasureKernel measure = kernel_measurement(comm, machine);
  model::measure_convolutions(
      tasks, machine, measure,
      {.most_workspace_bytes = most_workspace_bytes, .list = list_on(comm, machine.planning, most_workspace_bytes)},
      [&](const model::ConvolutionProgress& p) {
        progress(p.done, p.all);
        save();
        return true;
      });
  // Ranks on other processors may have other last bits.
  std::string text = comm.rank() == 0 ? model::to_json_text(machine) : "";
  comm.broadcast(text, 0);
  machine = model::parse_machine(text, "the calibration of rank 0");
}

std::string convolution_times_text(const model::Machine& machine, const std::vector<model::PlannedNetwork>& networks) {
  std::string text = "times of convolutions, the chosen implementation first\n";
  for (const model::ConvolutionTask& task : convolution_tasks(networks, machine))
    text += "  " + to_string(task.convolution) + "\n    " +
            explain_choice(task.convolution, description_of(machine, networks.front().ranks)) + "\n";
  return text;
}

}  // namespace aloni::tools

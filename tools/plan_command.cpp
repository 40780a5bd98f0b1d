#include <aloni/core/error.hpp>
#include <aloni/nn/model_file.hpp>
#include <aloni/tools/machine_argument.hpp>
#include <aloni/tools/model_argument.hpp>
#include <aloni/tools/optimiser_kind_argument.hpp>
#include <aloni/tools/option.hpp>
#include <aloni/tools/plan_command.hpp>
#include <aloni/tools/plan_drawing.hpp>
#include <aloni/tools/plan_summary.hpp>
#include <aloni/tools/precision_argument.hpp>
#include <aloni/tools/result_file.hpp>
#include <aloni/tools/together.hpp>

#include <fmt/format.h>
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include <cstdio>
#include <map>
#include <optional>
#include <type_traits>

namespace aloni::tools {

namespace {

constexpr std::int64_t most_ranks = 1'000'000;

}  // namespace

PlanCommand::PlanCommand(CLI::App& app)
    : command_(app.add_subcommand(
          "plan", "Plan a training step on any number of ranks: messages, flops and memory, without running it")) {
  const auto add = [&](const char* name, auto& value, const std::string& text, const char* type) {
    add_option(*command_, name, value, text, type);
  };
  network_.add_options(*command_);
  add("--batch", batch_, "Samples per step, summed over all ranks", "N");
  add("--ranks", ranks_, "Ranks of the plan; not those of mpirun", "P");
  add("--ranks-per-node", ranks_per_node_, "Ranks that share memory; 0: all, or those of --machine", "K");
  strategy_.add_options(*command_, ", or auto, the fastest that the model finds for --machine");
  objective_.add_options(*command_);
  add("--machine", machine_, "Also predict seconds. " + machine_help(), "NAME|FILE.json");
  add("--precision", precision_, "Type of activations: " + listed(precisions), "TYPE");
  add_optimiser_kind_option(*command_, optimiser_, ", or kfac, which also prints the cost of K-FAC");
  memory_.add_options(*command_);
  add("--json", json_, "Also write the results to this file, as JSON", "FILE");
  add("--export", export_, "Also write the network to this file, for --model", "FILE.json");
  add("--export-strategy", strategy_file_, "Also write the strategy to this file, for --strategy here and of train",
      "FILE");
  add("--draw", drawing_, "Also draw the plan to this file, as SVG: blocks, ghosts, messages, memory", "FILE.svg");
}

bool PlanCommand::chosen() const { return command_->parsed(); }

void PlanCommand::check() const {
  network_.check();
  check_range("--batch", batch_, 1, most_of_an_option);
  check_range("--ranks", ranks_, 1, most_ranks);
  check_range("--ranks-per-node", ranks_per_node_, 0, most_ranks);
  precision_of(precision_);
  memory_.check();
  if (!has_kfac()) optimiser_kind_of(optimiser_);
  if (command_->count("--json") > 0 && json_.empty()) refuse("--json", "\"\"", "the path of a file");
  if (command_->count("--draw") > 0 && drawing_.empty()) refuse("--draw", "\"\"", "the path of a file");
  if (command_->count("--export") > 0 && !is_model_file(export_))
    refuse("--export", export_, "a path that ends with .json");
  if (command_->count("--export-strategy") > 0 && strategy_file_.empty())
    refuse("--export-strategy", "\"\"", "the path of a file");
  std::map<std::string, std::string> written;  // by path
  for (const auto& [option, path] : outputs())
    if (const auto [other, is_new] = written.try_emplace(path, option); !is_new)
      refuse(option, path, "another file than that of " + other->second);
  strategy_.check();
  objective_.check(strategy_);
  if (command_->count("--machine") > 0) check_machine(machine_);
  if (!strategy_.is_automatic()) return;
  strategy_.check_automatic();
  if (machine_.empty())
    refuse("--strategy", strategy_.text(), "--machine NAME or FILE beside it, which prices strategies");
}

std::vector<std::pair<const char*, std::string>> PlanCommand::outputs() const {
  std::vector<std::pair<const char*, std::string>> all;
  for (const auto& [option, path] : {std::pair("--json", &json_), std::pair("--export", &export_),
                                     std::pair("--export-strategy", &strategy_file_), std::pair("--draw", &drawing_)})
    if (!path->empty()) all.emplace_back(option, *path);
  return all;
}

void PlanCommand::add_to(comm::ReplicatedValues& values) const {
  network_.add_to(values);
  values.add("--batch", batch_).add("--ranks", ranks_).add("--ranks-per-node", ranks_per_node_);
  strategy_.add_to(values);
  objective_.add_to(values);
  values.add("--machine", machine_);
  values.add("--precision", precision_).add("--optimiser", optimiser_);
  memory_.add_to(values);
  values.add("--json", std::string(json_.empty() ? "not given" : "given"));
  values.add("--export", std::string(export_.empty() ? "not given" : "given"));
  values.add("--export-strategy", std::string(strategy_file_.empty() ? "not given" : "given"));
  values.add("--draw", std::string(drawing_.empty() ? "not given" : "given"));
}

void PlanCommand::run() const {
  std::optional<model::Machine> machine;
  if (!machine_.empty()) {
    machine = read_machine_argument(machine_);
    if (ranks_per_node_ > 0) machine->ranks_per_node = static_cast<int>(ranks_per_node_);
  }
  for (const auto& [option, path] : outputs()) check_result_file_can_be_written(path);
  PlanRequest request{.model = network_.model(),
                      .network = network_.network(),
                      .strategy = strategy_.is_automatic() ? nn::Strategy() : strategy_.read(static_cast<int>(ranks_)),
                      .batch = batch_,
                      .objective = objective_.value(),
                      .ranks = static_cast<int>(ranks_),
                      .ranks_per_node = static_cast<int>(machine ? machine->ranks_per_node : ranks_per_node_),
                      .activations = precision_of(precision_),
                      .optimiser = has_kfac() ? nn::OptimiserKind::sgd : optimiser_kind_of(optimiser_),
                      .kfac = has_kfac(),
                      .memory = memory_.wish()};
  if (machine) request.machine = description_of(*machine, request.ranks);
  std::optional<PlanChoice> choice;
  if (strategy_.is_automatic()) choice = choose(request, *machine);
  PlanSummary summary = summarise(request);
  if (machine) summary.prediction = predict(request, summary, *machine, choice);
  fmt::print("{}", to_text(request, summary));
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    throw FileError("aloni plan", "standard output", "cannot be written", "a device with free space for the results");
  }
  if (!json_.empty()) write_result_file(json_, to_json(request, summary));
  if (!export_.empty()) write_result_file(export_, nn::to_json(request.network));
  if (!strategy_file_.empty()) write_result_file(strategy_file_, to_string(request.strategy));
  if (!drawing_.empty()) write_result_file(drawing_, to_svg(drawing_of(request, summary)));
}

}  // namespace aloni::tools

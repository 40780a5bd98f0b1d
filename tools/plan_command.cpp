#include <aloni/core/error.hpp>
#include <aloni/nn/model_file.hpp>
#include <aloni/tools/model_argument.hpp>
#include <aloni/tools/option.hpp>
#include <aloni/tools/plan_command.hpp>
#include <aloni/tools/plan_drawing.hpp>
#include <aloni/tools/plan_summary.hpp>
#include <aloni/tools/precision_argument.hpp>
#include <aloni/tools/result_file.hpp>
#include <aloni/tools/strategy_argument.hpp>
#include <aloni/tools/together.hpp>

#include <fmt/format.h>
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include <cstdio>
#include <map>
#include <type_traits>

namespace aloni::tools {

namespace {

const std::map<std::string, nn::OptimiserKind> optimiser_kinds{
    {"sgd", nn::OptimiserKind::sgd}, {"adam", nn::OptimiserKind::adam}, {"lars", nn::OptimiserKind::lars}};
constexpr std::int64_t most_ranks = 1'000'000;

}  // namespace

PlanCommand::PlanCommand(CLI::App& app)
    : command_(app.add_subcommand(
          "plan", "Plan a training step on any number of ranks: messages, flops and memory, without running it")) {
  const auto add = [&](const char* name, auto& value, const std::string& text, const char* type) {
    add_option(*command_, name, value, text, type);
  };
  add("--model", model_, model_help(), "NAME|FILE.json");
  add("--input", input_, "Extents of one sample, HxWxC or DxHxWxC; default: those of the model", "EXTENTS");
  command_->add_option("--classes", classes_, "Classes of the last layer; default: those of the model")
      ->type_name("N")
      ->take_last()
      ->check(fits_64_bits);
  add("--batch", batch_, "Samples per step, summed over all ranks", "N");
  add("--ranks", ranks_, "Ranks of the plan; not those of mpirun", "P");
  add("--ranks-per-node", ranks_per_node_, "Ranks that share memory; 0: all", "K");
  add_strategy_option(*command_, strategy_);
  add("--precision", precision_, "Type of activations: " + listed(precisions), "TYPE");
  add("--optimiser", optimiser_, "Update of the parameters, which determines its memory: sgd, adam, lars", "NAME");
  memory_.add_options(*command_);
  add("--json", json_, "Also write the results to this file, as JSON", "FILE");
  add("--export", export_, "Also write the network to this file, for --model", "FILE.json");
  add("--draw", drawing_, "Also draw the plan to this file, as SVG: blocks, ghosts, messages, memory", "FILE.svg");
}

bool PlanCommand::chosen() const { return command_->parsed(); }

void PlanCommand::check() const {
  check_model(model_);
  for (const char* option : {"--input", "--classes"})
    check_not_with_model_file(model_, option, command_->count(option) > 0);
  if (command_->count("--input") > 0) check_input(input_);
  if (command_->count("--classes") > 0) check_range("--classes", classes_, 1, most_of_an_option);
  check_range("--batch", batch_, 1, most_of_an_option);
  check_range("--ranks", ranks_, 1, most_ranks);
  check_range("--ranks-per-node", ranks_per_node_, 0, most_ranks);
  precision_of(precision_);
  memory_.check();
  if (!optimiser_kinds.contains(optimiser_)) refuse("--optimiser", optimiser_, "one of: sgd, adam, lars");
  if (command_->count("--json") > 0 && json_.empty()) refuse("--json", "\"\"", "the path of a file");
  if (command_->count("--draw") > 0 && drawing_.empty()) refuse("--draw", "\"\"", "the path of a file");
  if (command_->count("--export") > 0 && !is_model_file(export_))
    refuse("--export", export_, "a path that ends with .json");
  if (!drawing_.empty() && drawing_ == json_) refuse("--draw", drawing_, "another file than that of --json");
  if (!export_.empty() && export_ == json_) refuse("--export", export_, "another file than that of --json");
  check_strategy_option(*command_, strategy_);
}

void PlanCommand::add_to(comm::ReplicatedValues& values) const {
  values.add("--model", model_).add("--input", input_).add("--classes", classes_).add("--batch", batch_);
  values.add("--ranks", ranks_).add("--ranks-per-node", ranks_per_node_);
  values.add("--strategy", strategy_.empty() ? "not given" : strategy_).add("--precision", precision_);
  values.add("--optimiser", optimiser_);
  memory_.add_to(values);
  values.add("--json", std::string(json_.empty() ? "not given" : "given"));
  values.add("--export", std::string(export_.empty() ? "not given" : "given"));
  values.add("--draw", std::string(drawing_.empty() ? "not given" : "given"));
}

void PlanCommand::run() const {
  const nn::Strategy strategy = read_strategy_argument(strategy_, static_cast<int>(ranks_));
  for (const std::string& path : {json_, export_, drawing_})
    if (!path.empty()) check_result_file_can_be_written(path);
  nn::ModelOptions given;
  if (!input_.empty()) given.input = parse_input(input_);
  if (command_->count("--classes") > 0) given.classes = classes_;
  const PlanRequest request{.model = model_,
                            .network = network_of_model(model_, given),
                            .strategy = strategy,
                            .batch = batch_,
                            .ranks = static_cast<int>(ranks_),
                            .ranks_per_node = static_cast<int>(ranks_per_node_),
                            .activations = precision_of(precision_),
                            .optimiser = optimiser_kinds.at(optimiser_),
                            .recompute = memory_.recompute(),
                            .memory_limit = memory_.limit()};
  const PlanSummary summary = summarise(request);
  fmt::print("{}", to_text(request, summary));
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    throw FileError("aloni plan", "standard output", "cannot be written", "a device with free space for the results");
  }
  if (!json_.empty()) write_result_file(json_, to_json(request, summary));
  if (!export_.empty()) write_result_file(export_, nn::to_json(request.network));
  if (!drawing_.empty()) write_result_file(drawing_, to_svg(drawing_of(request, summary)));
}

}  // namespace aloni::tools

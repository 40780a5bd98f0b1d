#include <aloni/tools/objective_argument.hpp>

#include <aloni/tools/option.hpp>
#include <aloni/tools/together.hpp>

#include <map>

namespace aloni::tools {

namespace {

const std::map<std::string, model::Objective> objectives{{"step", model::Objective::training_step},
                                                         {"latency", model::Objective::inference_latency},
                                                         {"throughput", model::Objective::throughput}};

}  // namespace

std::string objective_name(model::Objective objective) {
  for (const auto& [name, value] : objectives)
    if (value == objective) return name;
  return {};
}

nn::StepKind step_kind_of(model::Objective objective) {
  return objective == model::Objective::training_step ? nn::StepKind::training : nn::StepKind::inference;
}

std::string step_text(model::Objective objective) {
  return objective == model::Objective::training_step ? "training step" : "inference step";
}

std::string enlarged_text(Index batch, Index requested) {
  if (batch == requested) return "";
  return " (" + std::to_string(batch / requested) + " x --batch " + std::to_string(requested) + ")";
}

void ObjectiveArgument::add_options(CLI::App& command) {
  command_ = &command;
  add_option(command, "--objective", objective_,
             "Aim of --strategy auto: step (least time of a training step), latency (least time of an inference step), "
             "or throughput (most samples per second of inference; the mini-batch may become 32 times --batch)",
             "step|latency|throughput");
}

void ObjectiveArgument::check(const StrategyArgument& strategy) const {
  if (!objectives.contains(objective_))
    refuse("--objective", objective_.empty() ? "\"\"" : objective_, one_of_listed(objective_, objectives));
  if (command_->count("--objective") == 0) return;
  if (!strategy.is_automatic())
    refuse("--objective", objective_, "--strategy auto beside it; a strategy that is given has no objective");
  if (value() == model::Objective::training_step) return;
  for (const CLI::Option* option : command_->get_options())
    if (const std::string name = option->get_name();
        option->count() > 0 && (name == "--accumulate" || name == "--optimiser"))
      refuse(name.c_str(), "given", "no such option beside --objective " + objective_ + ": inference has no update");
}

void ObjectiveArgument::add_to(comm::ReplicatedValues& values) const { values.add("--objective", objective_); }

model::Objective ObjectiveArgument::value() const { return objectives.at(objective_); }

}  // namespace aloni::tools

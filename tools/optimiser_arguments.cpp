#include <aloni/tools/optimiser_arguments.hpp>
#include <aloni/tools/option.hpp>
#include <aloni/tools/together.hpp>

#include <fmt/format.h>

#include <cmath>
#include <map>
#include <utility>

namespace aloni::tools {

namespace {

const std::map<std::string, nn::LearningRateSchedule> schedules{{"constant", nn::LearningRateSchedule::constant},
                                                                {"linear", nn::LearningRateSchedule::linear}};
const std::map<std::string, nn::OptimiserKind> optimisers{{"sgd", nn::OptimiserKind::sgd},
                                                          {"adam", nn::OptimiserKind::adam}};
const std::map<std::string, nn::WeightDecay> decays{{"l2", nn::WeightDecay::l2},
                                                    {"decoupled", nn::WeightDecay::decoupled}};
constexpr double learning_rate_of_adam = nn::AdamOptions{}.learning_rate;

void check_number(const char* option, double value, bool good, const char* expectation) {
  if (!good || !std::isfinite(value)) refuse(option, fmt::format("{}", value), expectation);
}

}  // namespace

void OptimiserArguments::add_options(CLI::App& command) {
  command_ = &command;
  const auto add = [&](const char* name, auto& value, const std::string& text, const char* type) {
    add_option(command, name, value, text, type);
  };
  add("--optimiser", optimiser_, "Update of the parameters: " + listed(optimisers), "NAME");
  add("--learning-rate", learning_rate_,
      fmt::format("Initial learning rate; without this option {} with adam", learning_rate_of_adam), "X");
  add("--schedule", schedule_, "Learning rate over time: " + listed(schedules) + " (to zero at the last step)", "NAME");
  add("--momentum", momentum_, "Momentum of SGD", "X");
  add("--beta1", beta1_, "Decay rate of Adam's first moment", "X");
  add("--beta2", beta2_, "Decay rate of Adam's second moment", "X");
  add("--epsilon", epsilon_, "Summand of Adam's denominator", "X");
  add("--weight-decay", weight_decay_, "Weight decay", "X");
  add("--decay", decay_, "Weight decay of Adam: " + listed(decays) + " (l2: a summand of the gradient)", "NAME");
}

bool OptimiserArguments::given(const char* option) const { return command_->count(option) > 0; }

void OptimiserArguments::check() const {
  check_number("--learning-rate", learning_rate_, learning_rate_ > 0, "a finite number above 0");
  check_number("--momentum", momentum_, momentum_ >= 0 && momentum_ < 1, "a number of at least 0 and below 1");
  for (const auto& [option, value] : {std::pair("--beta1", beta1_), std::pair("--beta2", beta2_)})
    check_number(option, value, value >= 0 && value < 1, "a number of at least 0 and below 1");
  check_number("--epsilon", epsilon_, epsilon_ > 0, "a finite number above 0");
  if (optimisers.count(optimiser_) == 0) refuse("--optimiser", optimiser_, "one of: " + listed(optimisers));
  if (decays.count(decay_) == 0) refuse("--decay", decay_, "one of: " + listed(decays));
  if (optimiser_ == "adam" && given("--momentum"))
    refuse("--momentum", fmt::format("{}", momentum_), "only with --optimiser sgd; adam has --beta1");
  for (const char* option : {"--beta1", "--beta2", "--epsilon", "--decay"})
    if (optimiser_ != "adam" && given(option)) refuse(option, "given", "only with --optimiser adam");
  check_number("--weight-decay", weight_decay_, weight_decay_ >= 0, "a finite number of at least 0");
  if (schedules.count(schedule_) == 0) refuse("--schedule", schedule_, "one of: " + listed(schedules));
}

void OptimiserArguments::add_to(comm::ReplicatedValues& values) const {
  values.add("--optimiser", optimiser_).add("--learning-rate", learning_rate_).add("--schedule", schedule_);
  values.add("--momentum", momentum_).add("--beta1", beta1_).add("--beta2", beta2_).add("--epsilon", epsilon_);
  values.add("--weight-decay", weight_decay_).add("--decay", decay_);
}

nn::Optimiser OptimiserArguments::optimiser() const {
  if (optimisers.at(optimiser_) == nn::OptimiserKind::sgd)
    return nn::SgdOptions{.learning_rate = learning_rate_, .momentum = momentum_, .weight_decay = weight_decay_};
  return nn::AdamOptions{.learning_rate = given("--learning-rate") ? learning_rate_ : learning_rate_of_adam,
                         .beta1 = beta1_,
                         .beta2 = beta2_,
                         .epsilon = epsilon_,
                         .weight_decay = weight_decay_,
                         .decay = decays.at(decay_)};
}

nn::LearningRateSchedule OptimiserArguments::schedule() const { return schedules.at(schedule_); }

}  // namespace aloni::tools

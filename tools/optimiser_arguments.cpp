#include <aloni/tools/model_argument.hpp>
#include <aloni/tools/optimiser_arguments.hpp>
#include <aloni/tools/option.hpp>
#include <aloni/tools/together.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace aloni::tools {

namespace {

const std::vector<std::string> schedules{"constant", "linear", "step", "cosine", "plateau"};
const std::vector<std::string> optimisers{"sgd", "adam", "adamw", "lars", "kfac"};
const std::map<std::string, nn::WeightDecay> decays{{"l2", nn::WeightDecay::l2},
                                                    {"decoupled", nn::WeightDecay::decoupled}};
constexpr double learning_rate_of_adam = nn::AdamOptions{}.learning_rate;
constexpr double learning_rate_of_lars = nn::LarsOptions{}.learning_rate;
constexpr double weight_decay_of_adamw = 0.01;  // as torch.optim.AdamW

bool is_in(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

void check_number(const char* option, double value, bool good, const char* expectation) {
  if (!good || !std::isfinite(value)) refuse(option, fmt::format("{}", value), expectation);
}

}  // namespace

void OptimiserArguments::add_options(CLI::App& command) {
  command_ = &command;
  const auto add = [&](const char* name, auto& value, const std::string& text, const char* type) {
    add_option(command, name, value, text, type);
  };
  add("--optimiser", optimiser_,
      "Update of the parameters: " + listed(optimisers) +
          " (adamw: adam, decoupled decay; kfac: sgd with gradients preconditioned by K-FAC)",
      "NAME");
  add("--learning-rate", learning_rate_,
      fmt::format("Initial learning rate; without this option {} with adam and adamw, {} with lars",
                  learning_rate_of_adam, learning_rate_of_lars),
      "X");
  add("--momentum", momentum_, "Momentum of SGD, LARS and K-FAC", "X");
  kfac_.add_options(command);
  command.add_flag("--nesterov", nesterov_, "Nesterov momentum of SGD");
  add("--beta1", beta1_, "Decay rate of Adam's first moment", "X");
  add("--beta2", beta2_, "Decay rate of Adam's second moment", "X");
  add("--epsilon", epsilon_, "Summand of Adam's denominator", "X");
  add("--trust", trust_, "Trust coefficient of LARS", "X");
  add("--weight-decay", weight_decay_,
      fmt::format("Weight decay; without this option {} with adamw", weight_decay_of_adamw), "X");
  add("--decay", decay_, "Weight decay of adam: " + listed(decays) + " (l2: a summand of the gradient)", "NAME");
  add("--clip", clip_, "Largest norm of all gradients together; 0: not clipped", "X");
  add("--loss-scale", loss_scale_,
      fmt::format("First factor of the loss for gradients in 16 bits; 0: none. Without this option {} with float16",
                  nn::LossScaling{}.initial),
      "X");
  add("--average", average_, "Test with a moving average of the parameters with this decay; 0: with their values", "X");
  add("--label-smoothing", label_smoothing_, "Smoothing of the labels; 0: none", "X");
  add("--schedule", schedule_,
      "Learning rate over time: " + listed(schedules) +
          " (linear: to zero at the last step; plateau: falls when the loss of an epoch no longer does)",
      "NAME");
  add("--step-every", step_every_, "Steps after which the schedule `step` multiplies the rate, again and again", "N");
  command.add_option("--milestones", milestones_, "Steps at which the schedule `step` multiplies the rate: 100,200")
      ->type_name("N,N,...")
      ->take_last();
  add("--factor", factor_, "Factor of the schedules `step` and `plateau`", "X");
  add("--lowest", lowest_, "Least factor of the schedules `cosine` and `plateau`", "X");
  add("--patience", patience_, "Epochs without an improvement that the schedule `plateau` waits for", "N");
  add("--warm-up", warm_up_, "First steps, in which the learning rate rises linearly; 0: none", "N");
  add("--early-stop", early_stop_, "End after N epochs without a smaller loss of the test set; 0: never", "N");
}

bool OptimiserArguments::given(const char* option) const { return command_->count(option) > 0; }

void OptimiserArguments::check() const {
  if (!is_in(optimisers, optimiser_)) refuse("--optimiser", optimiser_, one_of_listed(optimiser_, optimisers));
  if (decays.count(decay_) == 0) refuse("--decay", decay_, one_of_listed(decay_, decays));
  if (!is_in(schedules, schedule_)) refuse("--schedule", schedule_, one_of_listed(schedule_, schedules));
  check_number("--learning-rate", learning_rate_, learning_rate_ > 0, "a finite number above 0");
  check_number("--momentum", momentum_, momentum_ >= 0 && momentum_ < 1, "a number of at least 0 and below 1");
  for (const auto& [option, value] : {std::pair("--beta1", beta1_), std::pair("--beta2", beta2_)})
    check_number(option, value, value >= 0 && value < 1, "a number of at least 0 and below 1");
  check_number("--epsilon", epsilon_, epsilon_ > 0, "a finite number above 0");
  check_number("--trust", trust_, trust_ > 0, "a finite number above 0");
  check_number("--weight-decay", weight_decay_, weight_decay_ >= 0, "a finite number of at least 0");
  check_number("--clip", clip_, clip_ >= 0, "a finite number of at least 0");
  check_number("--loss-scale", loss_scale_, loss_scale_ >= 0 && loss_scale_ <= 0x1p127,
               "a number from 0 to 2^127; 65536 is usual");
  check_number("--average", average_, average_ >= 0 && average_ < 1, "a number of at least 0 and below 1");
  check_number("--label-smoothing", label_smoothing_, label_smoothing_ >= 0 && label_smoothing_ < 1,
               "a number of at least 0 and below 1");
  check_optimiser();
  check_schedule();
}

void OptimiserArguments::check_optimiser() const {
  kfac_.check(uses_kfac());
  const bool is_adam = optimiser_ == "adam" || optimiser_ == "adamw";
  if (is_adam && given("--momentum"))
    refuse("--momentum", fmt::format("{}", momentum_), "only with --optimiser sgd, lars or kfac; adam has --beta1");
  for (const char* option : {"--beta1", "--beta2", "--epsilon"})
    if (!is_adam && given(option)) refuse(option, "given", "only with --optimiser adam or adamw");
  if (optimiser_ == "adamw" && given("--decay"))
    refuse("--decay", decay_, "only with --optimiser adam; adamw is decoupled");
  if (optimiser_ != "adam" && given("--decay")) refuse("--decay", decay_, "only with --optimiser adam");
  if (optimiser_ != "lars" && given("--trust")) refuse("--trust", "given", "only with --optimiser lars");
  if (nesterov_ && optimiser_ != "sgd" && !uses_kfac())
    refuse("--nesterov", "given", "only with --optimiser sgd or kfac");
  if (nesterov_ && momentum_ == 0) refuse("--nesterov", "given", "a --momentum above 0");
}

void OptimiserArguments::check_schedule() const {
  for (const char* option : {"--step-every", "--milestones"})
    if (schedule_ != "step" && given(option)) refuse(option, "given", "only with --schedule step");
  if (schedule_ != "step" && schedule_ != "plateau" && given("--factor"))
    refuse("--factor", "given", "only with --schedule step or plateau");
  if (schedule_ != "cosine" && schedule_ != "plateau" && given("--lowest"))
    refuse("--lowest", "given", "only with --schedule cosine or plateau");
  if (schedule_ != "plateau" && given("--patience")) refuse("--patience", "given", "only with --schedule plateau");
  if (schedule_ == "step" && given("--step-every") == given("--milestones"))
    refuse("--schedule", "step", "either --step-every or --milestones");
  if (given("--step-every")) check_range("--step-every", step_every_, 1, most_of_an_option);
  if (given("--milestones") && milestones().empty()) refuse("--milestones", "\"\"", "numbers of steps");
  check_number("--factor", factor_, factor_ > 0 && factor_ < 1, "a number above 0 and below 1");
  check_number("--lowest", lowest_, lowest_ >= 0 && lowest_ <= 1, "a number from 0 to 1");
  constexpr std::int64_t most_epochs = 1000000;
  check_range("--patience", patience_, 0, most_epochs);
  check_range("--early-stop", early_stop_, 0, most_epochs);
  check_range("--warm-up", warm_up_, 0, most_of_an_option);
}

std::vector<std::int64_t> OptimiserArguments::milestones() const {
  std::vector<std::int64_t> steps;
  for (std::size_t from = 0; !milestones_.empty() && from <= milestones_.size();) {
    const std::size_t end = std::min(milestones_.find(',', from), milestones_.size());
    std::int64_t step = 0;
    const char *const first = milestones_.data() + from, *const last = milestones_.data() + end;
    const auto [stop, error] = std::from_chars(first, last, step);
    if (error != std::errc() || stop != last || step <= (steps.empty() ? 0 : steps.back()))
      refuse("--milestones", milestones_, "ascending numbers of steps, from 1, with commas between them");
    steps.push_back(step);
    from = end + 1;
  }
  return steps;
}

void OptimiserArguments::add_to(comm::ReplicatedValues& values) const {
  values.add("--optimiser", optimiser_).add("--learning-rate", learning_rate_).add("--schedule", schedule_);
  values.add("--momentum", momentum_).add("--beta1", beta1_).add("--beta2", beta2_).add("--epsilon", epsilon_);
  values.add("--weight-decay", weight_decay_).add("--decay", decay_).add("--nesterov", nesterov_);
  values.add("--trust", trust_)
      .add("--clip", clip_)
      .add("--loss-scale", loss_scale_)
      .add("--label-smoothing", label_smoothing_)
      .add("--average", average_);
  kfac_.add_to(values);
  values.add("--step-every", step_every_).add("--milestones", milestones_);
  values.add("--factor", factor_).add("--lowest", lowest_).add("--patience", patience_);
  values.add("--warm-up", warm_up_).add("--early-stop", early_stop_);
}

nn::Optimiser OptimiserArguments::optimiser() const {
  const auto rate = [&](double of_optimiser) { return given("--learning-rate") ? learning_rate_ : of_optimiser; };
  if (optimiser_ == "sgd" || uses_kfac())
    return nn::SgdOptions{
        .learning_rate = learning_rate_, .momentum = momentum_, .weight_decay = weight_decay_, .nesterov = nesterov_};
  if (optimiser_ == "lars")
    return nn::LarsOptions{.learning_rate = rate(learning_rate_of_lars),
                           .momentum = momentum_,
                           .weight_decay = weight_decay_,
                           .trust = trust_};
  const bool is_adamw = optimiser_ == "adamw";
  return nn::AdamOptions{.learning_rate = rate(learning_rate_of_adam),
                         .beta1 = beta1_,
                         .beta2 = beta2_,
                         .epsilon = epsilon_,
                         .weight_decay = is_adamw && !given("--weight-decay") ? weight_decay_of_adamw : weight_decay_,
                         .decay = is_adamw ? nn::WeightDecay::decoupled : decays.at(decay_)};
}

std::optional<nn::KfacOptions> OptimiserArguments::kfac() const {
  return uses_kfac() ? std::optional(kfac_.options()) : std::nullopt;
}

nn::UpdateOptions OptimiserArguments::update(nn::ElementType activations) const {
  nn::UpdateOptions options;
  if (clip_ > 0) options.max_norm = clip_;
  if (loss_scale_ > 0) options.loss_scaling = nn::LossScaling{.initial = loss_scale_};
  if (!given("--loss-scale") && activations == nn::ElementType::float16) options.loss_scaling = nn::LossScaling{};
  return options;
}

nn::LearningRate OptimiserArguments::schedule() const {
  nn::LearningRate rate{.warm_up = warm_up_};
  if (schedule_ == "linear") rate.schedule = nn::LinearSchedule{};
  if (schedule_ == "step")
    rate.schedule = nn::StepSchedule{.every = step_every_, .milestones = milestones(), .factor = factor_};
  if (schedule_ == "cosine") rate.schedule = nn::CosineSchedule{.lowest = lowest_};
  if (schedule_ == "plateau")
    rate.schedule = nn::PlateauSchedule{.factor = factor_, .patience = static_cast<int>(patience_), .lowest = lowest_};
  return rate;
}

std::optional<nn::Averaging> OptimiserArguments::average() const {
  return average_ > 0 ? std::optional<nn::Averaging>({.decay = average_}) : std::nullopt;
}

nn::EarlyStop OptimiserArguments::early_stop() const { return {.patience = static_cast<int>(early_stop_)}; }

}  // namespace aloni::tools

#include <aloni/core/config.hpp>
#include <aloni/tools/factor_solver.hpp>
#include <aloni/tools/kfac_arguments.hpp>
#include <aloni/tools/model_argument.hpp>
#include <aloni/tools/option.hpp>
#include <aloni/tools/together.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace aloni::tools {

namespace {

const std::vector<std::string> factor_solvers{"tasks", "serial"};

void check_kfac_number(const char* option, double value, bool good, const char* expectation) {
  if (!good || !std::isfinite(value)) refuse(option, fmt::format("{}", value), expectation);
}

}  // namespace

void KfacArguments::add_options(CLI::App& command) {
  command_ = &command;
  solver_ = config::has_lapack ? "tasks" : "serial";
  const auto add = [&](const char* name, auto& value, const std::string& text, const char* type) {
    add_option(command, name, value, text, type);
  };
  add("--kfac-every", every_, "Steps between two inversions of the factors of K-FAC", "N");
  add("--kfac-factors-every", factors_every_, "Steps between two mini-batches that enter the factors", "N");
  add("--kfac-delay", delay_,
      "Steps from the start of an inversion to its first use; without this option half of --kfac-every, or 0 with the "
      "solver serial",
      "N");
  add("--kfac-damping", damping_, "Damping of the factors", "X");
  add("--kfac-decay", decay_, "Decay of the running averages of the factors", "X");
  add("--kfac-clip", clip_, "Largest change of the predictions by an update, as a KL divergence; 0: not limited", "X");
  add("--kfac-solver", solver_,
      "Inversion of the factors: " + listed(factor_solvers) + " (tasks: on a thread beside the training)", "NAME");
}

bool KfacArguments::given(const char* option) const { return command_->count(option) > 0; }

std::int64_t KfacArguments::delay() const {
  return given("--kfac-delay") ? delay_ : solver_ == "tasks" ? every_ / 2 : 0;
}

void KfacArguments::check(bool chosen) const {
  for (const char* option : {"--kfac-every", "--kfac-factors-every", "--kfac-delay", "--kfac-damping", "--kfac-decay",
                             "--kfac-clip", "--kfac-solver"})
    if (!chosen && given(option)) refuse(option, "given", "only with --optimiser kfac");
  if (!chosen) return;
  check_range("--kfac-every", every_, 1, most_of_an_option);
  check_range("--kfac-factors-every", factors_every_, 1, most_of_an_option);
  if (given("--kfac-delay")) check_range("--kfac-delay", delay_, 0, every_ - 1);
  check_kfac_number("--kfac-damping", damping_, damping_ > 0, "a finite number above 0");
  check_kfac_number("--kfac-decay", decay_, decay_ >= 0 && decay_ < 1, "a number of at least 0 and below 1");
  check_kfac_number("--kfac-clip", clip_, clip_ >= 0, "a finite number of at least 0");
  if (std::ranges::find(factor_solvers, solver_) == factor_solvers.end())
    refuse("--kfac-solver", solver_, one_of_listed(solver_, factor_solvers));
  if (solver_ == "tasks" && !config::has_lapack)
    refuse("--kfac-solver", solver_, "serial; this build has no LAPACK (aloni_ENABLE_LAPACK)");
}

void KfacArguments::add_to(comm::ReplicatedValues& values) const {
  values.add("--kfac-every", every_).add("--kfac-factors-every", factors_every_).add("--kfac-delay", delay());
  values.add("--kfac-damping", damping_).add("--kfac-decay", decay_).add("--kfac-clip", clip_);
  values.add("--kfac-solver", solver_);
}

nn::KfacOptions KfacArguments::options() const {
  return {.every = every_,
          .factors_every = factors_every_,
          .delay = delay(),
          .damping = damping_,
          .decay = decay_,
          .kl_clip = clip_,
          .solver = solver_ == "tasks" ? task_factor_solver(1) : nn::serial_factor_solver()};
}

std::string KfacArguments::describe() const {
  return fmt::format("factors inverted every {} steps by {}, used after {} steps", every_, solver_, delay());
}

}  // namespace aloni::tools

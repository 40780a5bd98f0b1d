#include <aloni/core/comm/agreement.hpp>
#include <aloni/core/nearest_name.hpp>
#include <aloni/core/printable.hpp>
#include <aloni/core/version.hpp>
#include <aloni/tools/calibrate_command.hpp>
#include <aloni/tools/command_line.hpp>
#include <aloni/tools/evaluate_command.hpp>
#include <aloni/tools/info_command.hpp>
#include <aloni/tools/plan_command.hpp>
#include <aloni/tools/predict_command.hpp>
#include <aloni/tools/run_configuration.hpp>
#include <aloni/tools/simulate_command.hpp>
#include <aloni/tools/simulate_factorisation_command.hpp>
#include <aloni/tools/together.hpp>
#include <aloni/tools/train_command.hpp>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <sstream>
#include <string_view>
#include <system_error>

namespace aloni::tools {

namespace {

constexpr auto default_limit = std::chrono::duration_cast<std::chrono::seconds>(comm::TransportOptions{}.stuck_after);

constexpr std::string_view stuck_after_name = "--stuck-after", ranks_per_node_name = "--ranks-per-node";
constexpr std::int64_t longest_limit = 365 * 24 * 3600, most_ranks_per_node = 1 << 20;

/// The last value of an option that is an integer from 0 to `most`.
std::optional<std::int64_t> early_value(const std::vector<std::string>& arguments, std::string_view name,
                                        std::int64_t most) {
  std::optional<std::int64_t> found;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    std::string_view text;
    if (arguments[i].starts_with(std::string(name) + "="))
      text = std::string_view(arguments[i]).substr(name.size() + 1);
    if (arguments[i] == name && i + 1 < arguments.size()) text = arguments[i + 1];
    std::int64_t value = 0;
    const char* const end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, value);
    if (!text.empty() && error == std::errc() && rest == end && value >= 0 && value <= most) found = value;
  }
  return found;
}

class CommandLine {
 public:
  CommandLine() {
    app_.set_version_flag("--version",
                          std::string("aloni ") + std::string(version()) + " (" + std::string(git_hash()) + ")");
    app_.require_subcommand(1);
    app_.get_formatter()->column_width(28);
    app_.add_option(
            std::string(stuck_after_name), stuck_after_,
            "Longest wait for a rank that computes; a rank that sleeps or is stopped has at most 30 s; 0: no limit")
        ->type_name("SECONDS")
        ->check(CLI::Range(std::int64_t{0}, longest_limit))
        ->capture_default_str();
    app_.add_option(std::string(ranks_per_node_name), ranks_per_node_,
                    "Each N ranks count as a node of their own, to try several nodes on one machine; 0: real nodes")
        ->type_name("N")
        ->check(CLI::Range(std::int64_t{0}, most_ranks_per_node))
        ->capture_default_str();
    const std::string exit_codes =
        "Exit codes: 0 success, 1 failure, 2 wrong usage, 3 stopped by a signal, with a whole checkpoint.";
    for (CLI::App* const subcommand : app_.get_subcommands({})) {
      subcommand->fallthrough();
      subcommand->footer(exit_codes);
    }
    app_.footer("Flags of Kokkos may stand anywhere; --kokkos-help lists them.\n" + exit_codes);
  }

  /// The text to print instead of running a subcommand; empty if a subcommand is to run.
  /// `kokkos_error`: error of split_kokkos_flags(). Throws UsageError.
  std::string parse(const std::vector<std::string>& given, const std::string& kokkos_error, int ranks) {
    if (!kokkos_error.empty()) throw UsageError(printable(kokkos_error));
    const std::vector<std::string> arguments = with_configuration(given, ranks);
    std::vector<const char*> argv;
    for (const auto& a : arguments) argv.push_back(a.c_str());
    try {
      app_.parse(static_cast<int>(argv.size()), argv.data());
    } catch (const CLI::Success& wish) {
      std::ostringstream out, err;
      app_.exit(wish, out, err);
      return out.str();
    } catch (const CLI::RequiredError& e) {
      throw UsageError(printable(missing(arguments, e.what())) + hint);
    } catch (const CLI::ExtrasError& e) {
      throw UsageError(printable(e.what() + option_meant(arguments)) + hint);
    } catch (const CLI::ParseError& e) {
      throw UsageError(printable(e.what()) + hint);
    }
    if (train_.chosen()) train_.check();
    if (evaluate_.chosen()) evaluate_.check();
    if (predict_.chosen()) predict_.check();
    if (info_.chosen()) info_.check();
    if (calibrate_.chosen()) calibrate_.check();
    if (plan_.chosen()) plan_.check();
    if (simulate_.chosen()) simulate_.check();
    if (simulate_factorisation_.chosen()) simulate_factorisation_.check();
    return "";
  }

  /// The subcommand, or "text" instead of one, and the options that all ranks must pass alike.
  comm::ReplicatedValues replicated() const {
    comm::ReplicatedValues values;
    const auto chosen = app_.get_subcommands();
    values.add(std::string(stuck_after_name), std::to_string(stuck_after_));
    values.add(std::string(ranks_per_node_name), std::to_string(ranks_per_node_));
    values.add("subcommand", chosen.empty() ? "none" : chosen.front()->get_name());
    if (train_.chosen()) train_.add_to(values);
    if (evaluate_.chosen()) evaluate_.add_to(values);
    if (predict_.chosen()) predict_.add_to(values);
    if (info_.chosen()) info_.add_to(values);
    if (calibrate_.chosen()) calibrate_.add_to(values);
    if (plan_.chosen()) plan_.add_to(values);
    if (simulate_.chosen()) simulate_.add_to(values);
    if (simulate_factorisation_.chosen()) simulate_factorisation_.add_to(values);
    return values;
  }

  /// Whether a subcommand is to run that needs a communicator, or Kokkos. @pre parse() has returned
  bool needs_ranks() const { return !plan_.chosen() && !simulate_.chosen() && !simulate_factorisation_.chosen(); }

  /// @pre !needs_ranks()
  void run_alone() const {
    if (plan_.chosen()) plan_.run();
    if (simulate_.chosen()) simulate_.run();
    if (simulate_factorisation_.chosen()) simulate_factorisation_.run();
  }

  void run(const comm::Communicator& comm) const {
    const std::chrono::seconds limit(stuck_after_);
    comm.set_stuck_after(std::min(limit, default_limit));
    comm.set_longest_wait(limit);
    if (train_.chosen()) train_.run(comm);
    if (evaluate_.chosen()) evaluate_.run(comm);
    if (predict_.chosen()) predict_.run(comm);
    if (info_.chosen()) info_.run(comm);
    if (calibrate_.chosen()) calibrate_.run(comm);
    if (needs_ranks()) return;
    comm::collectively(comm, "aloni " + app_.get_subcommands().front()->get_name(), [&] {
      if (comm.rank() == 0) run_alone();
    });
  }

 private:
  static inline const std::string hint = " (--help lists subcommands and options)";

  // For an unknown subcommand the parser only says that a subcommand is missing.
  std::string missing(const std::vector<std::string>& arguments, const std::string& otherwise) const {
    if (!app_.get_subcommands().empty() || arguments.size() < 2 || arguments[1].rfind("-", 0) == 0) return otherwise;
    std::vector<std::string> names;
    for (const CLI::App* const subcommand : app_.get_subcommands({})) names.push_back(subcommand->get_name());
    return '"' + arguments[1] + "\" is not a subcommand" + did_you_mean(arguments[1], names);
  }

  /// The option with the nearest name to the first argument that is none: "; did you mean --batch?"
  std::string option_meant(const std::vector<std::string>& arguments) const {
    std::vector<std::string> names;
    std::vector<const CLI::App*> apps{&app_};
    for (const CLI::App* const subcommand : app_.get_subcommands()) apps.push_back(subcommand);
    for (const CLI::App* const app : apps)
      for (const CLI::Option* const option : app->get_options()) names.push_back(option->get_name());
    for (const std::string& argument : arguments) {
      const std::string name = argument.substr(0, argument.find('='));
      if (!name.starts_with("--") || std::ranges::find(names, name) != names.end()) continue;
      return did_you_mean(name, names);
    }
    return "";
  }

  std::int64_t stuck_after_ =
      std::chrono::duration_cast<std::chrono::seconds>(comm::TransportOptions{}.longest_wait).count();
  std::int64_t ranks_per_node_ = 0;
  CLI::App app_{"Trains convolutional networks whose samples are split over MPI ranks", "aloni"};
  TrainCommand train_{app_};
  EvaluateCommand evaluate_{app_};
  PredictCommand predict_{app_};
  InfoCommand info_{app_};
  CalibrateCommand calibrate_{app_};
  PlanCommand plan_{app_};
  SimulateCommand simulate_{app_};
  SimulateFactorisationCommand simulate_factorisation_{app_};
};

void print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

}  // namespace

bool run_without_ranks(const std::vector<std::string>& arguments, const std::string& kokkos_error) {
  CommandLine command_line;
  const std::string text = command_line.parse(arguments, kokkos_error, 1);
  if (text.empty() && command_line.needs_ranks()) return false;
  if (text.empty()) {
    command_line.run_alone();
  } else {
    print(text);
  }
  return true;
}

void run_command_line(const comm::Communicator& comm, const std::vector<std::string>& arguments,
                      const std::string& kokkos_error) {
  CommandLine command_line;
  const std::string text = comm::collectively(comm, "command line",
                                              [&] { return command_line.parse(arguments, kokkos_error, comm.size()); });
  comm::ReplicatedValues values = command_line.replicated();
  values.add("text to print", text);
  comm::check_equal(comm, "command line", values);
  if (text.empty()) {
    command_line.run(comm);
  } else if (comm.rank() == 0) {
    print(text);
  }
}

comm::TransportOptions early_options(const std::vector<std::string>& arguments) {
  comm::TransportOptions options;
  if (const auto limit = early_value(arguments, stuck_after_name, longest_limit))
    options.stuck_after = std::min(std::chrono::seconds(*limit), default_limit);
  if (const auto ranks = early_value(arguments, ranks_per_node_name, most_ranks_per_node))
    options.ranks_per_node = static_cast<int>(*ranks);
  return options;
}

}  // namespace aloni::tools

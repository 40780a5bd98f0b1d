#include <aloni/core/version.hpp>
#include <aloni/tools/calibrate_command.hpp>
#include <aloni/tools/command_line.hpp>
#include <aloni/tools/info_command.hpp>
#include <aloni/tools/together.hpp>
#include <aloni/tools/train_command.hpp>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include <cstdio>
#include <sstream>

namespace aloni::tools {

namespace {

class CommandLine {
 public:
  CommandLine() {
    app_.set_version_flag("--version",
                          std::string("aloni ") + std::string(version()) + " (" + std::string(git_hash()) + ")");
    app_.require_subcommand(1);
    app_.get_formatter()->column_width(28);
    app_.footer(
        "Flags of Kokkos may stand anywhere; --kokkos-help lists them.\n"
        "Exit codes: 0 success, 1 failure, 2 wrong usage.");
  }

  /// The text to print instead of running a subcommand; empty if a subcommand is to run.
  std::string parse(const std::vector<std::string>& arguments) {
    std::vector<const char*> argv;
    for (const auto& a : arguments) argv.push_back(a.c_str());
    try {
      app_.parse(static_cast<int>(argv.size()), argv.data());
    } catch (const CLI::Success& wish) {
      std::ostringstream out, err;
      app_.exit(wish, out, err);
      return out.str();
    } catch (const CLI::RequiredError& e) {
      throw UsageError(missing(arguments, e.what()) + hint);
    } catch (const CLI::ParseError& e) {
      throw UsageError(e.what() + hint);
    }
    if (train_.chosen()) train_.check();
    if (info_.chosen()) info_.check();
    if (calibrate_.chosen()) calibrate_.check();
    return "";
  }

  void run(const comm::Communicator& comm) const {
    if (train_.chosen()) train_.run(comm);
    if (info_.chosen()) info_.run(comm);
    if (calibrate_.chosen()) calibrate_.run(comm);
  }

 private:
  static inline const std::string hint = " (--help lists subcommands and options)";

  // For an unknown subcommand the parser only says that a subcommand is missing.
  std::string missing(const std::vector<std::string>& arguments, const std::string& otherwise) const {
    if (!app_.get_subcommands().empty() || arguments.size() < 2 || arguments[1].rfind("-", 0) == 0) return otherwise;
    return '"' + arguments[1] + "\" is not a subcommand";
  }

  CLI::App app_{"Trains convolutional networks whose samples are split over MPI ranks", "aloni"};
  TrainCommand train_{app_};
  InfoCommand info_{app_};
  CalibrateCommand calibrate_{app_};
};

}  // namespace

void run_command_line(const comm::Communicator& comm, const std::vector<std::string>& arguments,
                      const std::string& kokkos_error) {
  CommandLine command_line;
  const std::string text = comm::collectively(comm, "command line", [&] {
    if (!kokkos_error.empty()) throw UsageError(kokkos_error);
    return command_line.parse(arguments);
  });
  if (text.empty()) {
    command_line.run(comm);
  } else if (comm.rank() == 0) {
    std::fputs(text.c_str(), stdout);
    std::fflush(stdout);
  }
}

}  // namespace aloni::tools

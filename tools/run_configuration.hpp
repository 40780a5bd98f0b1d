#pragma once
// The options of a run as a JSON file, from which the same run can be started again.
//
//   aloni train --run r1 --model lenet5 --data mnist     # writes r1/config.json
//   aloni train --config r1/config.json --epochs 20      # the same run, with another number of epochs
//
// {"aloni_run": 1, "version": …, "ranks": 2,
//  "options": {"--model": "lenet5", "--batch": 64, "--flip": true, …},      given
//  "chosen": {"--strategy": "./strategy"},                                  by the command, for as many ranks
//  "defaults": {"--seed": 1, …}}                                            of the other options, for people
// The launcher decides the number of ranks. With another number "chosen" does not count. A value that begins with "./"
// is relative to the folder of the file.
#include <string>
#include <utility>
#include <vector>

namespace CLI {
class App;
}

namespace aloni::tools {

struct RunConfiguration {
  using Options = std::vector<std::pair<std::string, std::string>>;

  Options options = {};   ///< given
  Options chosen = {};    ///< by the command itself
  Options defaults = {};  ///< of options that are not given
  int ranks = 1;
};

/// The given options of a subcommand with their values, in the order of the help text, without those in `left_out`. A
/// flag has the value "true". Defaults are not among them: some options exclude others only if they are given.
RunConfiguration::Options options_of(const CLI::App& command, const std::vector<std::string>& left_out);
/// The defaults of the options with a value that are not given, without those in `left_out` and without empty ones.
RunConfiguration::Options defaults_of(const CLI::App& command, const std::vector<std::string>& left_out);

/// The text of a configuration file.
std::string configuration_text(const RunConfiguration& configuration);

/// The arguments with the options of the last --config FILE inserted after the subcommand, so that all options of the
/// command line replace them. `ranks`: of this start. Without --config: the arguments. Reads the file; not collective.
/// Throws FileError for a missing or broken file.
std::vector<std::string> with_configuration(const std::vector<std::string>& arguments, int ranks);

}  // namespace aloni::tools

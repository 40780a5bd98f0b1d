#pragma once
// The options of a run as a JSON file, from which the same run can be started again.
//
//   aloni train --run r1 --model lenet5 --data mnist     # writes r1/config.json
//   aloni train --config r1/config.json --epochs 20      # the same run, with another number of epochs
//
// {"aloni_run": 1, "version": …, "ranks": …, "options": {"--model": "lenet5", "--batch": 64, "--flip": true, …}}
// "ranks" is for people: the launcher decides. A value that begins with "./" is relative to the folder of the file.
#include <string>
#include <utility>
#include <vector>

namespace CLI {
class App;
}

namespace aloni::tools {

/// The given options of a subcommand with their values, in the order of the help text, without those in `left_out`. A
/// flag has the value "true". Defaults are not among them: some options exclude others only if they are given.
std::vector<std::pair<std::string, std::string>> options_of(const CLI::App& command,
                                                            const std::vector<std::string>& left_out);

/// The text of a configuration file.
std::string configuration_text(const std::vector<std::pair<std::string, std::string>>& options, int ranks);

/// The arguments with the options of the last --config FILE inserted after the subcommand, so that all options of the
/// command line replace them. Without --config: the arguments. Reads the file; not collective. Throws FileError for a
/// missing or broken file.
std::vector<std::string> with_configuration(const std::vector<std::string>& arguments);

}  // namespace aloni::tools

#include <aloni/core/error.hpp>
#include <aloni/core/nearest_file.hpp>
#include <aloni/core/printable.hpp>
#include <aloni/tools/option.hpp>
#include <aloni/tools/strategy_argument.hpp>
#include <aloni/tools/together.hpp>

#include <filesystem>

namespace aloni::tools {

namespace {

// Writes each rule on its original line, so that later errors name the lines of the file.
std::string numbered_text(const nn::Strategy& strategy) {
  std::string text;
  int line = 1;
  for (const auto& rule : strategy.rules) {
    for (; line < rule.line; ++line) text += '\n';
    text += rule.pattern + " " + to_string(rule.split) + " " + std::string(name(rule.split.overlap)) + "\n";
    ++line;
  }
  return text;
}

}  // namespace

void add_strategy_option(CLI::App& command, std::string& strategy) {
  add_option(command, "--strategy", strategy,
             "Grid for all layers (n2, h2, h2w2, c2, f2, ...), or a strategy file; default: samples over all ranks",
             "FILE|GRID");
}

void check_strategy_option(const CLI::App& command, const std::string& strategy) {
  if (command.count("--strategy") > 0 && strategy.empty())
    refuse("--strategy", "\"\"", "a grid or the path of a strategy file");
}

nn::Strategy read_strategy_argument(const std::string& argument, int ranks) {
  if (argument.empty()) {
    views::ProcessGrid grid;
    grid[views::Dim::sample] = ranks;
    return nn::Strategy::uniform(grid);
  }
  std::error_code error;
  if (std::filesystem::exists(argument, error)) return nn::Strategy::read(argument);
  try {
    return nn::Strategy::uniform(nn::LayerSplit::parse(argument));
  } catch (const InvalidArgument& e) {
    throw UsageError("--strategy = " + printable(argument) + ": expected an existing strategy file, or a grid: " +
                     e.expectation() + did_you_mean_file(argument));
  }
}

nn::Strategy strategy_from_argument(const comm::Communicator& comm, const std::string& argument) {
  if (argument.empty()) return read_strategy_argument(argument, comm.size());
  nn::Strategy strategy = comm::collectively(comm, "aloni --strategy", [&] {
    return comm.rank() == 0 ? read_strategy_argument(argument, comm.size()) : nn::Strategy();
  });
  std::string text = numbered_text(strategy), source = strategy.source;
  std::int64_t from_file = comm.rank() == 0 && strategy.rules.front().line > 0 ? 1 : 0;
  comm.broadcast(text, 0);
  comm.broadcast(source, 0);
  from_file = comm.all_reduce(from_file, comm::Reduction::max);
  strategy = nn::Strategy::parse(text, source);
  if (from_file == 0) {
    for (auto& rule : strategy.rules) rule.line = 0;
  }
  return strategy;
}

}  // namespace aloni::tools

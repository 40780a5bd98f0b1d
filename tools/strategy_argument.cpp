#include <aloni/core/comm/agreement.hpp>
#include <aloni/core/error.hpp>
#include <aloni/core/nearest_file.hpp>
#include <aloni/core/nearest_name.hpp>
#include <aloni/core/printable.hpp>
#include <aloni/tools/option.hpp>
#include <aloni/tools/strategy_argument.hpp>
#include <aloni/tools/together.hpp>

#include <algorithm>
#include <array>
#include <filesystem>
#include <vector>

namespace aloni::tools {

namespace {

/// Of views::all_dims; f, the letter of filters, comes after them.
constexpr std::array dimension_letters{"n", "d", "h", "w", "c"};
constexpr const char* filters_letter = "f";

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

bool names_a_file(const std::string& argument) {
  std::error_code error;
  return std::filesystem::exists(argument, error);
}

nn::LayerSplit split_of_argument(const std::string& argument) {
  try {
    return nn::LayerSplit::parse(argument);
  } catch (const InvalidArgument& e) {
    throw UsageError("--strategy = " + printable(argument) + ": expected an existing strategy file, or a grid: " +
                     e.expectation() + did_you_mean_file(argument));
  }
}

}  // namespace

nn::LayerSplit completed(nn::LayerSplit split, const std::string& letter, int ranks) {
  const int size = split.size();
  if (ranks % size != 0) return split;
  const auto found = std::ranges::find(dimension_letters, letter);
  int& blocks = found == dimension_letters.end()
                    ? split.filters
                    : split.grid[views::all_dims[static_cast<std::size_t>(found - dimension_letters.begin())]];
  blocks *= ranks / size;
  return split;
}

void StrategyArgument::add_options(CLI::App& command, const std::string& others) {
  command_ = &command;
  add_option(
      command, "--strategy", strategy_,
      "Grid for all layers (n2, h2, h2w2, c2, f2, ...), or a strategy file" + others + "; default: " + otherwise_,
      "FILE|GRID");
  command
      .add_option("--complete", complete_,
                  "Dimension of the grid (n, d, h, w, c, f) that gets as many blocks as all ranks need: h4w2 "
                  "--complete n is n128h4w2 on 1024 ranks")
      ->type_name("LETTER")
      ->take_last();
}

void StrategyArgument::check() const {
  if (command_->count("--strategy") > 0 && strategy_.empty())
    refuse("--strategy", "\"\"", "a grid or the path of a strategy file");
  if (command_->count("--complete") == 0) return;
  std::vector<std::string> letters(dimension_letters.begin(), dimension_letters.end());
  letters.emplace_back(filters_letter);
  if (std::ranges::find(letters, complete_) == letters.end())
    refuse("--complete", complete_.empty() ? "\"\"" : complete_, one_of(complete_, letters));
  if (strategy_.empty()) refuse("--complete", complete_, "only together with a grid, --strategy GRID");
}

void StrategyArgument::check_automatic() const {
  for (const char* option : {"--complete", "--recompute", "--offload"})
    if (command_->count(option) > 0) refuse(option, "given", "no such option beside --strategy auto");
}

void StrategyArgument::add_to(comm::ReplicatedValues& values) const {
  values.add("--strategy", strategy_.empty() ? "not given" : strategy_);
  values.add("--complete", complete_.empty() ? "not given" : complete_);
}

nn::Strategy StrategyArgument::read(int ranks) const {
  if (strategy_.empty()) {
    views::ProcessGrid grid;
    grid[views::Dim::sample] = ranks;
    return nn::Strategy::uniform(grid);
  }
  if (names_a_file(strategy_)) {
    if (!complete_.empty()) refuse("--complete", complete_, "only for a grid; " + strategy_ + " is a strategy file");
    return nn::Strategy::read(strategy_);
  }
  const nn::LayerSplit split = split_of_argument(strategy_);
  if (!complete_.empty()) return nn::Strategy::uniform(completed(split, complete_, ranks));
  const int size = split.size();
  if (fewer_ == FewerBlocks::refused && size < ranks && ranks % size == 0) {
    refuse("--strategy", strategy_,
           "a grid of " + std::to_string(ranks) + " blocks, one for each rank; with --complete n it is " +
               to_string(completed(split, dimension_letters[0], ranks)));
  }
  return nn::Strategy::uniform(split);
}

nn::Strategy StrategyArgument::read(const comm::Communicator& comm) const {
  if (strategy_.empty()) return read(comm.size());
  nn::Strategy strategy = comm::collectively(comm, "aloni --strategy",
                                             [&] { return comm.rank() == 0 ? read(comm.size()) : nn::Strategy(); });
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

#include <aloni/tools/strategy_argument.hpp>

#include "command_fault.hpp"

#include <support/temporary_folder.hpp>

#include <gmock/gmock.h>

#include <fstream>
#include <tuple>

namespace aloni::tools {
namespace test_strategy_argument {

using testing::AllOf;
using testing::HasSubstr;

/// A subcommand with these options alone.
class StrategyCommand {
 public:
  StrategyCommand(CLI::App& app, FewerBlocks fewer) : command_(app.add_subcommand("split")), strategy_(fewer) {
    strategy_.add_options(*command_);
  }
  explicit StrategyCommand(CLI::App& app) : StrategyCommand(app, FewerBlocks::refused) {}
  bool chosen() const { return command_->parsed(); }
  void check() const { strategy_.check(); }
  const StrategyArgument& strategy() const { return strategy_; }

 private:
  CLI::App* command_;
  StrategyArgument strategy_;
};

std::string fault(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "split");
  return test::fault_of<StrategyCommand>(arguments);
}

/// The name of the strategy, or the error.
std::string read(std::vector<std::string> arguments, int ranks, FewerBlocks fewer = FewerBlocks::refused) {
  CLI::App app;
  const StrategyCommand command(app, fewer);
  arguments.insert(arguments.begin(), "split");
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
  app.parse(reversed);
  try {
    return command.strategy().read(ranks).source;
  } catch (const UsageError& e) {
    return e.what();
  }
}

TEST(StrategyArgument, SplitsSamplesByDefault) {
  EXPECT_EQ(read({}, 6), "n6");
  EXPECT_EQ(read({"--strategy", "h2w3"}, 6), "h2w3");
}

TEST(StrategyArgument, CompletesAGridInTheDimensionOfTheLetter) {
  for (const auto& [grid, letter, ranks, expected] :
       {std::tuple("h4w2", "n", 1024, "n128h4w2"), std::tuple("h4", "h", 16, "h16"), std::tuple("n2", "w", 6, "n2w3"),
        std::tuple("1", "d", 3, "d3"), std::tuple("h2", "c", 4, "h2c2"), std::tuple("h2", "f", 4, "h2f2"),
        std::tuple("f2", "f", 8, "f8"), std::tuple("n4", "n", 4, "n4")})
    EXPECT_EQ(read({"--strategy", grid, "--complete", letter}, ranks), expected);
}

TEST(StrategyArgument, RefusesAGridThatOnlyDividesTheRanksAndNamesTheWayOut) {
  EXPECT_THAT(read({"--strategy", "h4w2"}, 1024), AllOf(HasSubstr("--strategy = h4w2"), HasSubstr("1024"),
                                                        HasSubstr("--complete n"), HasSubstr("n128h4w2")));
  EXPECT_THAT(read({"--strategy", "1"}, 2), HasSubstr("n2"));
  EXPECT_EQ(read({"--strategy", "h4w2"}, 1024, FewerBlocks::repeated), "h4w2");
}

TEST(StrategyArgument, LeavesOtherWrongGridsToTheNetwork) {
  EXPECT_EQ(read({"--strategy", "h3"}, 4), "h3");
  EXPECT_EQ(read({"--strategy", "h3", "--complete", "n"}, 4), "h3");
  EXPECT_EQ(read({"--strategy", "h8"}, 4), "h8");
}

TEST(StrategyArgument, RepeatsLayersOfAFileButDoesNotCompleteThem) {
  const aloni::test::TemporaryFolder folder;
  const std::string path = folder.path("strategy");
  std::ofstream(path) << "* h2\n";
  EXPECT_EQ(read({"--strategy", path}, 8), path);
  EXPECT_THAT(read({"--strategy", path, "--complete", "n"}, 8), AllOf(HasSubstr("--complete"), HasSubstr("file")));
}

TEST(StrategyArgument, RefusesUnknownLettersAndALetterWithoutAGrid) {
  EXPECT_EQ(fault({"--strategy", "h2", "--complete", "n"}), "");
  for (const char* letter : {"q", "", "nn", "N"})
    EXPECT_THAT(fault({"--strategy", "h2", "--complete", letter}),
                AllOf(HasSubstr("--complete"), HasSubstr("n, d, h")));
  EXPECT_THAT(fault({"--complete", "n"}), AllOf(HasSubstr("--complete"), HasSubstr("--strategy GRID")));
  EXPECT_THAT(fault({"--strategy", ""}), HasSubstr("--strategy"));
}

}  // namespace test_strategy_argument
}  // namespace aloni::tools

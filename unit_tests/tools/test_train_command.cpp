#include <aloni/tools/together.hpp>
#include <aloni/tools/train_command.hpp>

#include <gmock/gmock.h>
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include <string>
#include <vector>

namespace aloni::tools {
namespace test_train_command {

using testing::AllOf;
using testing::HasSubstr;

// What is wrong with the arguments of `aloni train --data somewhere …`; empty if nothing.
std::string fault(std::vector<std::string> arguments) {
  CLI::App app;
  const TrainCommand command(app);
  arguments.insert(arguments.begin(), {"train", "--data", "somewhere"});
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());  // as CLI11 takes a vector
  try {
    app.parse(reversed);
    command.check();
  } catch (const CLI::ParseError& e) {
    return e.what();
  } catch (const UsageError& e) {
    return e.what();
  }
  EXPECT_TRUE(command.chosen());
  return "";
}

TEST(TrainCommand, TakesEveryDocumentedFlag) {
  EXPECT_EQ(fault({}), "");
  EXPECT_EQ(fault({"--model",
                   "lenet5",
                   "--epochs",
                   "2",
                   "--batch=32",
                   "--strategy",
                   "h2",
                   "--precision",
                   "double",
                   "--steps",
                   "7",
                   "--seed",
                   "9223372036854775807",
                   "--learning-rate",
                   "1e-3",
                   "--momentum",
                   "0",
                   "--weight-decay",
                   "0.1",
                   "--backend",
                   "kokkos-kernels",
                   "--progress",
                   "none",
                   "--json",
                   "out.json"}),
            "");
  for (const char* precision : {"float", "double", "bfloat16"}) {
    EXPECT_EQ(fault({"--precision", precision}), "");
  }
  for (const char* backend : {"automatic", "reference", "onednn", "kokkos-kernels"}) {
    EXPECT_EQ(fault({"--backend", backend}), "");
  }
}

TEST(TrainCommand, LetsTheLastOfTwoCount) {
  EXPECT_EQ(fault({"--epochs", "0", "--epochs", "2"}), "");
  EXPECT_THAT(fault({"--epochs", "2", "--epochs", "0"}), HasSubstr("--epochs"));
}

TEST(TrainCommand, NamesTheFlagAndTheValueThatIsOutOfRange) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"--batch", "0"},           {"--batch", "-64"},        {"--epochs", "-1"},         {"--epochs", "0"},
      {"--steps", "-5"},          {"--seed", "-1"},          {"--learning-rate", "nan"}, {"--learning-rate", "0"},
      {"--learning-rate", "inf"}, {"--momentum", "1"},       {"--momentum", "-0.1"},     {"--momentum", "nan"},
      {"--weight-decay", "-0.1"}, {"--weight-decay", "nan"}, {"--model", "resnet9000"},  {"--precision", "half"},
      {"--backend", "magic"},     {"--progress", "loud"},    {"--schedule", "cosine"},   {"--shift", "-1"},
  };
  for (const auto& [flag, value] : cases) {
    EXPECT_THAT(fault({flag, value}), AllOf(HasSubstr(flag), HasSubstr(value), HasSubstr("expected")));
  }
  EXPECT_THAT(fault({"--json", ""}), HasSubstr("--json"));
  EXPECT_THAT(fault({"--strategy", ""}), HasSubstr("--strategy"));
}

TEST(TrainCommand, NamesTheFlagWhoseValueHasTheWrongType) {
  EXPECT_THAT(fault({"--batch", "many"}), HasSubstr("--batch"));
  EXPECT_THAT(fault({"--batch", "99999999999999999999"}), HasSubstr("--batch"));
  EXPECT_THAT(fault({"--epochs", "1.5"}), HasSubstr("--epochs"));
  EXPECT_THAT(fault({"--epochs", "3000000000"}), HasSubstr("--epochs"));
  EXPECT_THAT(fault({"--learning-rate", "fast"}), HasSubstr("--learning-rate"));
  EXPECT_THAT(fault({"--frobnicate"}), HasSubstr("--frobnicate"));
}

}  // namespace test_train_command
}  // namespace aloni::tools

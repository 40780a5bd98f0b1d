#include "command_fault.hpp"

#include <aloni/tools/plan_command.hpp>

#include <gmock/gmock.h>

#include <string>
#include <utility>
#include <vector>

namespace aloni::tools {
namespace test_plan_command {

using testing::AllOf;
using testing::HasSubstr;

// The error for `aloni plan <arguments>`; empty if there is none.
std::string fault(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "plan");
  return test::fault_of<PlanCommand>(arguments);
}

TEST(PlanCommand, AcceptsEveryDocumentedFlag) {
  EXPECT_EQ(fault({}), "");
  EXPECT_EQ(fault({"--model",  "lenet5",      "--input",  "32x48x3",          "--classes=7", "--batch",
                   "8",        "--ranks",     "4096",     "--ranks-per-node", "8",           "--strategy",
                   "h2w2",     "--precision", "bfloat16", "--optimiser",      "adam",        "--json",
                   "out.json", "--draw",      "out.svg"}),
            "");
  EXPECT_EQ(fault({"--input", "16x32x48x3"}), "");
  EXPECT_EQ(fault({"--optimiser", "kfac"}), "");
  EXPECT_EQ(fault({"--model", "net.json", "--export", "other.json"}), "");
  EXPECT_EQ(fault({"--export-strategy", "net.strategy"}), "");
  EXPECT_EQ(fault({"--ranks", "0", "--ranks", "2"}), "");
  EXPECT_EQ(fault({"--recompute", "auto", "--memory-limit", "1.5GiB"}), "");
  EXPECT_EQ(fault({"--offload", "conv1,pool*", "--memory-limit", "2G"}), "");
  EXPECT_EQ(fault({"--machine", "lassen", "--strategy", "auto"}), "");
  for (const char* objective : {"step", "latency", "throughput"})
    EXPECT_EQ(fault({"--machine", "lassen", "--strategy", "auto", "--objective", objective}), "") << objective;
}

TEST(PlanCommand, NamesTheFlagAndItsValueOutOfRange) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"--recompute", ""},      {"--offload", ""},
      {"--memory-limit", "2X"}, {"--memory-limit", "0"},
      {"--ranks", "0"},         {"--ranks", "-4"},
      {"--ranks", "1000001"},   {"--ranks-per-node", "-1"},
      {"--batch", "0"},         {"--classes", "0"},
      {"--model", "nonet"},     {"--precision", "half"},
      {"--optimiser", "lion"},  {"--input", "28x28"},
      {"--input", "28"},        {"--input", "0x28x1"},
      {"--input", "28x28x1x"},  {"--input", "28X28X1"},
      {"--input", "x1x1x1"},    {"--input", "-1x28x1"},
      {"--input", "1x1x1x1x1"}, {"--input", "9999999999999999999999x1x1"},
  };
  for (const auto& [flag, value] : cases)
    EXPECT_THAT(fault({flag, value}), AllOf(HasSubstr(flag), HasSubstr(value), HasSubstr("expected")));
  EXPECT_THAT(fault({"--machine", "lasen"}), HasSubstr("did you mean lassen?"));
  EXPECT_THAT(fault({"--strategy", "auto"}), AllOf(HasSubstr("--strategy = auto"), HasSubstr("--machine NAME")));
  for (const auto& [flag, value] :
       {std::pair("--complete", "n"), std::pair("--recompute", "auto"), std::pair("--offload", "auto")})
    EXPECT_THAT(fault({"--machine", "lassen", "--strategy", "auto", flag, value}),
                AllOf(HasSubstr(flag), HasSubstr("--strategy auto")));
  EXPECT_THAT(fault({"--objective", "latency"}),
              AllOf(HasSubstr("--objective = latency"), HasSubstr("--strategy auto")));
  EXPECT_THAT(fault({"--machine", "lassen", "--strategy", "auto", "--objective", "latenzy"}),
              AllOf(HasSubstr("--objective = latenzy"), HasSubstr("did you mean latency?")));
  EXPECT_THAT(fault({"--machine", "lassen", "--strategy", "auto", "--objective", "latency", "--optimiser", "kfac"}),
              AllOf(HasSubstr("--optimiser = given"), HasSubstr("--objective latency")));
  EXPECT_THAT(fault({"--json", ""}), HasSubstr("--json"));
  EXPECT_THAT(fault({"--draw", ""}), HasSubstr("--draw"));
  EXPECT_THAT(fault({"--draw", "a", "--json", "a"}), AllOf(HasSubstr("--draw = a"), HasSubstr("--json")));
  EXPECT_THAT(fault({"--export", "net.txt"}), AllOf(HasSubstr("--export"), HasSubstr(".json")));
  EXPECT_THAT(fault({"--export", "a.json", "--json", "a.json"}), AllOf(HasSubstr("--export"), HasSubstr("--json")));
  EXPECT_THAT(fault({"--export-strategy", ""}), HasSubstr("--export-strategy"));
  EXPECT_THAT(fault({"--draw", "a", "--export-strategy", "a"}),
              AllOf(HasSubstr("--draw = a"), HasSubstr("--export-strategy")));
  EXPECT_THAT(fault({"--model", "rsenet18"}), HasSubstr("did you mean resnet18?"));
  for (const auto& [flag, value] : {std::pair("--input", "8x8x1"), std::pair("--classes", "3")})
    EXPECT_THAT(fault({"--model", "net.json", flag, value}), AllOf(HasSubstr(flag), HasSubstr("file")));
  EXPECT_THAT(fault({"--strategy", ""}), HasSubstr("--strategy"));
  EXPECT_THAT(fault({"--ranks", "many"}), HasSubstr("--ranks"));
  EXPECT_THAT(fault({"--ranks", "99999999999999999999"}), HasSubstr("--ranks"));
  EXPECT_THAT(fault({"--frobnicate"}), HasSubstr("--frobnicate"));
}

}  // namespace test_plan_command
}  // namespace aloni::tools

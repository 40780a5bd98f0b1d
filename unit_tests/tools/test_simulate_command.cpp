#include "command_fault.hpp"

#include <aloni/tools/simulate_command.hpp>

#include <gmock/gmock.h>

#include <string>
#include <utility>
#include <vector>

namespace aloni::tools {
namespace test_simulate_command {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

// The error for `aloni simulate --machine lassen <arguments>`; empty if there is none.
std::string fault(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"simulate", "--machine", "lassen"});
  return test::fault_of<SimulateCommand>(arguments);
}

TEST(SimulateCommand, AcceptsEveryDocumentedFlag) {
  EXPECT_EQ(fault({}), "");
  EXPECT_EQ(fault({"--model",
                   "resnet50",
                   "--input",
                   "64x64x3",
                   "--classes",
                   "7",
                   "--batch",
                   "8,16",
                   "--ranks",
                   "1,2,4",
                   "--ranks-per-node",
                   "2",
                   "--strategy",
                   "h2",
                   "--complete",
                   "n",
                   "--precision",
                   "bfloat16",
                   "--optimiser",
                   "adam",
                   "--recompute",
                   "auto",
                   "--memory-limit",
                   "2G",
                   "--flops-factor",
                   "0.5,1,2",
                   "--memory-bandwidth-factor",
                   "2",
                   "--link-bandwidth-factor",
                   "1,4",
                   "--json",
                   "out.json"}),
            "");
  EXPECT_EQ(fault({"--machine", "my.json", "--strategy", "auto"}), "");
  EXPECT_EQ(fault({"--strategy", "auto", "--objective", "throughput"}), "");
}

TEST(SimulateCommand, NamesTheFlagAndItsValueOutOfRange) {
  const std::vector<std::pair<std::string, std::string>> cases{{"--machine", "lasen"},
                                                               {"--machine", ""},
                                                               {"--ranks", "0"},
                                                               {"--ranks", "1,"},
                                                               {"--ranks", ",1"},
                                                               {"--ranks", "1,,2"},
                                                               {"--ranks", "1;2"},
                                                               {"--ranks", "1000001"},
                                                               {"--ranks", "99999999999999999999"},
                                                               {"--ranks", "4.5"},
                                                               {"--batch", "0"},
                                                               {"--batch", "-1"},
                                                               {"--batch", "many"},
                                                               {"--ranks-per-node", "-1"},
                                                               {"--flops-factor", "0"},
                                                               {"--flops-factor", "nan"},
                                                               {"--flops-factor", "1e4"},
                                                               {"--memory-bandwidth-factor", "-2"},
                                                               {"--link-bandwidth-factor", "1,x"},
                                                               {"--model", "nonet"},
                                                               {"--precision", "half"},
                                                               {"--optimiser", "lion"},
                                                               {"--input", "28x28"},
                                                               {"--memory-limit", "2X"}};
  for (const auto& [flag, value] : cases)
    EXPECT_THAT(fault({flag, value}), AllOf(HasSubstr(flag), HasSubstr(value), HasSubstr("expected"))) << flag;
  EXPECT_THAT(fault({"--machine", "lasen"}), HasSubstr("did you mean lassen?"));
  EXPECT_THAT(fault({"--objective", "throughput"}),
              AllOf(HasSubstr("--objective = throughput"), HasSubstr("--strategy auto")));
  EXPECT_THAT(fault({"--strategy", "auto", "--objective", "latency", "--accumulate", "2"}),
              AllOf(HasSubstr("--accumulate = given"), HasSubstr("--objective latency")));
  EXPECT_THAT(fault({"--json", ""}), HasSubstr("--json"));
  EXPECT_EQ(fault({"--trace", "trace.json"}), "");
  EXPECT_THAT(fault({"--trace", ""}), HasSubstr("--trace"));
  EXPECT_THAT(fault({"--trace", "a", "--json", "a"}), AllOf(HasSubstr("--trace = a"), HasSubstr("--json")));
  EXPECT_EQ(fault({"--draw", "step.svg", "--ranks", "1,2"}), "");
  EXPECT_THAT(fault({"--draw", ""}), HasSubstr("--draw"));
  for (const char* other : {"--json", "--trace"})
    EXPECT_THAT(fault({"--draw", "a", other, "a"}), AllOf(HasSubstr("--draw = a"), HasSubstr(other)));
  EXPECT_THAT(fault({"--trace", "a", "--ranks", "1,2"}), AllOf(HasSubstr("--trace = a"), HasSubstr("2 combinations")));
  EXPECT_THAT(test::fault_of<SimulateCommand>({"simulate"}), HasSubstr("--machine"));
}

TEST(SimulateCommand, RefusesTooManyCasesAndOptionsThatAutoDoesNotHave) {
  std::string factors = "1";
  for (int i = 0; i < 31; ++i) factors += ",2";
  EXPECT_EQ(fault({"--flops-factor", factors, "--link-bandwidth-factor", factors.substr(0, 61)}), "");
  EXPECT_THAT(fault({"--flops-factor", factors, "--link-bandwidth-factor", factors}),
              AllOf(HasSubstr("1000"), HasSubstr("1024")));
  EXPECT_THAT(fault({"--strategy", "auto", "--complete", "n"}), HasSubstr("--complete"));
  EXPECT_THAT(fault({"--strategy", "auto", "--recompute", "auto"}), HasSubstr("--recompute"));
}

TEST(SimulateCommand, ReadsListsOfNumbers) {
  EXPECT_THAT(parse_integers("4", 1, 9).value(), ElementsAre(4));
  EXPECT_THAT(parse_integers("1,2,9", 1, 9).value(), ElementsAre(1, 2, 9));
  EXPECT_FALSE(parse_integers("10", 1, 9));
  EXPECT_FALSE(parse_integers("", 1, 9));
  EXPECT_FALSE(parse_integers("1 2", 1, 9));
  EXPECT_THAT(parse_numbers("0.5,1e1", 0, 10).value(), ElementsAre(0.5, 10));
  EXPECT_FALSE(parse_numbers("inf", 0, 10));
}

TEST(SimulateCommand, ReadsAShareOfSlowLinksAndTheirFactor) {
  const SlowLinks links = parse_slow_links("0.25:4").value();
  EXPECT_EQ(links.share, 0.25);
  EXPECT_EQ(links.factor, 4);
  EXPECT_TRUE(parse_slow_links("1:1000"));
  for (const char* bad : {"", ":", "0.1", "0.1:", ":4", "0.1:4:5", "-0.1:4", "1.1:4", "0.1:0.9", "0.1:2,3", "nan:4"})
    EXPECT_FALSE(parse_slow_links(bad)) << bad;
}

}  // namespace test_simulate_command
}  // namespace aloni::tools

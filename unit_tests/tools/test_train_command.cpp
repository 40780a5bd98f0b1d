#include "command_fault.hpp"

#include <aloni/tools/train_command.hpp>

#include <gmock/gmock.h>

#include <string>
#include <vector>

namespace aloni::tools {
namespace test_train_command {

using testing::AllOf;
using testing::HasSubstr;

// The error for `aloni train --data somewhere <arguments>`; empty if there is none.
std::string fault(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"train", "--data", "somewhere"});
  return test::fault_of<TrainCommand>(arguments);
}

TEST(TrainCommand, AcceptsEveryDocumentedFlag) {
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
                   "--check-replicas",
                   "10",
                   "--checkpoint",
                   "run1",
                   "--checkpoint-every",
                   "600s",
                   "--keep",
                   "3",
                   "--resume",
                   "--weights",
                   "first.safetensors",
                   "--export",
                   "last.safetensors",
                   "--allow-nonfinite",
                   "--progress",
                   "none",
                   "--json",
                   "out.json",
                   "--trace",
                   "trace.json",
                   "--trace-steps",
                   "5",
                   "--recompute",
                   "conv1,conv2",
                   "--offload",
                   "conv1",
                   "--memory-limit",
                   "512M"}),
            "");
  for (const char* precision : {"float", "double", "bfloat16"}) {
    EXPECT_EQ(fault({"--precision", precision}), "");
  }
  for (const char* backend : {"automatic", "reference", "onednn", "kokkos-kernels"}) {
    EXPECT_EQ(fault({"--backend", backend}), "");
  }
}

TEST(TrainCommand, TakesTheOptionsOfTheChosenOptimiserOnly) {
  EXPECT_EQ(fault({"--optimiser", "sgd", "--momentum", "0.5", "--weight-decay", "0.1"}), "");
  EXPECT_EQ(fault({"--optimiser", "adam", "--beta1", "0.8", "--beta2", "0.99", "--epsilon", "1e-6", "--weight-decay",
                   "0.1", "--decay", "decoupled"}),
            "");
  EXPECT_THAT(fault({"--optimiser", "adam", "--momentum", "0.5"}), AllOf(HasSubstr("--momentum"), HasSubstr("beta1")));
  for (const char* option : {"--beta1", "--beta2", "--epsilon"})
    EXPECT_THAT(fault({option, "0.5"}), AllOf(HasSubstr(option), HasSubstr("--optimiser adam")));
  EXPECT_THAT(fault({"--decay", "l2"}), AllOf(HasSubstr("--decay"), HasSubstr("--optimiser adam")));
  EXPECT_EQ(fault({"--optimiser", "adamw", "--beta1", "0.8", "--weight-decay", "0.1"}), "");
  EXPECT_EQ(fault({"--optimiser", "lars", "--momentum", "0.8", "--trust", "0.01", "--clip", "2"}), "");
  EXPECT_EQ(fault({"--nesterov"}), "");
  EXPECT_EQ(fault({"--optimiser", "kfac", "--nesterov", "--kfac-every", "4", "--kfac-delay", "3", "--kfac-damping", "1",
                   "--kfac-decay", "0.9", "--kfac-clip", "0", "--kfac-factors-every", "2", "--kfac-solver", "serial"}),
            "");
  for (const auto& [flag, value] : std::vector<std::pair<std::string, std::string>>{{"--kfac-every", "0"},
                                                                                    {"--kfac-factors-every", "0"},
                                                                                    {"--kfac-delay", "10"},
                                                                                    {"--kfac-damping", "0"},
                                                                                    {"--kfac-decay", "1"},
                                                                                    {"--kfac-clip", "-1"},
                                                                                    {"--kfac-solver", "magic"},
                                                                                    {"--gradients", "majority"}})
    EXPECT_THAT(fault({"--optimiser", "kfac", flag, value}), AllOf(HasSubstr(flag), HasSubstr(value)));
  EXPECT_THAT(fault({"--kfac-every", "4"}), AllOf(HasSubstr("--kfac-every"), HasSubstr("--optimiser kfac")));
  EXPECT_THAT(fault({"--optimiser", "kfac", "--compare"}), AllOf(HasSubstr("--compare"), HasSubstr("kfac")));
  for (const auto& [flag, value] : {std::pair("--optimiser", "kfac"), std::pair("--gradients", "majority")}) {
    EXPECT_THAT(fault({flag, value, "--precision", "float16"}), AllOf(HasSubstr(value), HasSubstr("--loss-scale 0")));
    EXPECT_THAT(fault({flag, value, "--loss-scale", "1024"}), AllOf(HasSubstr(value), HasSubstr("--loss-scale 0")));
    EXPECT_EQ(fault({flag, value, "--precision", "float16", "--loss-scale", "0"}), "");
  }
  EXPECT_THAT(fault({"--optimiser", "adamw", "--decay", "l2"}), HasSubstr("adamw is decoupled"));
  EXPECT_THAT(fault({"--optimiser", "lars", "--nesterov"}), AllOf(HasSubstr("--nesterov"), HasSubstr("sgd")));
  EXPECT_THAT(fault({"--nesterov", "--momentum", "0"}), AllOf(HasSubstr("--nesterov"), HasSubstr("--momentum")));
  EXPECT_THAT(fault({"--trust", "0.1"}), AllOf(HasSubstr("--trust"), HasSubstr("lars")));
  const std::vector<std::pair<std::string, std::string>> cases{
      {"--beta1", "1"}, {"--beta2", "-1"}, {"--epsilon", "0"}, {"--beta1", "nan"}, {"--decay", "l1"}};
  for (const auto& [flag, value] : cases)
    EXPECT_THAT(fault({"--optimiser", "adam", flag, value}), AllOf(HasSubstr(flag), HasSubstr(value)));
  EXPECT_THAT(fault({"--optimiser", "lion"}), AllOf(HasSubstr("--optimiser"), HasSubstr("sgd"), HasSubstr("adam")));
}

TEST(TrainCommand, TakesTheOptionsOfTheChosenScheduleOnly) {
  EXPECT_EQ(fault({"--schedule", "step", "--step-every", "100", "--factor", "0.5", "--warm-up", "10"}), "");
  EXPECT_EQ(fault({"--schedule", "step", "--milestones", "100,200"}), "");
  EXPECT_EQ(fault({"--schedule", "cosine", "--lowest", "0.01"}), "");
  EXPECT_EQ(fault({"--schedule", "plateau", "--patience", "3", "--factor", "0.3", "--lowest", "0.1"}), "");
  EXPECT_EQ(fault({"--early-stop", "4", "--label-smoothing", "0.1"}), "");
  EXPECT_THAT(fault({"--schedule", "step"}), AllOf(HasSubstr("--step-every"), HasSubstr("--milestones")));
  EXPECT_THAT(fault({"--schedule", "step", "--step-every", "9", "--milestones", "3"}), HasSubstr("either"));
  for (const char* milestones : {"200,100", "0,100", "100,", "100;200", "", "1e3"})
    EXPECT_THAT(fault({"--schedule", "step", "--milestones", milestones}), HasSubstr("--milestones")) << milestones;
  EXPECT_THAT(fault({"--step-every", "9"}), HasSubstr("--schedule step"));
  EXPECT_THAT(fault({"--factor", "0.5"}), HasSubstr("step or plateau"));
  EXPECT_THAT(fault({"--schedule", "step", "--step-every", "9", "--lowest", "0.1"}), HasSubstr("cosine or plateau"));
  EXPECT_THAT(fault({"--schedule", "cosine", "--patience", "2"}), HasSubstr("--schedule plateau"));
}

TEST(TrainCommand, UsesTheLastOfTwoEqualFlags) {
  EXPECT_EQ(fault({"--epochs", "0", "--epochs", "2"}), "");
  EXPECT_THAT(fault({"--epochs", "2", "--epochs", "0"}), HasSubstr("--epochs"));
}

TEST(TrainCommand, NamesTheFlagAndItsValueOutOfRange) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"--batch", "0"},           {"--batch", "-64"},          {"--epochs", "-1"},
      {"--epochs", "0"},          {"--steps", "-5"},           {"--seed", "-1"},
      {"--learning-rate", "nan"}, {"--learning-rate", "0"},    {"--learning-rate", "inf"},
      {"--momentum", "1"},        {"--momentum", "-0.1"},      {"--momentum", "nan"},
      {"--weight-decay", "-0.1"}, {"--weight-decay", "nan"},   {"--model", "resnet9000"},
      {"--precision", "half"},    {"--check-replicas", "-1"},  {"--backend", "magic"},
      {"--progress", "loud"},     {"--schedule", "sine"},      {"--shift", "-1"},
      {"--average", "1"},         {"--average", "-1"},         {"--clip", "-1"},
      {"--clip", "nan"},          {"--label-smoothing", "1"},  {"--warm-up", "-1"},
      {"--early-stop", "-1"},     {"--label-smoothing", "-1"}, {"--brightness", "-0.5"},
      {"--contrast", "1.5"},      {"--contrast", "nan"},
  };
  for (const auto& [flag, value] : cases) {
    EXPECT_THAT(fault({flag, value}), AllOf(HasSubstr(flag), HasSubstr(value), HasSubstr("expected")));
  }
  EXPECT_THAT(fault({"--model", "\033[2Jnet"}), HasSubstr("\\x1b[2Jnet"));
  EXPECT_THAT(fault({"--json", ""}), HasSubstr("--json"));
  EXPECT_THAT(fault({"--strategy", ""}), HasSubstr("--strategy"));
  EXPECT_THAT(fault({"--trace", ""}), HasSubstr("--trace"));
  EXPECT_THAT(fault({"--trace", "out.json", "--json", "out.json"}), AllOf(HasSubstr("--trace"), HasSubstr("--json")));
  for (const char* steps : {"0", "-3", "1001"}) {
    EXPECT_THAT(fault({"--trace", "trace.json", "--trace-steps", steps}),
                AllOf(HasSubstr("--trace-steps"), HasSubstr(steps), HasSubstr("from 1 to 1000")));
  }
  EXPECT_THAT(fault({"--trace-steps", "2"}), AllOf(HasSubstr("--trace-steps"), HasSubstr("--trace FILE")));
}

TEST(TrainCommand, ComparesOnlyStepsThatTheModelPredicts) {
  EXPECT_EQ(fault({"--compare"}), "");  // with the machine of the automatic strategy
  EXPECT_EQ(fault({"--compare", "--strategy", "h2", "--machine", "x86_server", "--trace-steps", "9"}), "");
  EXPECT_EQ(fault({"--compare", "--draw", "times.svg"}), "");
  EXPECT_THAT(fault({"--draw", "times.svg"}), AllOf(HasSubstr("--draw = times.svg"), HasSubstr("--compare")));
  EXPECT_THAT(fault({"--compare", "--draw", ""}), HasSubstr("--draw"));
  for (const char* other : {"--json", "--trace", "--export"})
    EXPECT_THAT(fault({"--compare", "--draw", "a", other, "a"}), AllOf(HasSubstr("--draw = a"), HasSubstr(other)));
  EXPECT_THAT(fault({"--compare", "--strategy", "h2"}),
              AllOf(HasSubstr("--compare"), HasSubstr("aloni calibrate"), HasSubstr("--machine NAME")));
  EXPECT_THAT(fault({"--compare", "--accumulate", "2"}), AllOf(HasSubstr("--compare"), HasSubstr("--accumulate 1")));
  EXPECT_THAT(fault({"--compare", "--gradients", "majority", "--machine", "lassen"}),
              AllOf(HasSubstr("--compare"), HasSubstr("--gradients all")));
}

TEST(TrainCommand, TakesExtentsAndClassesForSyntheticDataOnly) {
  EXPECT_EQ(fault({"--data", "synthetic", "--steps", "2", "--input", "32x32x3", "--classes", "4"}), "");
  EXPECT_THAT(fault({"--input", "32x32x3"}), AllOf(HasSubstr("--input"), HasSubstr("synthetic")));
  EXPECT_THAT(fault({"--classes", "4"}), AllOf(HasSubstr("--classes"), HasSubstr("synthetic")));
  EXPECT_THAT(fault({"--data", "synthetic"}), AllOf(HasSubstr("--steps"), HasSubstr("at least 1")));
  for (const char* input : {"32x32", "32x0x3", "a", "32x32x3x4x5", ""})
    EXPECT_THAT(fault({"--data", "synthetic", "--steps", "2", "--input", input}), HasSubstr("--input")) << input;
  EXPECT_THAT(fault({"--data", "synthetic", "--steps", "2", "--classes", "0"}), HasSubstr("--classes"));
}

TEST(TrainCommand, NamesTheFlagWithAValueOfTheWrongType) {
  EXPECT_THAT(fault({"--batch", "many"}), HasSubstr("--batch"));
  EXPECT_THAT(fault({"--batch", "99999999999999999999"}), HasSubstr("--batch"));
  for (const char* number : {"18446744073709551616", "18446744073709551615", "9223372036854775808",
                             "-9223372036854775809", "0x10000000000000000"}) {
    EXPECT_THAT(fault({"--seed", number}), AllOf(HasSubstr("--seed"), HasSubstr(number)));
    EXPECT_THAT(fault({"--check-replicas", number}), AllOf(HasSubstr("--check-replicas"), HasSubstr(number)));
  }
  EXPECT_THAT(fault({"--epochs", "1.5"}), HasSubstr("--epochs"));
  EXPECT_THAT(fault({"--epochs", "3000000000"}), HasSubstr("--epochs"));
  EXPECT_THAT(fault({"--learning-rate", "fast"}), HasSubstr("--learning-rate"));
  EXPECT_THAT(fault({"--frobnicate"}), HasSubstr("--frobnicate"));
}

TEST(TrainCommand, ChecksTheOptionsOfCheckpoints) {
  for (const char* every : {"0", "1", "100", "0.5s", "600s"})
    EXPECT_EQ(fault({"--checkpoint", "run1", "--checkpoint-every", every}), "") << every;
  for (const char* every : {"", "s", "-1", "1.5", "0s", "-3s", "infs", "nans", "10 s", "10m"})
    EXPECT_THAT(fault({"--checkpoint", "run1", std::string("--checkpoint-every=") + every}),
                HasSubstr("--checkpoint-every"))
        << every;
  EXPECT_THAT(fault({"--checkpoint", "run1", "--keep=-1"}), HasSubstr("--keep = -1: expected from 0 to 1000000"));
  EXPECT_THAT(fault({"--checkpoint", ""}), HasSubstr("--checkpoint = \"\""));
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{"--resume"}, {"--keep", "1"}, {"--checkpoint-every", "1"}})
    EXPECT_THAT(fault(arguments), AllOf(HasSubstr(arguments[0]), HasSubstr("together with --checkpoint DIR")));
}

}  // namespace test_train_command
}  // namespace aloni::tools

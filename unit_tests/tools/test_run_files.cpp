#include <aloni/core/error.hpp>
#include <aloni/tools/metrics_file.hpp>
#include <aloni/tools/run_configuration.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace aloni::tools {
namespace test_run_files {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

class RunFiles : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "aloni_run_files/";
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directory(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ + name) << text;
    return folder_ + name;
  }
  static std::string read(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  std::string folder_;
};

TEST_F(RunFiles, AConfigurationGivesTheSameArguments) {
  CLI::App app;
  std::string model = "lenet5", data, path;
  double rate = 0.1;
  bool flip = false, other = false;
  app.add_option("--model", model)->capture_default_str()->take_last();
  app.add_option("--data", data)->take_last();
  app.add_option("--rate", rate)->capture_default_str()->take_last();
  app.add_option("--json", path)->take_last();
  app.add_option("--unused", path)->take_last();
  app.add_flag("--flip", flip);
  app.add_flag("--other", other);
  std::vector<std::string> arguments{"--flip", "b", "--data", "a", "--data", "file", "--json", "0.25", "--rate"};
  app.parse(arguments);  // reversed, as CLI11 expects it in a vector
  const auto options = options_of(app, {"--json"});
  EXPECT_THAT(options, ElementsAre(Pair("--data", "b"), Pair("--rate", "0.25"), Pair("--flip", "true")));
  const std::string text = configuration_text({.options = options,
                                               .chosen = {{"--strategy", "./strategy"}},
                                               .defaults = defaults_of(app, {"--json"}),
                                               .ranks = 2});
  const auto json = nlohmann::json::parse(text);
  EXPECT_EQ(json["options"]["--rate"], 0.25);
  EXPECT_EQ(json["options"]["--flip"], true);
  EXPECT_EQ(json["ranks"], 2);
  EXPECT_EQ(json["defaults"], nlohmann::json({{"--model", "lenet5"}}));
  const std::string file = write("config.json", text);
  EXPECT_THAT(with_configuration({"aloni", "train", "--config", file, "--rate", "1"}, 2),
              ElementsAre("aloni", "train", "--strategy=" + folder_ + "strategy", "--data=b", "--rate=0.25", "--flip",
                          "--config", file, "--rate", "1"));
  // A strategy that was chosen for two ranks says nothing about three.
  EXPECT_THAT(with_configuration({"aloni", "train", "--config", file, "--rate", "1"}, 3),
              ElementsAre("aloni", "train", "--data=b", "--rate=0.25", "--flip", "--config", file, "--rate", "1"));
}

TEST_F(RunFiles, PathsOfAConfigurationAreRelativeToItsFolder) {
  const std::string file =
      write("c.json", R"({"aloni_run": 1, "options": {"--strategy": "./strategy", "--no": false, "--text": "07"}})");
  EXPECT_THAT(with_configuration({"aloni", "--stuck-after", "3", "train", "--config=" + file}, 1),
              ElementsAre("aloni", "--stuck-after", "3", "train", "--strategy=" + folder_ + "strategy", "--text=07",
                          "--config=" + file));
  EXPECT_THAT(with_configuration({"aloni", "train"}, 1), ElementsAre("aloni", "train"));
  EXPECT_THAT(with_configuration({"aloni", "plan", "--config", "x"}, 1), ElementsAre("aloni", "plan", "--config", "x"));
}

TEST_F(RunFiles, ABrokenConfigurationIsAnErrorThatNamesTheFile) {
  const auto error_of = [&](const std::string& text) {
    const std::string file = write("broken.json", text);
    try {
      with_configuration({"aloni", "train", "--config", file}, 1);
    } catch (const FileError& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  for (const char* const text : {"", "[]", "{", "{}", R"({"aloni_run": 2, "options": {}})", R"({"aloni_run": 1})",
                                 R"({"aloni_run": 1, "options": []})"})
    EXPECT_THAT(error_of(text), HasSubstr("broken.json")) << text;
  EXPECT_THAT(error_of(R"({"aloni_run": 1, "options": {"train": 1}})"), HasSubstr("option train"));
  EXPECT_THAT(error_of(R"({"aloni_run": 1, "options": {"--x": [1]}})"), AllOf(HasSubstr("--x"), HasSubstr("[1]")));
  EXPECT_THAT(error_of(R"({"aloni_run": 1, "options": {"--config": "a"}})"), HasSubstr("--config"));
  EXPECT_THROW(with_configuration({"aloni", "train", "--config", folder_ + "missing"}, 1), FileError);
}

TEST_F(RunFiles, MetricsHaveALineForEachStepAndEpoch) {
  const std::string path = folder_ + "metrics.jsonl";
  for (int from = 1; from < 7; from += 3) {  // the second goes on with the file
    MetricsFile metrics(path);
    for (int step = from; step < from + 3; ++step)
      metrics.after_step({.step = step, .total_steps = 6, .loss = 1.0 / step, .learning_rate = 0.5, .seconds = 0.25});
    metrics.after_epoch(from / 3 + 1, 2, {.loss = std::nan(""), .test_accuracy = 0.75}, 10);
    metrics.finish();
  }
  std::vector<nlohmann::json> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
  ASSERT_EQ(lines.size(), 8u);
  EXPECT_EQ(lines[1]["loss"], 0.5);
  EXPECT_EQ(lines[1]["learning_rate"], 0.5);
  EXPECT_EQ(lines[3]["epoch"], 1);
  EXPECT_EQ(lines[3]["step"], 3);
  EXPECT_TRUE(lines[3]["loss"].is_null());
  EXPECT_EQ(lines[7]["test_accuracy"], 0.75);
  EXPECT_EQ(lines[7]["step"], 6);
}

TEST_F(RunFiles, MetricsAfterTheStepOfACheckpointAreRemoved) {
  const std::string kept = "{\"step\":1}\n{\"step\":2,\"epoch\":1}\n";
  const std::string path = write("metrics.jsonl", kept + "{\"step\":3}\n[]\n{\"step\":\"2\"}\n{\"ste");
  shorten_metrics(path, 2);
  EXPECT_EQ(read(path), kept);
  shorten_metrics(folder_ + "missing", 2);
  EXPECT_FALSE(std::filesystem::exists(folder_ + "missing"));
}

TEST_F(RunFiles, AFullDeviceIsAnErrorAtTheEnd) {
  MetricsFile metrics("/dev/full");
  metrics.after_step({.step = 1, .total_steps = 1});
  try {
    metrics.finish();
    ADD_FAILURE() << "no error";
  } catch (const FileError& e) {
    EXPECT_THAT(e.what(), AllOf(HasSubstr("/dev/full"), HasSubstr("No space left")));
  }
}

}  // namespace test_run_files
}  // namespace aloni::tools

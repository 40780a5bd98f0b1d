// Texts that users write or that programs exchange: models, strategies, tunings, machines, configurations and metrics
// of runs.
#include "fuzz_target.hpp"

#include "model/every_field.hpp"

#include <aloni/core/comm/tuning.hpp>
#include <aloni/model/machine_file.hpp>
#include <aloni/model/shipped_machines.hpp>
#include <aloni/nn/model_file.hpp>
#include <aloni/nn/models.hpp>
#include <aloni/nn/strategy.hpp>
#ifdef ALONI_FUZZ_TOOLS
#include <aloni/tools/metrics_file.hpp>
#include <aloni/tools/run_configuration.hpp>
#endif

#include <fstream>
#include <stdexcept>

namespace aloni::test {

namespace {

FuzzTarget model_target() {
  FuzzTarget target{.name = "model",
                    .seeds = {},
                    .read =
                        [](const std::string& input) {
                          const std::string text = nn::to_json(nn::network_from_json(input, "model.json"));
                          if (nn::to_json(nn::network_from_json(text, "again")) != text)
                            throw std::logic_error("a network that changes when it is written");
                        },
                    .heap_per_byte = 400};
  for (const char* name : {"lenet5", "resnet18", "unet2d", "cosmoflow"})
    target.seeds.push_back(nn::to_json(nn::make_model(name)));
  return target;
}

FuzzTarget strategy_target() {
  return {.name = "strategy",
          .seeds = {"# rows\nconv1   h2  blocking\nconv*   h2\npool*   h2w2\n*       n2\n", "*  n2c2 recompute_halo\n",
                    "conv? d2h2w2f2\n"},
          .read =
              [](const std::string& input) {
                const std::string text = to_string(nn::Strategy::parse(input, "strategy"));
                if (to_string(nn::Strategy::parse(text, "again")) != text)
                  throw std::logic_error("a strategy that changes when it is written");
              },
          .heap_per_byte = 256};  // a rule has four bytes at least, and two lists of rules exist at once
}

FuzzTarget tuning_target() {
  using comm::AllReduceAlgorithm;
  const comm::Tuning tuning{.ranks = 4,
                            .nodes = 2,
                            .latency = 1e-6,
                            .seconds_per_byte = 1e-10,
                            .combine_seconds_per_byte = 2e-11,
                            .measurements = {{AllReduceAlgorithm::ring, 1000, 1e-5},
                                             {AllReduceAlgorithm::ring, 4000, 4e-5, 512},
                                             {AllReduceAlgorithm::direct, 1000, 2e-6}}};
  return {.name = "tuning",
          .seeds = {to_text(tuning)},
          .read =
              [](const std::string& input) {
                const comm::Tuning read = comm::parse_tuning(input, "tuning");
                if (to_text(comm::parse_tuning(to_text(read), "again")) != to_text(read))
                  throw std::logic_error("a tuning that changes when it is written");
                for (const auto& m : read.measurements) static_cast<void>(read.measured_seconds(m.algorithm, 1234));
              },
          .heap_per_byte = 64};
}

FuzzTarget machine_target() {
  return {.name = "machine",
          .seeds = {model::to_json_text(machine_with_every_field()), model::to_json_text(model::generic_machine()),
                    model::to_json_text(model::find_machine("lassen"))},
          .read =
              [](const std::string& input) {
                const model::Machine machine = model::parse_machine(input, "machine.json");
                if (model::parse_machine(model::to_json_text(machine), "again") != machine)
                  throw std::logic_error("a machine that changes when it is written");
                for (const model::LearnedKernel& learned : machine.learned)
                  static_cast<void>(model::predict(learned, {.kind = learned.kind, .features = learned.least}));
              },
          .heap_per_byte = 400};
}

#ifdef ALONI_FUZZ_TOOLS
FuzzTarget configuration_target(const std::string& folder) {
  return {
      .name = "configuration",
      .seeds = {tools::configuration_text({.options = {{"--model", "lenet5"}, {"--batch", "64"}, {"--flip", "true"}},
                                           .chosen = {{"--strategy", "./strategy"}},
                                           .defaults = {{"--seed", "1"}},
                                           .ranks = 4}),
                R"({"aloni_run": 1, "version": "0", "ranks": 1, "options": {"--rate": 0.5, "--data": "./d"}})"},
      .read =
          [path = folder + "/config.json"](const std::string& input) {
            std::ofstream(path, std::ios::binary) << input;
            const auto all = tools::with_configuration({"aloni", "train", "--config", path}, 4);
            if (all.front() != "aloni") throw std::logic_error("the name of the program is lost");
          },
      .heap_per_byte = 200};
}

FuzzTarget metrics_target(const std::string& folder) {
  return {.name = "metrics",
          .seeds = {R"({"step": 1, "loss": 0.31, "learning_rate": 0.05, "seconds": 0.0052}
{"step": 2, "loss": 0.3, "learning_rate": 0.05, "seconds": 0.0052}
{"epoch": 1, "step": 2, "loss": 0.21, "test_accuracy": 0.981, "samples_per_second": 12300}
)"},
          .read =
              [path = folder + "/metrics.jsonl"](const std::string& input) {
                std::ofstream(path, std::ios::binary) << input;
                const tools::Metrics read = tools::read_metrics(path);
                if (read.learning_rates.size() > input.size()) throw std::logic_error("more steps than bytes");
                tools::shorten_metrics(path, 1);
                static_cast<void>(tools::read_metrics(path));
              },
          .heap_per_byte = 200};
}
#endif

}  // namespace

std::vector<FuzzTarget> text_targets([[maybe_unused]] const std::string& folder) {
  std::vector<FuzzTarget> targets{model_target(), strategy_target(), tuning_target(), machine_target()};
#ifdef ALONI_FUZZ_TOOLS
  targets.push_back(configuration_target(folder));
  targets.push_back(metrics_target(folder));
#endif
  return targets;
}

}  // namespace aloni::test

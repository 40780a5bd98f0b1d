#include <aloni/core/error.hpp>
#include <aloni/core/memory.hpp>
#include <aloni/core/printable.hpp>
#include <aloni/core/version.hpp>
#include <aloni/nn/data/data_sets.hpp>
#include <aloni/tools/data_arguments.hpp>
#include <aloni/tools/evaluate_command.hpp>
#include <aloni/tools/model_argument.hpp>
#include <aloni/tools/option.hpp>
#include <aloni/tools/precision_argument.hpp>
#include <aloni/tools/quantity_text.hpp>
#include <aloni/tools/result_file.hpp>
#include <aloni/tools/together.hpp>

#include <fmt/format.h>
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include <cstdio>
#include <nlohmann/json.hpp>

namespace aloni::tools {

std::string to_json(const nn::TestResult& result, Index samples, std::uint64_t peak_bytes, const TrainRun& run) {
  nlohmann::ordered_json json{{"samples", samples}, {"test_loss", *result.loss}};
  if (result.accuracy) json["test_accuracy"] = *result.accuracy;
  for (const auto& metric : result.metrics) json["test_" + metric.name] = metric.value;
  json["peak_memory_bytes"] = peak_bytes;
  json["run"] = {{"version", version()},       {"model", run.model}, {"data", run.data},  {"strategy", run.strategy},
                 {"precision", run.precision}, {"ranks", run.ranks}, {"batch", run.batch}};
  // A path may contain bytes that are not UTF-8.
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

EvaluateCommand::EvaluateCommand(CLI::App& app)
    : command_(app.add_subcommand("evaluate", "Evaluate a trained network on the test set of a folder")) {
  add_option(*command_, "--model", model_, model_help(), "NAME|FILE.json");
  add_option(*command_, "--data", data_, "Folder with a test set, as for aloni train (docs/data.md)", "DIR")
      ->required();
  inference_.add_options(*command_);
  add_option(*command_, "--json", json_, "Also write the results to this file, as JSON", "FILE");
}

bool EvaluateCommand::chosen() const { return command_->parsed(); }

void EvaluateCommand::check() const {
  check_model(model_);
  if (data_.empty()) refuse("--data", "\"\"", "the path of a folder");
  inference_.check();
  if (command_->count("--json") > 0 && json_.empty()) refuse("--json", "\"\"", "the path of a file");
}

void EvaluateCommand::add_to(comm::ReplicatedValues& values) const {
  values.add("--model", model_);
  inference_.add_to(values);
  values.add("--json", std::string(json_.empty() ? "not given" : "given"));
}

void EvaluateCommand::run(const comm::Communicator& comm) const {
  const bool speaks = comm.rank() == 0;
  comm::collectively(comm, "aloni evaluate --json", [&] {
    if (speaks && !json_.empty()) check_result_file_can_be_written(json_);
  });
  const nn::Strategy strategy = inference_.strategy().read(comm);
  const auto data = comm::collectively(comm, "aloni evaluate --data", [&] { return nn::open_data_sets(data_); });
  if (!data.test) refuse("--data", data_, "a folder with a test set");
  const auto network = comm::collectively(comm, "aloni evaluate --model",
                                          [&] { return network_of_model(model_, DataArguments::model_options(data)); });
  const nn::InferenceOptions options = inference_.options();
  const nn::TestResult result = with_activations(inference_.precision(), [&]<class T>() {
    return nn::evaluate<T>(comm, network, strategy, inference_.weights(), *data.test, options);
  });
  const auto peak = comm.all_reduce(static_cast<std::int64_t>(peak_memory_bytes()), comm::Reduction::max);
  comm::collectively(comm, "aloni evaluate", [&] {
    if (!speaks) return;
    fmt::print("{}, {} test samples of {} from {}\n", printable(model_), data.test->size(),
               input_text(network.input, network.spatial_rank), printable(data_));
    fmt::print("{:<20} {:.4f}\n", "loss", *result.loss);
    if (result.accuracy) fmt::print("{:<20} {:.2f} %\n", "accuracy", 100 * *result.accuracy);
    for (const auto& metric : result.metrics)
      fmt::print("{:<20} {}\n", nn::text_of_metric(metric.name), value_text(metric));
    fmt::print("{:<20} {} (largest rank)\n", "memory", bytes_text(peak));
    if (std::fflush(stdout) != 0)
      throw FileError("aloni evaluate", "standard output", "cannot be written", "a device with free space");
    if (json_.empty()) return;
    write_result_file(json_,
                      to_json(result, data.test->size(), static_cast<std::uint64_t>(peak),
                              {model_, data_, strategy.source, inference_.precision(), comm.size(), options.batch, 0}));
  });
}

}  // namespace aloni::tools

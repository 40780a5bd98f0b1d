#include <aloni/core/error.hpp>
#include <aloni/core/memory.hpp>
#include <aloni/core/printable.hpp>
#include <aloni/nn/data/npy.hpp>
#include <aloni/nn/data/raw_array.hpp>
#include <aloni/tools/model_argument.hpp>
#include <aloni/tools/option.hpp>
#include <aloni/tools/precision_argument.hpp>
#include <aloni/tools/predict_command.hpp>
#include <aloni/tools/quantity_text.hpp>
#include <aloni/tools/result_file.hpp>
#include <aloni/tools/together.hpp>

#include <fmt/format.h>
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <system_error>
#include <vector>

namespace aloni::tools {

namespace {

/// "0.5" or "0.5,0.4,0.4". Throws UsageError.
std::vector<double> numbers_of(const char* option, const std::string& text) {
  std::vector<double> numbers;
  const char *place = text.data(), *const end = text.data() + text.size();
  while (true) {
    double number = 0;
    const auto [rest, error] = std::from_chars(place, end, number);
    if (error != std::errc() || !std::isfinite(number) || (rest != end && *rest != ','))
      refuse(option, text, "a number, or one for each channel, as 0.5,0.4,0.4");
    numbers.push_back(number);
    if (rest == end) return numbers;
    place = rest + 1;
  }
}

}  // namespace

PredictCommand::PredictCommand(CLI::App& app)
    : command_(app.add_subcommand("predict", "Write the outputs of a trained network for the samples of a file")) {
  command_->add_option("model", model_, model_help())->type_name("NAME|FILE.json")->required();
  inference_.add_options(*command_);
  add_option(*command_, "--input", input_, "Samples: .npy, or .json beside raw elements (docs/data.md)", "FILE")
      ->required();
  add_option(*command_, "--output", output_,
             "File for the outputs of the last layer, float32: (samples, height, width, channels), or with depth",
             "FILE.npy")
      ->required();
  command_->add_option("--classes", classes_, "Classes of the last layer; default: those of the model")
      ->type_name("N")
      ->take_last()
      ->check(fits_64_bits);
  command_->add_option("--scale", scale_, "Stored values are multiplied by X; default: 1/255 for bytes, otherwise 1")
      ->type_name("X")
      ->take_last();
  add_option(*command_, "--mean", mean_, "Then X is subtracted; 0.1307 for a network trained on MNIST", "X[,X...]");
  add_option(*command_, "--deviation", deviation_, "Then values are divided by X; 0.3081 for MNIST", "X[,X...]");
}

bool PredictCommand::chosen() const { return command_->parsed(); }

void PredictCommand::check() const {
  check_model(model_);
  check_not_with_model_file(model_, "--classes", command_->count("--classes") > 0);
  if (command_->count("--classes") > 0) check_range("--classes", classes_, 1, most_of_an_option);
  inference_.check();
  if (!input_.ends_with(".npy") && !input_.ends_with(".json")) refuse("--input", input_, "a file *.npy or *.json");
  if (!output_.ends_with(".npy")) refuse("--output", output_, "a path that ends with .npy");
  if (output_ == input_) refuse("--output", output_, "a path that differs from --input");
  if (!std::isfinite(scale_)) refuse("--scale", fmt::format("{}", scale_), "a finite number");
  numbers_of("--mean", mean_);
  for (const double deviation : numbers_of("--deviation", deviation_))
    if (deviation <= 0) refuse("--deviation", deviation_, "numbers above 0");
}

void PredictCommand::add_to(comm::ReplicatedValues& values) const {
  values.add("model", model_).add("--classes", classes_);
  inference_.add_to(values);
  values.add("--scale", scale_).add("--mean", mean_).add("--deviation", deviation_);
  values.add("--output", output_);
}

nn::Dataset PredictCommand::open() const {
  nn::Dataset set{.inputs = input_.ends_with(".npy") ? nn::open_npy(input_) : nn::open_raw(input_)};
  set.normalisation = nn::usual_normalisation(set.inputs->type());
  if (command_->count("--scale") > 0) set.normalisation.scale = scale_;
  set.normalisation.mean = numbers_of("--mean", mean_);
  set.normalisation.deviation = numbers_of("--deviation", deviation_);
  return set;
}

void PredictCommand::run(const comm::Communicator& comm) const {
  const bool speaks = comm.rank() == 0;
  std::string place = output_;
  comm::collectively(comm, "aloni predict --output", [&] {
    if (!speaks) return;
    check_result_file_can_be_written(output_);
    place = place_of_result_file(output_);
  });
  comm.broadcast(place, 0);
  const nn::Strategy strategy = inference_.strategy().read(comm);
  const nn::Dataset set = comm::collectively(comm, "aloni predict --input", [&] { return open(); });
  const auto network = comm::collectively(comm, "aloni predict", [&] {
    nn::ModelOptions given{.input = set.inputs->extents()};
    if (command_->count("--classes") > 0) given.classes = classes_;
    return network_of_model(model_, given);
  });
  const auto begin = std::chrono::steady_clock::now();
  with_activations(inference_.precision(), [&]<class T>() {
    nn::predict<T>(comm, network, strategy, inference_.weights(), set, place, inference_.options());
  });
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  const auto peak = comm.all_reduce(static_cast<std::int64_t>(peak_memory_bytes()), comm::Reduction::max);
  if (!speaks) return;
  fmt::print("{}: {} samples of {}, each {}\n", printable(output_), set.size(),
             input_text(network.input, network.spatial_rank),
             input_text(nn::infer_extents(network, 1).back(), network.spatial_rank));
  const double speed = static_cast<double>(set.size()) / seconds.count();
  fmt::print("{:<20} {:.{}f} samples/s, with reading and writing\n", "speed", speed, speed < 10 ? 2 : 0);
  fmt::print("{:<20} {} (largest rank)\n", "memory", bytes_text(peak));
  std::fflush(stdout);
}

}  // namespace aloni::tools

#include <aloni/core/error.hpp>
#include <aloni/nn/models.hpp>
#include <aloni/tools/result_file.hpp>
#include <aloni/tools/strategy_argument.hpp>
#include <aloni/tools/together.hpp>
#include <aloni/tools/train_command.hpp>
#include <aloni/tools/train_output.hpp>
#include <aloni/tools/tuning_file.hpp>

#include <fmt/format.h>
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <optional>

namespace aloni::tools {

using nn::local::ConvolutionBackend;

namespace {

const std::map<std::string, ConvolutionBackend> backends{{"automatic", ConvolutionBackend::automatic},
                                                         {"reference", ConvolutionBackend::reference},
                                                         {"direct", ConvolutionBackend::direct},
                                                         {"onednn", ConvolutionBackend::onednn},
                                                         {"kokkos-kernels", ConvolutionBackend::kokkos_kernels}};

const std::map<std::string, ProgressStyle> progress_styles{{"automatic", ProgressStyle::automatic},
                                                           {"line", ProgressStyle::line},
                                                           {"plain", ProgressStyle::plain},
                                                           {"none", ProgressStyle::none}};

const std::map<std::string, nn::LearningRateSchedule> schedules{{"constant", nn::LearningRateSchedule::constant},
                                                                {"linear", nn::LearningRateSchedule::linear}};

const std::map<std::string, nn::GradientReduction> reductions{{"all", nn::GradientReduction::all},
                                                              {"majority", nn::GradientReduction::majority}};

const std::vector<std::string> precisions{"float", "double", "bfloat16"};

template <class Container, class Name>
std::string listed(const Container& container, Name name) {
  std::string text;
  for (const auto& element : container) text += (text.empty() ? "" : ", ") + name(element);
  return text;
}

std::string itself(const std::string& name) { return name; }

template <class Value>
std::string key(const std::pair<const std::string, Value>& entry) {
  return entry.first;
}

[[noreturn]] void refuse(const char* option, const std::string& value, const std::string& expectation) {
  throw UsageError(fmt::format("{} = {}: expected {}", option, value, expectation));
}

void check_number(const char* option, double value, bool good, const char* expectation) {
  if (!good || !std::isfinite(value)) refuse(option, fmt::format("{}", value), expectation);
}

}  // namespace

TrainCommand::TrainCommand(CLI::App& app)
    : command_(app.add_subcommand("train", "Train a network on labelled images, on all ranks of mpirun")) {
  options_.epochs = 3;
  // With the linear schedule, a shift of 1 adds a percentage point of accuracy after five epochs of the MNIST subset.
  options_.shift = 1;
  // Of an option given twice the last one counts, so that a script can append its arguments to its defaults.
  const auto add = [&](const char* name, auto& value, const std::string& text, const char* type) {
    return command_->add_option(name, value, text)->type_name(type)->capture_default_str()->take_last();
  };
  add("--model", model_, "Network: " + listed(nn::model_names(), itself), "NAME");
  add("--data", data_, "Folder with the files {train,t10k}-{images-idx3,labels-idx1}-ubyte[.gz]", "DIR")->required();
  add("--epochs", options_.epochs, "Passes over the training set", "N");
  add("--steps", options_.steps, "Total number of steps, instead of --epochs; 0: as many as --epochs needs", "N");
  add("--batch", options_.batch, "Samples per step, summed over all ranks", "N");
  add("--strategy", strategy_,
      "Grid for all layers (n2, h2, h2w2, c2, f2, ...), or a strategy file; default: samples over all ranks",
      "FILE|GRID");
  add("--precision", precision_,
      "Type of activations: " + listed(precisions, itself) + " (bfloat16: parameters are float; needs oneDNN)", "TYPE");
  add("--seed", seed_, "Seed of the initial parameters and of the order of samples", "N");
  add("--learning-rate", options_.learning_rate, "Initial learning rate of SGD", "X");
  add("--schedule", schedule_,
      "Learning rate over time: " + listed(schedules, key<nn::LearningRateSchedule>) + " (to zero at the last step)",
      "NAME");
  add("--momentum", options_.momentum, "Momentum of SGD", "X");
  add("--weight-decay", options_.weight_decay, "Weight decay of SGD", "X");
  add("--shift", options_.shift, "Largest random shift of training images, pixels; new in each epoch; 0: none", "N");
  add("--backend", backend_, "Backend of convolution: " + listed(backends, key<ConvolutionBackend>), "NAME");
  add("--gradients", gradients_,
      "Ranks whose gradients a step sums: " + listed(reductions, key<nn::GradientReduction>) +
          " (starts when more than half are there; late gradients count in the next step)",
      "NAME");
  add("--tuning", tuning_, "Choose all-reduce algorithms by this file of aloni calibrate", "FILE");
  add("--progress", progress_,
      "Progress on stderr: " + listed(progress_styles, key<ProgressStyle>) +
          "; automatic: line on a terminal, otherwise plain",
      "STYLE");
  add("--json", json_, "Also write the results to this file, as JSON", "FILE");
}

bool TrainCommand::chosen() const { return command_->parsed(); }

void TrainCommand::check() const {
  const auto names = nn::model_names();
  if (std::find(names.begin(), names.end(), model_) == names.end())
    refuse("--model", model_, "one of: " + listed(names, itself));
  if (data_.empty()) refuse("--data", "\"\"", "the path of a folder");
  if (options_.epochs < 1) refuse("--epochs", std::to_string(options_.epochs), "at least 1");
  // The parser turns a number beyond 64 bits into the largest number.
  constexpr Index most = 1'000'000'000;
  if (options_.steps < 0 || options_.steps > most) {
    refuse("--steps", std::to_string(options_.steps), "from 0 to " + std::to_string(most));
  }
  if (seed_ < 0) refuse("--seed", std::to_string(seed_), "at least 0");
  if (options_.batch < 1 || options_.batch > most) {
    refuse("--batch", std::to_string(options_.batch), "from 1 to " + std::to_string(most));
  }
  if (std::find(precisions.begin(), precisions.end(), precision_) == precisions.end()) {
    refuse("--precision", precision_, "one of: " + listed(precisions, itself));
  }
  check_number("--learning-rate", options_.learning_rate, options_.learning_rate > 0, "a finite number above 0");
  check_number("--momentum", options_.momentum, options_.momentum >= 0 && options_.momentum < 1,
               "a number of at least 0 and below 1");
  check_number("--weight-decay", options_.weight_decay, options_.weight_decay >= 0, "a finite number of at least 0");
  if (schedules.count(schedule_) == 0) {
    refuse("--schedule", schedule_, "one of: " + listed(schedules, key<nn::LearningRateSchedule>));
  }
  if (options_.shift < 0 || options_.shift > 1000) refuse("--shift", std::to_string(options_.shift), "from 0 to 1000");
  if (backends.count(backend_) == 0)
    refuse("--backend", backend_, "one of: " + listed(backends, key<ConvolutionBackend>));
  if (reductions.count(gradients_) == 0)
    refuse("--gradients", gradients_, "one of: " + listed(reductions, key<nn::GradientReduction>));
  if (progress_styles.count(progress_) == 0) {
    refuse("--progress", progress_, "one of: " + listed(progress_styles, key<ProgressStyle>));
  }
  if (command_->count("--json") > 0 && json_.empty()) refuse("--json", "\"\"", "the path of a file");
  if (command_->count("--tuning") > 0 && tuning_.empty()) refuse("--tuning", "\"\"", "the path of a file");
  if (command_->count("--strategy") > 0 && strategy_.empty())
    refuse("--strategy", "\"\"", "a grid or the path of a strategy file");
}

template <class T>
nn::TrainReport TrainCommand::train(const comm::Communicator& comm, const nn::NetworkDescription& network,
                                    const nn::Strategy& strategy, const nn::TrainAndTest& data,
                                    nn::TrainObserver* observer) const {
  nn::TrainOptions options = options_;
  options.schedule = schedules.at(schedule_);
  options.backend = backends.at(backend_);
  options.gradients = reductions.at(gradients_);
  options.seed = static_cast<std::uint64_t>(seed_);
  return nn::train<T>(comm, network, strategy, data.train, data.test, options, observer);
}

void TrainCommand::run(const comm::Communicator& comm) const {
  const bool speaks = comm.rank() == 0;
  if (!json_.empty()) {
    comm::collectively(comm, "aloni train --json", [&] {
      if (speaks) check_result_file_can_be_written(json_);
    });
  }
  if (!tuning_.empty()) use_tuning_file(comm, tuning_);
  const nn::Strategy strategy = strategy_from_argument(comm, strategy_);
  const nn::TrainAndTest data = comm::collectively(comm, "aloni train --data", [&] { return nn::read_mnist(data_); });
  const nn::NetworkDescription network = nn::make_model(model_, data.train.image, data.train.classes);
  nn::resolve(strategy, network, comm.size());  // throws before the first line of output

  std::optional<TrainSpeaker> speaker;
  if (speaks) {
    Index parameters = 0;
    for (const auto& p : nn::parameters_of(network)) parameters += p.extents.size();
    const auto& image = data.train.image;
    fmt::print("{}, {} parameters, {}, {} rank{}, strategy {}, batch {}\n", model_, parameters, precision_, comm.size(),
               comm.size() == 1 ? "" : "s", strategy.source, options_.batch);
    fmt::print("{} training and {} test images of {}x{}x{} from {}\n", data.train.size(), data.test.size(),
               image[views::Dim::height], image[views::Dim::width], image[views::Dim::channel], data_);
    std::fflush(stdout);
    speaker.emplace(progress_styles.at(progress_), options_.batch, data.train.size());
  }
  nn::TrainObserver* const observer = speaks ? &*speaker : nullptr;
  const auto train_with = precision_ == "double"     ? &TrainCommand::train<double>
                          : precision_ == "bfloat16" ? &TrainCommand::train<comm::bfloat16>
                                                     : &TrainCommand::train<float>;
  const nn::TrainReport report = (this->*train_with)(comm, network, strategy, data, observer);
  speaker.reset();

  comm::collectively(comm, "aloni train", [&] {
    if (!speaks) return;
    fmt::print("{}", summary(report));
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
      throw FileError("aloni train", "standard output", "cannot be written",
                      "a device with free space for the results");
    }
    if (!json_.empty()) {
      TrainRun run{model_, data_, strategy.source, precision_, comm.size(), options_.batch, seed_};
      write_result_file(json_, to_json(report, run));
    }
  });
}

}  // namespace aloni::tools

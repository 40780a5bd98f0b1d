#include <aloni/core/comm/running_machine.hpp>
#include <aloni/core/error.hpp>
#include <aloni/core/index.hpp>
#include <aloni/core/printable.hpp>
#include <aloni/model/communication.hpp>
#include <aloni/nn/models.hpp>
#include <aloni/nn/plan/convolution_cases.hpp>
#include <aloni/nn/plan/largest_memory.hpp>
#include <aloni/nn/plan/memory_savings.hpp>
#include <aloni/nn/plan/memory_shortage.hpp>
#include <aloni/nn/train/timed_steps.hpp>
#include <aloni/tools/backend_argument.hpp>
#include <aloni/tools/comparison_drawing.hpp>
#include <aloni/tools/job_machine.hpp>
#include <aloni/tools/machine_argument.hpp>
#include <aloni/tools/model_argument.hpp>
#include <aloni/tools/option.hpp>
#include <aloni/tools/placement_text.hpp>
#include <aloni/tools/precision_argument.hpp>
#include <aloni/tools/quantity_text.hpp>
#include <aloni/tools/result_file.hpp>
#include <aloni/tools/run_configuration.hpp>
#include <aloni/tools/run_folder.hpp>
#include <aloni/tools/stop_signals.hpp>
#include <aloni/tools/strategy_cache.hpp>
#include <aloni/tools/together.hpp>
#include <aloni/tools/train_command.hpp>
#include <aloni/tools/train_output.hpp>

#include <fmt/format.h>
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <map>
#include <optional>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>

namespace aloni::tools {

namespace {

const std::map<std::string, ProgressStyle> progress_styles{{"automatic", ProgressStyle::automatic},
                                                           {"line", ProgressStyle::line},
                                                           {"plain", ProgressStyle::plain},
                                                           {"none", ProgressStyle::none}};

const std::map<std::string, nn::GradientReduction> reductions{{"all", nn::GradientReduction::all},
                                                              {"majority", nn::GradientReduction::majority}};

}  // namespace

TrainCommand::TrainCommand(CLI::App& app)
    : command_(app.add_subcommand("train", "Train a network on labelled images, on all ranks of mpirun")) {
  options_.epochs = 3;
  const auto add = [&](const char* name, auto& value, const std::string& text, const char* type) {
    return add_option(*command_, name, value, text, type);
  };
  add("--model", model_, model_help(), "NAME|FILE.json");
  data_.add_options(*command_);
  command_
      ->add_option("--input", input_,
                   "Extents of one sample of synthetic data, HxWxC or DxHxWxC; default: those of the model")
      ->type_name("EXTENTS")
      ->take_last();
  command_->add_option("--classes", classes_, "Classes of synthetic data; default: those of the model")
      ->type_name("N")
      ->take_last()
      ->check(fits_64_bits);
  add("--epochs", options_.epochs, "Passes over the training set", "N");
  add("--steps", options_.steps, "Total number of steps, instead of --epochs; 0: as many as --epochs needs", "N");
  add("--batch", options_.batch, "Samples per step, summed over all ranks", "N");
  add("--accumulate", options_.accumulate,
      "Micro-batches of a step, which are computed one after another in the memory of one; divides --batch", "N");
  strategy_.add_options(*command_);
  add_precision_option(*command_, precision_);
  add("--seed", seed_, "Seed of the initial parameters and of the order of samples", "N");
  optimiser_.add_options(*command_);
  memory_.add_options(*command_);
  add_backend_option(*command_, backend_);
  command_->add_flag("--tf32", options_.tf32,
                     "Convolutions of float multiply in TF32 (10 bits of mantissa) on a device with cuDNN");
  command_->add_flag("--record", options_.record,
                     "Record the kernels between communication as graphs of the device, and repeat these");
  add("--gradients", gradients_,
      "Ranks whose gradients a step sums: " + listed(reductions) +
          " (starts when more than half are there; late gradients count in the next step)",
      "NAME");
  add("--check-replicas", options_.check_replicas,
      "Compare checksums of the parameters between ranks after each N steps; 0: never", "N");
  command_
      ->add_option("--run", run_,
                   "Folder of the run: configuration, metrics, checkpoints, and report.html. --resume goes on with it")
      ->type_name("DIR")
      ->take_last()
      ->each([this](const std::string& path) { checkpoint_.set_default_folder(path + "/checkpoints"); });
  command_
      ->add_option("--config", config_,
                   "Start from the options of this file, which --run has written; options given here replace them")
      ->type_name("FILE")
      ->take_last();
  checkpoint_.add_options(*command_);
  add("--weights", weights_, "Start from the weights in this safetensors file, unless a checkpoint is resumed", "FILE");
  add("--export", export_, "Write the last weights to this safetensors file", "FILE");
  command_->add_flag("--allow-nonfinite", options_.allow_nonfinite, "Go on after a loss that is NaN or infinite");
  add("--machine", machine_,
      machine_help() + ". Its costs decide the strategies to try, and its times the all-reduces and convolutions",
      "NAME|FILE.json");
  add("--progress", progress_,
      "Progress on stderr: " + listed(progress_styles) + "; automatic: line on a terminal, otherwise plain", "STYLE");
  add("--json", json_, "Also write the results to this file, as JSON", "FILE");
  add("--trace", trace_, "Also write the times of some steps on all ranks to this file, for ui.perfetto.dev", "FILE");
  add("--trace-steps", trace_steps_,
      "Number of steps whose nodes are timed, after the first five steps; default of --compare: up to 20", "N");
  command_->add_flag("--compare", compare_,
                     "After the training: measured times beside those of the cost model, by phase, layer and kernel");
  add("--draw", drawing_, "Also draw the times of --compare to this file, as SVG", "FILE.svg");
}

bool TrainCommand::chosen() const { return command_->parsed(); }

void TrainCommand::check() const {
  check_model(model_);
  for (const char* option : {"--input", "--classes"})
    check_not_with_model_file(model_, option, command_->count(option) > 0);
  data_.check();
  if (command_->count("--input") > 0) check_input(input_);
  if (command_->count("--classes") > 0) check_range("--classes", classes_, 1, most_of_an_option);
  for (const char* option : {"--input", "--classes"})
    if (command_->count(option) > 0 && !data_.is_synthetic())
      refuse(option, "given", "only with --data synthetic; a folder's images have extents and classes");
  if (data_.is_synthetic() && options_.steps < 1)
    refuse("--steps", std::to_string(options_.steps), "at least 1 with --data synthetic, which has no end");
  if (options_.epochs < 1) refuse("--epochs", std::to_string(options_.epochs), "at least 1");
  // The parser turns a number beyond 64 bits into the largest number.
  constexpr Index most = most_of_an_option;
  if (options_.steps < 0 || options_.steps > most) {
    refuse("--steps", std::to_string(options_.steps), "from 0 to " + std::to_string(most));
  }
  if (seed_ < 0) refuse("--seed", std::to_string(seed_), "at least 0");
  if (options_.batch < 1 || options_.batch > most) {
    refuse("--batch", std::to_string(options_.batch), "from 1 to " + std::to_string(most));
  }
  if (options_.accumulate < 1 || options_.batch % options_.accumulate != 0)
    refuse("--accumulate", std::to_string(options_.accumulate),
           "a divisor of --batch " + std::to_string(options_.batch));
  check_computed_precision(precision_);
  if (options_.tf32 && precision_ != "float")
    refuse("--tf32", "given", "--precision float, whose products it shortens");
  if (options_.check_replicas < 0 || options_.check_replicas > most) {
    refuse("--check-replicas", std::to_string(options_.check_replicas), "from 0 to " + std::to_string(most));
  }
  optimiser_.check();
  memory_.check();
  checkpoint_.check();
  backend_of(backend_);
  if (reductions.count(gradients_) == 0) refuse("--gradients", gradients_, one_of_listed(gradients_, reductions));
  if (progress_styles.count(progress_) == 0) {
    refuse("--progress", progress_, one_of_listed(progress_, progress_styles));
  }
  if (command_->count("--run") > 0 && run_.empty()) refuse("--run", "\"\"", "the path of a folder");
  if (command_->count("--json") > 0 && json_.empty()) refuse("--json", "\"\"", "the path of a file");
  if (command_->count("--trace") > 0 && trace_.empty()) refuse("--trace", "\"\"", "the path of a file");
  if (command_->count("--draw") > 0 && drawing_.empty()) refuse("--draw", "\"\"", "the path of a file");
  if (!trace_.empty() && trace_ == json_) refuse("--trace", trace_, "a path that differs from --json");
  if (!drawing_.empty() && !compare_) refuse("--draw", drawing_, "together with --compare, whose times it shows");
  if (!drawing_.empty() && (drawing_ == json_ || drawing_ == trace_ || drawing_ == export_))
    refuse("--draw", drawing_, "a path that differs from --json, --trace and --export");
  constexpr std::int64_t most_traced = 1000;
  if (trace_steps_ < 1 || trace_steps_ > most_traced)
    refuse("--trace-steps", std::to_string(trace_steps_), "from 1 to " + std::to_string(most_traced));
  if (command_->count("--trace-steps") > 0 && trace_.empty() && !compare_)
    refuse("--trace-steps", std::to_string(trace_steps_), "together with --trace FILE or --compare");
  if (compare_ && options_.accumulate > 1)
    refuse("--compare", "given",
           "--accumulate 1; the nodes of a step are compared, and micro-batches have several of each");
  if (compare_ && optimiser_.uses_kfac())
    refuse("--compare", "given", "another --optimiser than kfac; the model predicts steps without it");
  if (optimiser_.uses_kfac() && gradients_ != "all")
    refuse("--gradients", gradients_, "all with --optimiser kfac, whose factors are sums of all ranks");
  if (optimiser_.update(precision_of(precision_)).loss_scaling) {  // of float16 by default
    if (optimiser_.uses_kfac())
      refuse("--optimiser", "kfac", "another one with loss scaling, or --loss-scale 0, or --precision bfloat16");
    if (gradients_ != "all")
      refuse("--gradients", gradients_, "all with loss scaling; or --loss-scale 0, or --precision bfloat16");
  }
  if (compare_ && gradients_ != "all")
    refuse("--compare", "given", "--gradients all; the model predicts steps that wait for all ranks");
  if (compare_ && machine_.empty() && !strategy_.text().empty())
    refuse("--compare", "given", "--machine FILE.json, which aloni calibrate writes, or --machine NAME beside it");
  for (const auto& [option, path] : {std::pair("--weights", weights_), std::pair("--export", export_)})
    if (command_->count(option) > 0 && path.empty()) refuse(option, "\"\"", "the path of a file");
  if (!export_.empty() && (export_ == json_ || export_ == trace_))
    refuse("--export", export_, "a path that differs from --json and --trace");
  strategy_.check();
  if (command_->count("--machine") > 0) check_machine(machine_);
}

void TrainCommand::add_to(comm::ReplicatedValues& values) const {
  const auto given = [](const std::string& path) { return std::string(path.empty() ? "not given" : "given"); };
  values.add("--model", model_);
  data_.add_to(values);
  values.add("--input", input_)
      .add("--classes", classes_)
      .add("--epochs", options_.epochs)
      .add("--steps", options_.steps);
  values.add("--batch", options_.batch).add("--accumulate", options_.accumulate);
  strategy_.add_to(values);
  values.add("--machine", given(machine_));
  values.add("--precision", precision_).add("--seed", seed_);
  optimiser_.add_to(values);
  memory_.add_to(values);
  checkpoint_.add_to(values);
  values.add("--weights", weights_).add("--export", export_).add("--backend", backend_);
  values.add("--gradients", gradients_).add("--check-replicas", options_.check_replicas);
  values.add("--tf32", options_.tf32).add("--record", options_.record);
  values.add("--allow-nonfinite", options_.allow_nonfinite);
  values.add("--json", given(json_));
  values.add("--run", run_);
  values.add("--draw", given(drawing_));
  values.add("--trace", given(trace_)).add("--trace-steps", trace_steps_).add("--compare", compare_);
}

nn::TrainOptions TrainCommand::options_for(const nn::TrainAndTestSets& data) const {
  nn::TrainOptions options = options_;
  data_.set_augmentation(data, options);
  options.optimiser = optimiser_.optimiser();
  options.update = optimiser_.update(precision_of(precision_));
  options.schedule = optimiser_.schedule();
  options.early_stop = optimiser_.early_stop();
  options.average = optimiser_.average();
  options.memory = memory_.wish();
  options.backend = backend_of(backend_);
  options.gradients = reductions.at(gradients_);
  options.seed = static_cast<std::uint64_t>(seed_);
  options.timed_steps = timed_steps(data);
  options.checkpoint = checkpoint_.options();
  options.initial_weights = weights_;
  options.export_weights = export_;
  options.sample_results = run_.empty() ? 0 : 8;
  return options;
}

std::int64_t TrainCommand::timed_steps(const nn::TrainAndTestSets& data) const {
  if (trace_.empty() && !compare_) return 0;
  if (!compare_ || command_->count("--trace-steps") > 0) return trace_steps_;
  // At least half of the steps after the warm-up are not timed: they give the time of the whole step.
  constexpr std::int64_t most = 20;
  const std::int64_t total =
      options_.steps > 0 ? options_.steps : options_.epochs * ceil_div(data.train.size(), options_.batch);
  return std::clamp<std::int64_t>((total - nn::TimedSteps::warm_up) / 2, 1, most);
}

template <class T>
nn::TrainReport TrainCommand::train(const comm::Communicator& comm, const nn::NetworkDescription& network,
                                    const ChosenStep& step, const nn::TrainAndTestSets& data,
                                    nn::TrainObserver* observer) const {
  nn::TrainOptions options = options_for(data);
  options.memory = step.memory;
  options.bucket_bytes = step.bucket_bytes;
  options.chunk_bytes = step.chunk_bytes;
  options.direct_bytes = step.direct_bytes;
  options.consolidate_below = step.consolidate_below;
  options.largest_overhead = step.largest_overhead;
  options.multiplications_per_slab = step.multiplications_per_slab;
  options.convolutions = step.convolutions;
  options.work_per_copied_byte = step.work_per_copied_byte;
  std::optional<StopSignals> signals;
  if (checkpoint_.given()) {
    signals.emplace();
    options.checkpoint.stop = StopSignals::came;
  }
  options.kfac = optimiser_.kfac();
  if (data_.is_synthetic()) return nn::train_on_synthetic_data<T>(comm, network, step.strategy, options, observer);
  return nn::train<T>(comm, network, step.strategy, data.train, data.test, options, observer);
}

nn::NetworkDescription TrainCommand::network_for(const nn::TrainAndTestSets& data) const {
  nn::ModelOptions given;
  if (!data_.is_synthetic()) given = data_.model_options(data);
  if (!input_.empty()) given.input = parse_input(input_);
  if (command_->count("--classes") > 0) given.classes = classes_;
  nn::NetworkDescription network = network_of_model(model_, given);
  if (command_->count("--label-smoothing") == 0) return network;
  network.label_smoothing = optimiser_.label_smoothing();
  nn::infer_extents(network, 1);  // refuses smoothing for a loss without labels
  return network;
}

std::string TrainCommand::describe(const nn::TrainAndTestSets& data, const nn::NetworkDescription& network) const {
  const std::string sample = input_text(network.input, network.spatial_rank);
  if (data_.is_synthetic()) return fmt::format("{} steps on synthetic samples of {}", options_.steps, sample);
  return data_.describe(data, sample);
}

PlanRequest TrainCommand::plan_request(const nn::NetworkDescription& network, const nn::Strategy& strategy,
                                       int ranks) const {
  return {.model = model_,
          .network = network,
          .strategy = strategy,
          .batch = options_.batch / options_.accumulate,
          .ranks = ranks,
          .activations = precision_of(precision_),
          .optimiser = nn::kind_of(optimiser_.optimiser()),
          .memory = memory_.wish()};
}

TrainRun TrainCommand::train_run(const comm::Communicator& comm, const nn::Strategy& strategy) const {
  return {model_, data_.name(), strategy.source, precision_, comm.size(), options_.batch, seed_};
}

std::optional<model::Machine> TrainCommand::read_machine(const comm::Communicator& comm) const {
  if (machine_.empty()) return std::nullopt;
  model::Machine machine = read_machine_argument(comm, machine_);
  MachineDescription job = machine.planning;
  job.nodes = comm::nodes_of_ranks(comm);
  if (auto tuning = all_reduces_of(machine, job, comm.size())) {
    std::erase_if(tuning->measurements, [&](const comm::Measurement& m) {
      return comm.unsupported_reason(m.algorithm).has_value();  // ranks that share no memory
    });
    comm.set_tuning(*tuning);
  }
  return machine;
}

AutomaticStrategy TrainCommand::choose_strategy(const comm::Communicator& comm, const nn::NetworkDescription& network,
                                                const nn::TrainAndTestSets& data,
                                                const std::optional<model::Machine>& machine,
                                                const ChosenStep& step) const {
  AutomaticStrategyRequest request{.network = network, .options = options_for(data), .machine = machine};
  request.options.convolutions = step.convolutions;
  request.options.work_per_copied_byte = step.work_per_copied_byte;
  return with_activations(precision_, [&]<class T> { return choose_automatically<T>(comm, request); });
}

void TrainCommand::check_memory(const comm::Communicator& comm, const nn::NetworkDescription& network,
                                const ChosenStep& chosen, const nn::TrainAndTestSets& data,
                                const KernelPlace& place) const {
  const bool has_limit = !chosen.memory.limit && place.memory_bytes > 0;
  const bool has_host_limit = !chosen.memory.offload.empty() && place.host_memory_bytes > 0;
  if ((!has_limit && !has_host_limit && !chosen.memory.limit) || gradients_ != "all") return;
  comm::collectively(comm, "aloni train: memory", [&] {
    const std::vector<nn::LayerSplit> splits = resolve(chosen.strategy, network, comm.size());
    const nn::NetworkPlan layers = plan_network(network, splits, comm.size(), samples_of_step(data));
    nn::TrainOptions options = options_for(data);
    options.memory = chosen.memory;
    options.kfac = optimiser_.kfac();
    const nn::ElementType type = precision_of(precision_);
    nn::GivenStep given{.network = network,
                        .splits = splits,
                        .ranks = comm.size(),
                        .samples = samples_of_step(data),
                        .options = step_options_of(options, type),
                        .wish = chosen.memory};
    savings_or_ways_out(given, layers, place.planning).apply(given.options);
    if (!has_limit && !has_host_limit) return;
    const nn::LargestMemory most =
        largest_memory(network, layers, place.planning, nn::StepKind::training, given.options);
    const Index factors = memory_of_kfac(network, splits, layers, place.planning, options, type);
    if (has_host_limit && static_cast<double>(most.host) > place.host_memory_bytes)
      throw InvalidArgument(
          "aloni train", "--offload: host memory of a rank", bytes_text(most.host),
          "at most " + bytes_text(static_cast<Index>(place.host_memory_bytes)) +
              ", its share of the node. Fewer layers by patterns, --recompute, more ranks, or fewer " +
              "samples need less");
    if (!has_limit || static_cast<double>(most.peak + factors) <= place.memory_bytes) return;
    if (static_cast<double>(most.peak) <= place.memory_bytes)
      throw InvalidArgument("aloni train", "--optimiser kfac: memory of a rank", bytes_text(most.peak + factors),
                            "at most " + bytes_text(static_cast<Index>(place.memory_bytes)) +
                                ", its share of the memory. Factors of layers and their inverses take " +
                                bytes_text(factors) + "; another --optimiser has none");
    const auto limit = static_cast<Index>(place.memory_bytes);
    throw InvalidArgument("aloni train", "memory of rank " + std::to_string(most.peak_rank), bytes_text(most.peak),
                          "at most " + bytes_text(limit) + ", its share of the memory. The step needs " +
                              bytes_text(most.peak - limit) + " more, most of it at \"" + most.peak_node + "\". " +
                              ways_out(given, place.planning, limit, most.peak) + ". Options: --recompute auto, " +
                              (place.on_host ? "" : "--offload auto, ") +
                              "--batch, --accumulate; --memory-limit BYTES replaces this limit");
  });
}

Index TrainCommand::samples_of(const nn::TrainAndTestSets& data) const {
  return data_.is_synthetic() ? options_.batch : std::min(options_.batch, data.train.size());
}

Index TrainCommand::samples_of_step(const nn::TrainAndTestSets& data) const {
  return std::max<Index>(1, samples_of(data) / options_.accumulate);
}

std::string TrainCommand::choose_limits(const comm::Communicator& comm, const nn::NetworkDescription& network,
                                        const nn::TrainAndTestSets& data, const model::Machine& machine,
                                        const KernelPlace& place, ChosenStep& chosen) const {
  const nn::ElementType type = precision_of(precision_);
  const model::Machine job = job_machine(machine, comm, place);
  const AutomaticStrategyRequest request{.network = network, .options = options_for(data), .machine = machine};
  ChoiceKey key = facts_of_choice(comm, request, job, type);
  key.training = fmt::format("limits of a step of {} samples, recompute {}, offload {}, memory limit {}, strategy {}\n",
                             samples_of(data), chosen.memory.recompute, chosen.memory.offload,
                             chosen.memory.limit.value_or(0), to_string(chosen.strategy)) +
                 key.training;
  const StrategyCache cache(StrategyCache::default_folder());
  std::string note;
  std::optional<model::StepLimits> kept;
  if (comm.rank() == 0) kept = cache.find_limits(key, &note);
  const bool known = comm.all_reduce(kept ? 1 : 0, comm::Reduction::max) > 0;
  const model::StepLimits limits =
      known ? kept.value_or(model::StepLimits{}) : comm::collectively(comm, "aloni train --machine", [&] {
        const nn::NetworkPlan layers =
            plan_network(network, resolve(chosen.strategy, network, comm.size()), comm.size(), samples_of_step(data));
        model::SimulationOptions options = simulation_of(options_for(data), type);
        memory_savings_for(network, layers, description_of(job, comm.size()), options.step, chosen.memory)
            .apply(options.step);
        const model::MachineKernels kernels(job, job.ranks_per_node, job.threads_per_rank);
        return choose_step_limits(network, layers, job, kernels, options);
      });
  // Numbers of threads may differ between ranks, and so their prices: rank 0 decides.
  constexpr double none = -1;
  std::array<double, 3> values{static_cast<double>(limits.bucket_bytes), static_cast<double>(limits.chunk_bytes),
                               limits.largest_overhead.value_or(none)};
  comm.run(comm::Broadcast{std::span(values), 0});
  chosen.bucket_bytes = static_cast<Index>(values[0]);
  chosen.chunk_bytes = static_cast<Index>(values[1]);
  if (values[2] != none) chosen.largest_overhead = values[2];
  chosen.direct_bytes = job.planning.direct_bytes;
  chosen.consolidate_below = job.planning.consolidate_below;
  std::string text = limits_text(machine.name, limits.reason + (known ? "; chosen before" : ""));
  std::string transfers = transfers_text(job.planning.direct_bytes, job.planning.consolidate_below, comm.size(),
                                         static_cast<int>(comm.ranks_by_node().size()));
  if (transfers.ends_with('\n')) transfers.pop_back();
  if (!transfers.empty()) text += "\n" + transfers;
  if (comm.rank() != 0 || known) return text;
  if (!note.empty()) text += "\n           " + note + "; chosen anew";
  try {
    cache.keep_limits(key, limits);
  } catch (const FileError& error) {
    text += std::string("\n           not kept: ") + error.what();
  }
  return text;
}

MeasuredImplementations TrainCommand::convolutions_of(const comm::Communicator& comm, const model::Machine& machine,
                                                      KernelPlace place) const {
  // Numbers of threads may differ between ranks, and each has its table: rank 0 decides.
  place.threads =
      static_cast<int>(comm.all_reduce(std::int64_t{comm.rank() == 0 ? place.threads : 0}, comm::Reduction::max));
  return description_of(job_machine(machine, comm, place), comm.size()).convolutions;
}

ConvolutionReport TrainCommand::report_convolutions(const comm::Communicator& comm,
                                                    const nn::NetworkDescription& network, const ChosenStep& chosen,
                                                    const nn::TrainAndTestSets& data,
                                                    const std::optional<model::Machine>& machine,
                                                    const KernelPlace& place) const {
  const nn::ElementType type = precision_of(precision_);
  return comm::collectively(comm, "aloni train: implementations of convolutions", [&]() -> ConvolutionReport {
    if (comm.rank() != 0) return {};
    MachineDescription planning = place.planning;
    planning.convolutions = chosen.convolutions;
    if (chosen.multiplications_per_slab) planning.multiplications_per_slab = *chosen.multiplications_per_slab;
    if (chosen.chunk_bytes) planning.chunk_bytes = static_cast<double>(*chosen.chunk_bytes);
    nn::StepOptions step{.activations = type, .backend = backend_of(backend_)};
    step.largest_overhead = chosen.largest_overhead;
    const nn::NetworkPlan layers =
        plan_network(network, resolve(chosen.strategy, network, comm.size()), comm.size(), samples_of_step(data));
    const nn::StepPlan plan = plan_step(network, layers, 0, nn::StepKind::training, planning, step);
    return report_of(explain_convolutions(network, plan, planning), machine ? machine->name : "");
  });
}

StepPrediction TrainCommand::predict(const comm::Communicator& comm, const nn::NetworkDescription& network,
                                     const ChosenStep& chosen, const nn::TrainAndTestSets& data,
                                     const std::optional<model::Machine>& machine, const KernelPlace& place) const {
  const nn::ElementType type = precision_of(precision_);
  return comm::collectively(comm, "aloni train --compare", [&] {
    model::Machine job = job_machine(machine, comm, place);
    job.planning.bucket_bytes = chosen.bucket_bytes.value_or(job.planning.bucket_bytes);
    if (chosen.chunk_bytes) job.planning.chunk_bytes = static_cast<double>(*chosen.chunk_bytes);
    const nn::NetworkPlan layers =
        plan_network(network, resolve(chosen.strategy, network, comm.size()), comm.size(), samples_of(data));
    nn::StepOptions step = step_options_of(options_for(data), type);
    step.largest_overhead = chosen.largest_overhead;
    memory_savings_for(network, layers, description_of(job, comm.size()), step, chosen.memory).apply(step);
    return predict_step(network, layers, job, step, comm.rank());
  });
}

void TrainCommand::run(const comm::Communicator& ranks) const {
  comm::Communicator comm = ranks;  // later in the order that the cost model has chosen; rank 0 stays the same
  const bool speaks = comm.rank() == 0;
  for (const auto& [option, path] : {std::pair("--json", json_), std::pair("--trace", trace_),
                                     std::pair("--export", export_), std::pair("--draw", drawing_)}) {
    if (path.empty()) continue;
    comm::collectively(comm, std::string("aloni train ") + option, [&, &file = path] {
      if (speaks) check_result_file_can_be_written(file);
    });
  }
  const std::optional<model::Machine> machine = read_machine(comm);
  // A sum that does not wait for all ranks needs all parameters on each of them.
  // K-FAC needs whole weights on each rank, too.
  const bool chooses = strategy_.text().empty() && gradients_ == "all" && !optimiser_.uses_kfac();
  const nn::MemoryWish wish = memory_.wish();
  KernelPlace place = kernel_place(comm);
  if (!wish.offload.empty() && place.on_host)
    refuse("--offload", wish.offload, "--recompute, or a device: activations of a host are in host memory already");
  if (options_.record && place.on_host)
    refuse("--record", "given", "a device: a host runs each kernel when it is submitted, so nothing can be repeated");
  ChosenStep step{.strategy = strategy_.read(comm), .memory = wish};
  if (machine) {
    step.convolutions = convolutions_of(comm, *machine, place);
    step.multiplications_per_slab = machine->planning.multiplications_per_slab;
  }
  if (!place.on_host) step.work_per_copied_byte = job_machine(machine, comm, place).planning.work_per_copied_byte;
  const nn::TrainAndTestSets data = comm::collectively(comm, "aloni train --data", [&] { return data_.open(); });
  const nn::NetworkDescription network =
      comm::collectively(comm, "aloni train --model", [&] { return network_for(data); });
  std::vector<std::string> explanation;
  if (chooses) {
    AutomaticStrategy chosen = choose_strategy(comm, network, data, machine, step);
    step.strategy = std::move(chosen.strategy);
    step.memory = std::move(chosen.memory);
    explanation = std::move(chosen.explanation);
    comm = placed_ranks(comm, chosen.rank_of);
    if (!chosen.rank_of.empty()) place = kernel_place(comm);
  }
  if (step.work_per_copied_byte) place.planning.work_per_copied_byte = *step.work_per_copied_byte;
  const std::vector<nn::LayerSplit> splits =
      nn::resolve(step.strategy, network, comm.size());  // throws before the first line of output
  if (optimiser_.uses_kfac()) {
    explanation.push_back(to_string(nn::plan_kfac(network, splits, comm.size()), network));
    explanation.push_back(optimiser_.describe_kfac());
  }
  // A strategy that the cost model has chosen fits into the memory of its rank, but perhaps not into that of the host.
  if (!chooses || !step.memory.offload.empty()) check_memory(comm, network, step, data, place);
  if (machine && comm.size() > 1 && gradients_ == "all")  // steps that the model knows
    explanation.push_back(choose_limits(comm, network, data, *machine, place, step));
  ConvolutionReport convolutions;
  if (machine || !run_.empty()) convolutions = report_convolutions(comm, network, step, data, machine, place);
  if (machine) explanation.push_back(convolutions.summary);
  std::optional<StepPrediction> predicted;
  if (compare_) predicted = predict(comm, network, step, data, machine, place);

  std::optional<TrainSpeaker> speaker;
  if (speaks) {
    fmt::print("{}, {} parameters, {}, {}, strategy {}, batch {}\n", model_, nn::count_parameters(network), precision_,
               count_text(comm.size(), "rank"), step.strategy.source, options_.batch);
    fmt::print("{}\n", describe(data, network));
    for (const std::string& line : explanation) fmt::print("{}\n", line);
    std::fflush(stdout);
    speaker.emplace(progress_styles.at(progress_), options_.batch,
                    data_.is_synthetic() ? options_.steps * options_.batch : data.train.size());
  }
  TrainObservers observers;
  if (speaker) observers.add(*speaker);
  std::optional<RunFolder> folder;
  if (!run_.empty()) {
    comm::collectively(comm, "aloni train --run", [&] {
      if (!speaks) return;
      const std::vector<std::string> of_one_start{"--run",    "--config",      "--resume",  "--json", "--trace",
                                                  "--export", "--trace-steps", "--compare", "--draw", "--progress"};
      RunConfiguration configuration{.options = options_of(*command_, of_one_start),
                                     .defaults = defaults_of(*command_, of_one_start),
                                     .ranks = comm.size()};
      for (const auto& [option, chosen, given] : {std::tuple("--recompute", step.memory.recompute, wish.recompute),
                                                  std::tuple("--offload", step.memory.offload, wish.offload)})
        if (!chosen.empty() && chosen != given) configuration.chosen.emplace_back(option, chosen);
      if (step.memory.limit && !wish.limit)
        configuration.chosen.emplace_back("--memory-limit", std::to_string(*step.memory.limit));
      const bool has_choice = chooses && comm.size() > 1;
      folder.emplace(run_, std::move(configuration), has_choice ? to_string(step.strategy) : "", checkpoint_.resumes());
      folder->explain_convolutions(convolutions.table);
      observers.add(folder->metrics());
    });
  }
  nn::TrainObserver* const observer = speaks ? &observers : nullptr;
  const nn::TrainReport report =
      with_activations(precision_, [&]<class T> { return train<T>(comm, network, step, data, observer); });
  speaker.reset();
  std::optional<StepComparison> comparison;
  if (predicted) comparison = compare_over_ranks(comm, *predicted, report);
  const std::string trace = trace_.empty() ? "" : trace_text(comm, report, train_run(comm, step.strategy));

  comm::collectively(comm, "aloni train", [&] {
    if (!speaks) return;
    fmt::print("{}{}", summary(report), comparison ? to_text(*comparison) : "");
    if (predicted && !comparison) fmt::print("compare     no step was left to run\n");
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
      throw FileError("aloni train", "standard output", "cannot be written",
                      "a device with free space for the results");
    }
    // A file that cannot be written does not prevent the other ones.
    std::exception_ptr error;
    const auto attempt = [&](const auto& write) {
      try {
        write();
      } catch (const FileError&) {
        if (!error) error = std::current_exception();
      }
    };
    if (!json_.empty())
      attempt([&] {
        write_result_file(json_, to_json(report, train_run(comm, step.strategy), comparison ? &*comparison : nullptr));
      });
    if (!trace_.empty()) {
      attempt([&] {
        write_result_file(trace_, trace);
        fmt::print("trace       {} (open it at ui.perfetto.dev)\n", printable(trace_));
      });
    }
    if (!drawing_.empty() && comparison) {
      attempt([&] {
        write_result_file(
            drawing_,
            to_svg("Predicted and measured step: " + model_ + ", strategy " + step.strategy.source, *comparison));
        fmt::print("picture     {}\n", printable(drawing_));
      });
    }
    if (folder) {
      attempt([&] {
        PlanRequest plan = plan_request(network, step.strategy, comm.size());
        plan.memory = step.memory;
        if (!plan.memory.offload.empty()) {  // from a device, as this training has done it
          plan.machine = machine_of(plan);
          plan.machine->on_host = false;
        }
        folder->finish(report, train_run(comm, step.strategy), plan);
        fmt::print("report      {}\n", printable(folder->report_path()));
      });
    }
    std::fflush(stdout);
    if (error) std::rethrow_exception(error);
  });
  if (report.stopped) {
    throw Stopped(
        fmt::format("stopped after step {}; {} --resume continues", report.losses.size(),
                    run_.empty() ? "--checkpoint " + printable(checkpoint_.folder()) : "--run " + printable(run_)));
  }
}

}  // namespace aloni::tools

#include <aloni/tools/calibrate_command.hpp>

#include <aloni/core/error.hpp>
#include <aloni/model/machine_file.hpp>
#include <aloni/tools/calibration_drawing.hpp>
#include <aloni/tools/kernel_calibration.hpp>
#include <aloni/tools/machine_argument.hpp>
#include <aloni/tools/option.hpp>
#include <aloni/tools/progress.hpp>
#include <aloni/tools/quantity_text.hpp>
#include <aloni/tools/result_file.hpp>
#include <aloni/tools/simulate_command.hpp>
#include <aloni/tools/text_table.hpp>
#include <aloni/tools/tile_calibration.hpp>
#include <aloni/tools/together.hpp>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace aloni::tools {

namespace {

using Json = nlohmann::ordered_json;

std::vector<std::size_t> sizes_of(const comm::Tuning& tuning) {
  std::vector<std::size_t> sizes;
  for (const comm::Measurement& m : tuning.measurements) {
    if (sizes.empty() || sizes.back() != m.bytes) sizes.push_back(m.bytes);
  }
  return sizes;
}

/// All algorithms for an all-reduce of `bytes` bytes of floats.
std::vector<comm::AlgorithmReport> reports_of(const comm::Communicator& comm, std::size_t bytes) {
  const std::size_t count = bytes / sizeof(float);
  const auto values = std::make_unique_for_overwrite<float[]>(count);  // explain() doesn't touch them
  return comm.explain(comm::AllReduce{std::span(values.get(), count), comm::Reduction::sum}).algorithms;
}

void print(const comm::Communicator& comm, const comm::Tuning& tuning) {
  std::printf("ranks %d, nodes %d: message latency %s us, bandwidth %.3g GB/s, reduction %.3g GB/s\n", tuning.ranks,
              tuning.nodes, microseconds_text(tuning.latency).c_str(),
              tuning.seconds_per_byte > 0 ? 1e-9 / tuning.seconds_per_byte : 0.0,
              1e-9 / tuning.combine_seconds_per_byte);
  std::printf("all-reduce of floats: us measured (us predicted); * marks the chosen algorithm\n%12s", "bytes");
  const auto reports = reports_of(comm, 64);
  for (const auto& report : reports) std::printf("  %-22s", to_string(report.algorithm).c_str());
  std::printf("\n");
  for (const std::size_t bytes : sizes_of(tuning)) {
    std::printf("%12zu", bytes);
    for (const auto& report : reports_of(comm, bytes)) {
      const std::string cell = report.unsupported.empty() ? microseconds_text(report.measured_seconds) + " (" +
                                                                microseconds_text(report.predicted_seconds) + ")"
                                                          : "-";
      std::printf("  %c%-21s", report.chosen ? '*' : ' ', cell.c_str());
    }
    std::printf("\n");
  }
  for (const auto& report : reports) {
    if (!report.unsupported.empty())
      std::printf("%s %s\n", to_string(report.algorithm).c_str(), report.unsupported.c_str());
  }
}

/// The smallest and the largest size left out of the fits: more do not fit into 100 columns.
std::vector<std::size_t> printed_sizes(const CommunicationTimes& row) {
  std::vector<std::size_t> left_out;
  for (std::size_t i = 0; i < row.times.size(); ++i)
    if (row.times[i].left_out) left_out.push_back(i);
  if (left_out.size() < 2) return left_out;
  return {left_out.front(), left_out.back()};
}

/// Of values for which the rate counts, and not the latency.
constexpr std::size_t least_long_bytes = std::size_t{1} << 20;

/// @pre all have the same sizes
std::string table_of(std::span<const CommunicationTimes> all) {
  if (all.empty()) return "";
  std::vector<std::vector<std::string>> rows{{"operation", "method", "memory"}};
  for (const std::size_t i : printed_sizes(all.back()))
    rows[0].push_back(bytes_text(static_cast<Index>(all.back().times[i].bytes)));
  for (const char* title : {"error", "long", "links"}) rows[0].emplace_back(title);
  for (const CommunicationTimes& row : all) {
    std::vector<std::string>& cells = rows.emplace_back();
    cells = {row.operation, row.method, row.memory};
    for (const std::size_t i : printed_sizes(all.back())) {
      const CommunicationTimes::Time& time = row.times[i];
      cells.push_back(microseconds_text(time.seconds) + " (" + microseconds_text(time.predicted) + ")");
    }
    for (const double error : {row.error(), row.error(least_long_bytes), row.links_error()})
      cells.push_back(error < 0 ? "-" : percent_text(error));
  }
  return text_table(rows, 3);
}

void print(const std::vector<CommunicationTimes>& all) {
  if (all.empty()) return;
  const auto is_transfer = [](const CommunicationTimes& row) { return row.transfer.has_value(); };
  const auto transfers = static_cast<std::size_t>(std::ranges::count_if(all, is_transfer));  // they come first
  std::printf(
      "communication: us measured (us predicted) at sizes left out of the fits; mean errors at all of them,\n"
      "long: from 1 MiB on, links: without the fits\n"
      "%s%s",
      table_of(std::span(all).first(transfers)).c_str(), table_of(std::span(all).subspan(transfers)).c_str());
}

void add_communication(Json& json, const std::vector<CommunicationTimes>& all) {
  json["communication"] = Json::array();
  for (const CommunicationTimes& row : all) {
    Json& entry = json["communication"].emplace_back();
    entry = {{"operation", row.operation}, {"method", row.method}, {"memory", row.memory}};
    if (row.error() >= 0) entry.update({{"error", row.error()}, {"links_error", row.links_error()}});
    for (const CommunicationTimes::Time& time : row.times)
      entry["times"].push_back({{"bytes", time.bytes},
                                {"measured_seconds", time.seconds},
                                {"predicted_seconds", time.predicted},
                                {"links_seconds", time.by_links},
                                {"left_out", time.left_out}});
  }
}

void add_all_reduces(Json& json, const comm::Communicator& comm, const comm::Tuning& tuning) {
  json["latency_seconds"] = tuning.latency;
  json["seconds_per_byte"] = tuning.seconds_per_byte;
  json["combine_seconds_per_byte"] = tuning.combine_seconds_per_byte;
  for (const std::size_t bytes : sizes_of(tuning)) {
    for (const auto& report : reports_of(comm, bytes)) {
      if (!report.unsupported.empty()) continue;
      json["all_reduce"].push_back({{"algorithm", to_string(report.algorithm)},
                                    {"bytes", bytes},
                                    {"measured_seconds", report.measured_seconds},
                                    {"predicted_seconds", report.predicted_seconds},
                                    {"chosen", report.chosen}});
    }
  }
}

Json to_json(const comm::Communicator& comm, const model::Machine& machine,
             const std::vector<CommunicationTimes>& communication, const std::vector<LearnedSummary>& learned) {
  Json json;
  json["ranks"] = comm.size();
  json["nodes"] = comm.ranks_by_node().size();
  if (!machine.all_reduces.empty()) add_all_reduces(json, comm, machine.all_reduces.front());
  add_communication(json, communication);
  json["machine"] = Json::parse(model::to_json_text(machine));
  json["machine"].erase("kernels");
  json["machine"].erase("learned");
  json["machine"].erase("convolutions");
  json["kernels"] = Json::array();
  for (const LearnedSummary& l : learned)
    json["kernels"].push_back({{"kind", std::string(name(l.kind))},
                               {"times", l.times},
                               {"learned_error", l.learned_error},
                               {"roofline_error", l.roofline_error}});
  return json;
}

/// The rows of the picture: all that were measured now, then the all-reduces by which algorithms are chosen.
std::vector<CommunicationTimes> drawn_times(const comm::Communicator& comm, const model::Machine& machine,
                                            std::vector<CommunicationTimes> rows) {
  if (machine.all_reduces.empty()) return rows;
  const std::size_t first = rows.size();
  for (const std::size_t bytes : sizes_of(machine.all_reduces.front())) {
    for (const auto& report : reports_of(comm, bytes)) {
      if (!report.unsupported.empty()) continue;
      const std::string method = to_string(report.algorithm);
      auto row = std::find_if(rows.begin() + static_cast<std::ptrdiff_t>(first), rows.end(),
                              [&](const CommunicationTimes& r) { return r.method == method; });
      if (row == rows.end())
        row = rows.insert(rows.end(),
                          {.operation = "all-reduce of floats: times that choose the algorithm", .method = method});
      row->times.push_back({.bytes = bytes, .seconds = report.measured_seconds, .predicted = report.predicted_seconds});
    }
  }
  return rows;
}

std::string drawing_subtitle(const comm::Communicator& comm, const model::Machine& machine) {
  return ranks_text(comm.size(), machine.ranks_per_node) + " of " + machine.processor.name;
}

void print(const model::Machine& machine) {
  const model::Processor& p = machine.processor;
  std::printf("%s: %d ranks per node, %d threads each\n", p.name.c_str(), machine.ranks_per_node,
              machine.threads_per_rank);
  std::printf("arithmetic of a core: float %s, double %s, bfloat16 %s, float16 %s\n",
              rate_text(p.float32_flops, "flop").c_str(), rate_text(p.float64_flops, "flop").c_str(),
              rate_text(p.bfloat16_flops, "flop").c_str(), rate_text(p.float16_flops, "flop").c_str());
  std::printf("memory: a core %s, a node %s\n", rate_text(p.core_bandwidth, "B").c_str(),
              rate_text(p.node_bandwidth, "B").c_str());
}

void print(const std::vector<LearnedSummary>& learned) {
  if (learned.empty()) return;
  std::vector<std::vector<std::string>> rows{{"kernels", "times", "learned", "roofline"}};
  for (const LearnedSummary& l : learned)
    rows.push_back({std::string(name(l.kind)), std::to_string(l.times),
                    l.learned_error > 0 ? percent_text(l.learned_error) : "too few", percent_text(l.roofline_error)});
  std::printf("mean errors: of learned models, on times left out of their training; of the roofline\n%s",
              text_table(rows, 1).c_str());
}

}  // namespace

CalibrateCommand::CalibrateCommand(CLI::App& app)
    : command_(app.add_subcommand("calibrate", "Measure this machine and its kernels for the cost model")) {
  command_->add_option("--output", output_, "Write a machine file, for --machine of train, plan and simulate")
      ->type_name("FILE.json")
      ->take_last();
  command_->add_flag("--quick", quick_, "At most 20 seconds: no kernels, and coarse figures of all else");
  command_->add_flag("--resume", resume_,
                     "Keep the figures of --output if it exists, measure those that it lacks, and add kernels");
  command_
      ->add_option("--kernels", kernels_, "Time for kernels, seconds; 0: none. Eight minutes give good learned models")
      ->type_name("SECONDS")
      ->capture_default_str()
      ->take_last();
  command_
      ->add_option("--tiles", tiles_,
                   "Also measure the kernels of factorisations on tiles with so many rows, for simulate-factorisation")
      ->type_name("B,B,...")
      ->take_last();
  convolutions_.add_options(*command_);
  command_->add_option("--json", json_, "Write measured and predicted times to this file")
      ->type_name("FILE")
      ->take_last();
  command_
      ->add_option("--draw", drawing_,
                   "Draw measured and predicted times of messages and collectives to this file, as SVG")
      ->type_name("FILE.svg")
      ->take_last();
  command_
      ->add_option("--largest-bytes", largest_bytes_,
                   "Size of the largest all-reduce, bytes; if not given, less on slow links")
      ->capture_default_str()
      ->check(fits_64_bits)
      ->take_last();
  command_->add_option("--seconds", seconds_, "Time for each figure that is not of a kernel, seconds")
      ->capture_default_str()
      ->take_last();
}

bool CalibrateCommand::chosen() const { return command_->parsed(); }

double CalibrateCommand::kernel_seconds() const { return quick_ ? 0 : kernels_; }

void CalibrateCommand::check() const {
  for (const auto& [option, path] : {std::pair("--json", &json_), std::pair("--draw", &drawing_)})
    if (command_->count(option) > 0 && path->empty()) refuse(option, "\"\"", "the path of a file");
  if (command_->count("--output") > 0 && !output_.ends_with(".json"))
    refuse("--output", output_.empty() ? "\"\"" : output_, "the path of a machine file, *.json");
  if (!drawing_.empty() && (drawing_ == json_ || drawing_ == output_))
    refuse("--draw", drawing_, "a path that differs from --json and --output");
  if (resume_ && output_.empty()) refuse("--resume", "without --output", "--output FILE.json");
  if (quick_ && command_->count("--kernels") > 0) refuse("--kernels", std::to_string(kernels_), "no --quick");
  if (command_->count("--tiles") > 0 && !parse_integers(tiles_, 1, most_tile_rows))
    refuse("--tiles", tiles_.empty() ? "\"\"" : tiles_, "numbers of rows from 1 to 8192: 64,128,256");
  if (!tiles_.empty()) check_tiles_can_be_measured();
  convolutions_.check();
  if (largest_bytes_ < 64 || largest_bytes_ > std::size_t{1} << 34) {
    refuse("--largest-bytes", std::to_string(largest_bytes_),
           "64 to " + std::to_string(std::size_t{1} << 34) + " bytes");
  }
  if (!(seconds_ > 0 && seconds_ <= 60))
    refuse("--seconds", std::to_string(seconds_), "more than 0, at most 60 seconds");
  if (!(kernels_ >= 0 && kernels_ <= 1e6)) refuse("--kernels", std::to_string(kernels_), "0 to 1000000 seconds");
}

void CalibrateCommand::add_to(comm::ReplicatedValues& values) const {
  const auto given = [](const std::string& path) { return std::string(path.empty() ? "not given" : "given"); };
  values.add("--output", given(output_)).add("--json", given(json_)).add("--draw", given(drawing_));
  values.add("--quick", quick_).add("--resume", resume_).add("--kernels", kernels_);
  values.add("--tiles", tiles_);
  convolutions_.add_to(values);
  values.add("--largest-bytes", largest_bytes_).add("--seconds", seconds_);
}

model::Machine CalibrateCommand::first_part(const comm::Communicator& comm) const {
  const bool exists = comm::collectively(comm, "aloni calibrate --resume", [&] {
    return resume_ && comm.rank() == 0 && std::filesystem::exists(output_);
  });
  if (comm.all_reduce(exists ? 1 : 0, comm::Reduction::max) > 0) {
    model::Machine machine = read_machine_argument(comm, output_);
    if (machine.processor.name != processor_name())
      throw InvalidArgument("aloni calibrate --resume", output_, machine.processor.name,
                            "a file of this processor, " + processor_name() + "; without --resume it is made anew");
    return machine;
  }
  model::Machine machine = [&] {
    Progress progress(comm.rank() == 0 ? ProgressStyle::automatic : ProgressStyle::none);
    if (progress.due()) progress.show(0, {"processor, memory, links and sums over ranks"});
    return measure_machine(comm, measurement_options());
  }();
  save(comm, machine);
  return machine;
}

void CalibrateCommand::save(const comm::Communicator& comm, const model::Machine& machine) const {
  if (output_.empty()) return;  // equal on all ranks
  comm::collectively(comm, "aloni calibrate", [&] {
    if (comm.rank() == 0) write_result_file(output_, to_json_text(machine));
  });
}

MachineMeasurementOptions CalibrateCommand::measurement_options() const {
  MachineMeasurementOptions options = quick_ ? quick_measurement() : MachineMeasurementOptions{};
  options.seconds_per_probe = quick_ ? std::min(seconds_, options.seconds_per_probe) : seconds_;
  if (command_->count("--largest-bytes") == 0) return options;
  options.largest_sum_bytes = largest_bytes_;
  options.longest_message_seconds = std::numeric_limits<double>::infinity();
  return options;
}

std::vector<CommunicationTimes> CalibrateCommand::add_communication(const comm::Communicator& comm,
                                                                    model::Machine& machine) const {
  const int ranks = comm.size(), nodes = static_cast<int>(comm.ranks_by_node().size());
  std::vector<CommunicationTimes> all;
  if (ranks < 2) return all;
  const MachineMeasurementOptions probes = measurement_options();
  Progress progress(comm.rank() == 0 ? ProgressStyle::automatic : ProgressStyle::none);
  const auto options_of = [&](const char* what) {
    return CollectiveMeasurementOptions{
        .largest_bytes = largest_measured_bytes(machine, probes),
        .seconds_per_case = probes.seconds_per_probe / 25,
        .progress = [&progress, what](std::size_t done, std::size_t times) {
          if (progress.due())
            progress.show(static_cast<double>(done) / static_cast<double>(times),
                          {std::to_string(done) + " of " + std::to_string(times) + " times of " + what});
        }};
  };
  const auto set_provenance = [&](const char* part) {
    std::erase_if(machine.provenance, [&](const model::Provenance& p) { return p.part == part; });
    machine.provenance.push_back({part, provenance_of(comm)});
  };
  if (!has_transfers(comm, machine)) {
    all = measure_transfers(comm, machine, options_of("messages and halo exchanges"));
    fit_transfers(all, machine);
    set_provenance("transfers");
    save(comm, machine);
  }
  const bool known = std::ranges::any_of(
      machine.collectives, [&](const model::CollectiveFit& fit) { return fit.ranks == ranks && fit.nodes == nodes; });
  if (known) return all;
  std::vector<CommunicationTimes> collectives = measure_collectives(comm, machine, options_of("collectives"));
  fit_collectives(collectives, machine, ranks);
  if (!machine.collectives.empty()) set_provenance("collectives");
  save(comm, machine);
  std::ranges::move(collectives, std::back_inserter(all));
  return all;
}

std::string CalibrateCommand::add_convolutions_of_model(const comm::Communicator& comm, model::Machine& machine) const {
  if (!convolutions_.given()) return "";
  const std::vector<model::PlannedNetwork> networks = convolutions_.planned(comm);
  using Clock = std::chrono::steady_clock;
  Clock::time_point saved = Clock::now();
  Progress progress(comm.rank() == 0 ? ProgressStyle::automatic : ProgressStyle::none);
  add_convolutions(
      comm, machine, networks, convolutions_.most_workspace_bytes(),
      [&](std::size_t done, std::size_t all) {
        const double share = static_cast<double>(done) / static_cast<double>(std::max<std::size_t>(1, all));
        if (progress.due())
          progress.show(share, {std::to_string(done) + " of " + std::to_string(all) + " convolutions"});
      },
      [&] {
        if (output_.empty() || comm.rank() != 0 || Clock::now() - saved < std::chrono::seconds(20)) return;
        write_result_file(output_, to_json_text(machine));
        saved = Clock::now();
      });
  return convolution_times_text(machine, networks);
}

void CalibrateCommand::run(const comm::Communicator& comm) const {
  comm::collectively(comm, "aloni calibrate", [&] {
    if (comm.rank() != 0) return;
    for (const std::string& path : {output_, json_, drawing_}) {
      if (!path.empty()) check_result_file_can_be_written(path);
    }
  });
  model::Machine machine = first_part(comm);
  const std::vector<CommunicationTimes> communication = add_communication(comm, machine);
  if (!machine.all_reduces.empty()) comm.set_tuning(machine.all_reduces.front());

  std::vector<LearnedSummary> learned;
  if (kernel_seconds() > 0) {
    const KernelCalibrationOptions options{.seconds = kernel_seconds()};
    using Clock = std::chrono::steady_clock;
    Clock::time_point saved = Clock::now();
    {
      Progress progress(comm.rank() == 0 ? ProgressStyle::automatic : ProgressStyle::none);
      add_kernels(
          comm, machine, options,
          [&](double share, std::size_t kernels) {
            if (progress.due()) progress.show(share, {std::to_string(kernels) + " kernels"});
          },
          [&] {  // an interruption loses less than half a minute
            if (output_.empty() || comm.rank() != 0 || Clock::now() - saved < std::chrono::seconds(20)) return;
            write_result_file(output_, to_json_text(machine));
            saved = Clock::now();
          });
    }
    learned = learn_kernels(comm, machine, options);
    save(comm, machine);
  }

  const std::string convolutions = add_convolutions_of_model(comm, machine);
  if (!tiles_.empty()) add_tile_kernels(comm, machine, *parse_integers(tiles_, 1, most_tile_rows));

  comm::collectively(comm, "aloni calibrate", [&] {
    if (comm.rank() != 0) return;
    print(machine);
    if (!machine.all_reduces.empty()) print(comm, machine.all_reduces.front());
    print(communication);
    print(learned);
    std::fputs(convolutions.c_str(), stdout);
    if (std::fflush(stdout) != 0) {
      throw FileError("aloni calibrate", "standard output", "cannot be written",
                      "a device with free space for the results");
    }
    if (!output_.empty()) write_result_file(output_, to_json_text(machine));
    if (!json_.empty()) write_result_file(json_, to_json(comm, machine, communication, learned).dump(2) + "\n");
    if (!drawing_.empty())
      write_result_file(drawing_, to_svg(drawing_subtitle(comm, machine), drawn_times(comm, machine, communication)));
  });
}

}  // namespace aloni::tools

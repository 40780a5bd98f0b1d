#include <aloni/core/comm/calibration.hpp>
#include <aloni/core/error.hpp>
#include <aloni/tools/calibrate_command.hpp>
#include <aloni/tools/option.hpp>
#include <aloni/tools/result_file.hpp>
#include <aloni/tools/together.hpp>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <vector>

namespace aloni::tools {

namespace {

using Json = nlohmann::ordered_json;

std::string microseconds(double seconds) {
  if (seconds < 0) return "-";
  char text[32];
  std::snprintf(text, sizeof text, seconds < 1e-4 ? "%.2f" : "%.0f", seconds * 1e6);
  return text;
}

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
              tuning.nodes, microseconds(tuning.latency).c_str(),
              tuning.seconds_per_byte > 0 ? 1e-9 / tuning.seconds_per_byte : 0.0,
              1e-9 / tuning.combine_seconds_per_byte);
  std::printf("all-reduce of floats: us measured (us predicted); * marks the chosen algorithm\n%12s", "bytes");
  const auto reports = reports_of(comm, 64);
  for (const auto& report : reports) std::printf("  %-22s", to_string(report.algorithm).c_str());
  std::printf("\n");
  for (const std::size_t bytes : sizes_of(tuning)) {
    std::printf("%12zu", bytes);
    for (const auto& report : reports_of(comm, bytes)) {
      const std::string cell = report.unsupported.empty() ? microseconds(report.measured_seconds) + " (" +
                                                                microseconds(report.predicted_seconds) + ")"
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

Json to_json(const comm::Communicator& comm, const comm::Tuning& tuning) {
  Json json;
  json["ranks"] = tuning.ranks;
  json["nodes"] = tuning.nodes;
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
  return json;
}

}  // namespace

CalibrateCommand::CalibrateCommand(CLI::App& app)
    : command_(app.add_subcommand("calibrate", "Measure all-reduce algorithms and choose one for each size")) {
  command_->add_option("--output", output_, "Write the measurements to this file, for aloni train --tuning")
      ->type_name("FILE")
      ->take_last();
  command_->add_option("--json", json_, "Write measured and predicted times to this file")
      ->type_name("FILE")
      ->take_last();
  command_->add_option("--largest-bytes", largest_bytes_, "Size of the largest all-reduce, bytes")
      ->capture_default_str()
      ->check(fits_64_bits)
      ->take_last();
  command_->add_option("--seconds", seconds_, "Time for each size and algorithm, seconds")
      ->capture_default_str()
      ->take_last();
}

bool CalibrateCommand::chosen() const { return command_->parsed(); }

void CalibrateCommand::check() const {
  if (command_->count("--json") > 0 && json_.empty()) throw UsageError("--json = \"\": expected the path of a file");
  if (command_->count("--output") > 0 && output_.empty())
    throw UsageError("--output = \"\": expected the path of a file");
  if (largest_bytes_ < 64 || largest_bytes_ > std::size_t{1} << 34) {
    throw UsageError("--largest-bytes = " + std::to_string(largest_bytes_) + ": expected 64 to " +
                     std::to_string(std::size_t{1} << 34) + " bytes");
  }
  if (!(seconds_ > 0 && seconds_ <= 60)) {
    throw UsageError("--seconds = " + std::to_string(seconds_) + ": expected more than 0, at most 60 seconds");
  }
}

void CalibrateCommand::add_to(comm::ReplicatedValues& values) const {
  const auto given = [](const std::string& path) { return std::string(path.empty() ? "not given" : "given"); };
  values.add("--output", given(output_)).add("--json", given(json_));
  values.add("--largest-bytes", largest_bytes_).add("--seconds", seconds_);
}

void CalibrateCommand::run(const comm::Communicator& comm) const {
  comm::collectively(comm, "aloni calibrate", [&] {
    if (comm.rank() != 0) return;
    for (const std::string& path : {output_, json_}) {
      if (!path.empty()) check_result_file_can_be_written(path);
    }
  });
  const comm::Tuning tuning = comm::calibrate(comm, {.largest_bytes = largest_bytes_, .seconds_per_case = seconds_});
  comm.set_tuning(tuning);
  comm::collectively(comm, "aloni calibrate", [&] {
    if (comm.rank() != 0) return;
    print(comm, tuning);
    if (std::fflush(stdout) != 0) {
      throw FileError("aloni calibrate", "standard output", "cannot be written",
                      "a device with free space for the results");
    }
    if (!output_.empty()) write_result_file(output_, to_text(tuning));
    if (!json_.empty()) write_result_file(json_, to_json(comm, tuning).dump(2) + "\n");
  });
}

}  // namespace aloni::tools

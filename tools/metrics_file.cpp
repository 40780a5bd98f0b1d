#include <aloni/tools/metrics_file.hpp>

#include <aloni/core/error.hpp>
#include <aloni/core/io/file_system.hpp>
#include <aloni/core/printable.hpp>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

namespace aloni::tools {

namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

constexpr const char* metrics_operation = "aloni train --run";

}  // namespace

MetricsFile::MetricsFile(const std::string& path) : path_(path), file_(std::fopen(path.c_str(), "ab")) {
  if (!file_) throw FileError(metrics_operation, printable(path), std::strerror(errno), "a file that can be written");
}

void MetricsFile::after_step(const nn::StepReport& step) {
  if (!has_begun_) begin_at(step.step);
  last_step_ = step.step;
  write(Json{{"step", step.step}, {"loss", step.loss}, {"learning_rate", step.learning_rate}, {"seconds", step.seconds}}
            .dump());
}

void MetricsFile::after_epoch(int epoch, int, const nn::EpochReport& report, double samples_per_second) {
  Json line{{"epoch", epoch}, {"step", last_step_}, {"loss", report.loss}};
  if (report.test_accuracy) line["test_accuracy"] = *report.test_accuracy;
  if (report.test_loss) line["test_loss"] = *report.test_loss;
  for (const auto& metric : report.test_metrics) line["test_" + metric.name] = metric.value;
  line["samples_per_second"] = samples_per_second;
  write(line.dump());
}

void MetricsFile::write(const std::string& line) {
  errno = 0;
  bool good = std::fputs((line + "\n").c_str(), file_.get()) >= 0;
  if (const auto now = Clock::now(); now - flushed_ > std::chrono::seconds(1)) {
    good = std::fflush(file_.get()) == 0 && good;
    flushed_ = now;
  }
  if (!good && error_ == 0) error_ = errno;
}

void MetricsFile::begin_at(std::int64_t step) {
  has_begun_ = true;
  if (std::fseek(file_.get(), 0, SEEK_END) != 0 || std::ftell(file_.get()) <= 0) return;
  shorten_metrics(path_, step - 1);
  file_.reset(std::fopen(path_.c_str(), "ab"));
  if (!file_) throw FileError(metrics_operation, printable(path_), std::strerror(errno), "a file that can be written");
}

void MetricsFile::finish() {
  if (std::fflush(file_.get()) != 0 && error_ == 0) error_ = errno;
  if (error_ != 0) {
    throw FileError(metrics_operation, printable(path_), std::string("incomplete: ") + std::strerror(error_),
                    "a device with free space for the metrics; the training itself is complete");
  }
}

Metrics read_metrics(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw FileError(metrics_operation, printable(path), std::strerror(errno), "a readable file");
  Metrics metrics;
  for (std::string line; std::getline(file, line);) {
    const Json json = Json::parse(line, nullptr, false);
    if (!json.is_object() || !json.contains("step") || !json["step"].is_number_unsigned()) continue;
    const auto step = json["step"].get<std::int64_t>();
    if (json.contains("epoch")) {
      metrics.last_steps.push_back(step);
    } else if (step >= 1 && json.contains("learning_rate") && json["learning_rate"].is_number()) {
      constexpr std::int64_t most_steps = 1'000'000'000;
      if (step > most_steps) continue;
      metrics.learning_rates.resize(static_cast<std::size_t>(step), std::nan(""));
      metrics.learning_rates.back() = json["learning_rate"].get<double>();
    }
  }
  return metrics;
}

void shorten_metrics(const std::string& path, std::int64_t step) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return;
  std::string kept, line;
  while (std::getline(file, line)) {
    const Json json = Json::parse(line, nullptr, false);
    if (json.is_object() && json.contains("step") && json["step"].is_number_integer() && json["step"] <= step)
      kept += line + "\n";
  }
  io::write_file(io::real_file_system(), path, kept);
}

}  // namespace aloni::tools

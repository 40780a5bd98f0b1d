#include <aloni/tools/run_folder.hpp>

#include <aloni/core/error.hpp>
#include <aloni/core/io/file_system.hpp>
#include <aloni/core/printable.hpp>
#include <aloni/core/text_file.hpp>
#include <aloni/tools/model_argument.hpp>
#include <aloni/tools/plan_drawing.hpp>
#include <aloni/tools/quantity_text.hpp>
#include <aloni/tools/report_page.hpp>
#include <aloni/tools/result_file.hpp>
#include <aloni/tools/run_configuration.hpp>
#include <aloni/tools/sample_report.hpp>

#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <limits>

namespace aloni::tools {

namespace {

constexpr const char* run_operation = "aloni train --run";

std::string absolute(const std::string& path) {
  std::error_code error;
  const auto whole = std::filesystem::absolute(path, error);
  return error ? path : whole.string();
}

bool is_file(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path, error);
}

/// Paths do not depend on the present folder. Small files are copied, because they may change after the run.
RunFolder::Options lasting(const RunFolder::Options& options, const std::string& folder) {
  RunFolder::Options all;
  for (auto [name, value] : options) {
    const char* const copy = name == "--strategy"                        ? "strategy"
                             : name == "--machine"                       ? "machine.json"
                             : name == "--model" && is_model_file(value) ? "model.json"
                                                                         : nullptr;
    if (copy && is_file(value)) {
      const std::string text = read_text_file(run_operation, value, "a readable file");
      io::write_file(io::real_file_system(), folder + "/" + copy, text);
      value = std::string("./") + copy;
    } else if ((name == "--data" && value != "synthetic") || name == "--weights" || name == "--checkpoint") {
      value = absolute(value);
    }
    all.emplace_back(name, value);
  }
  return all;
}

std::string percent(double fraction) { return fmt::format("{:.2f} %", 100 * fraction); }

ReportPage::Texts tiles_of(const nn::TrainReport& report) {
  ReportPage::Texts tiles;
  if (!report.epochs.empty()) {
    const nn::EpochReport& last = report.epochs.back();
    tiles.emplace_back("loss of the last epoch", fmt::format("{:.4f}", last.loss));
    if (last.test_loss) tiles.emplace_back("test loss", fmt::format("{:.4f}", *last.test_loss));
    if (last.test_accuracy) tiles.emplace_back("test accuracy", percent(*last.test_accuracy));
    for (const auto& metric : last.test_metrics)
      tiles.emplace_back("test " + nn::text_of_metric(metric.name), value_text(metric));
  }
  tiles.emplace_back("steps", fmt::format("{}", report.losses.size()));
  tiles.emplace_back("step (median)", fmt::format("{:.3g} ms", 1e3 * report.step_seconds));
  tiles.emplace_back("samples per second", fmt::format("{:.0f}", report.samples_per_second));
  tiles.emplace_back("sent per step", bytes_text(static_cast<Index>(report.bytes_sent)));
  return tiles;
}

}  // namespace

RunFolder::RunFolder(const std::string& path, RunConfiguration configuration, const std::string& chosen_strategy,
                     bool resumes)
    : path_(path) {
  io::FileSystem& files = io::real_file_system();
  files.make_folder(path);
  const std::string file = path + "/config.json";
  if (!resumes && files.size(file) >= 0) {
    throw FileError(run_operation, printable(path), "has a run already",
                    "another folder, or --resume to go on with the run");
  }
  configuration.options = options_ = lasting(configuration.options, path);
  if (!chosen_strategy.empty()) {
    io::write_file(files, path + "/strategy", chosen_strategy);
    configuration.chosen.emplace_back("--strategy", "./strategy");
  }
  io::write_file(files, file, configuration_text(configuration));
  metrics_.emplace(path + "/metrics.jsonl");
}

void RunFolder::explain_convolutions(const std::string& table) const {
  io::write_file(io::real_file_system(), path_ + "/convolutions.txt", table);
}

void RunFolder::finish(const nn::TrainReport& report, const TrainRun& run, const PlanRequest& request) {
  metrics_->finish();
  const Metrics metrics = read_metrics(path_ + "/metrics.jsonl");
  const PlanSummary plan = summarise(request);
  ReportPage page;
  page.title = run.model + " on " + run.data;
  page.subtitle = heading(request, plan);
  page.tiles = tiles_of(report);
  page.losses = report.losses;
  page.rates = metrics.learning_rates;
  for (std::size_t e = 0; e < report.epochs.size() && e < metrics.last_steps.size(); ++e) {
    const nn::EpochReport& epoch = report.epochs[e];
    page.epochs.push_back({metrics.last_steps[e], epoch.loss});
    if (epoch.test_loss) page.epochs.back().metrics.emplace_back("test loss", *epoch.test_loss);
    if (epoch.test_accuracy) page.epochs.back().metrics.emplace_back("test accuracy", *epoch.test_accuracy);
    for (const auto& metric : epoch.test_metrics)
      page.epochs.back().metrics.emplace_back("test " + nn::text_of_metric(metric.name), metric.value);
  }
  for (const auto& [name, seconds] : phases(report.time)) page.seconds.emplace_back(name, seconds);
  page.measured_bytes = static_cast<double>(report.peak_memory_bytes);
  page.predicted_bytes = static_cast<double>(report.predicted_memory_bytes);
  page.layers = plan.layers;
  page.spatial_rank = request.network.spatial_rank;
  page.plan_picture = to_svg(drawing_of(request, plan));
  page.samples = samples_of(report.samples, request.network.loss);
  page.configuration = options_;
  page.configuration.emplace_back("ranks", std::to_string(run.ranks));
  write_result_file(report_path(), to_html(page));
}

}  // namespace aloni::tools

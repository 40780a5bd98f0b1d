#include <aloni/core/comm/trace.hpp>
#include <aloni/core/version.hpp>
#include <aloni/nn/step_times.hpp>
#include <aloni/tools/quantity_text.hpp>
#include <aloni/tools/train_output.hpp>

#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

namespace aloni::tools {

namespace {

nlohmann::ordered_json json_of(const ComparedTime& time) {
  return {{"name", time.name},
          {"predicted_seconds", time.predicted},
          {"measured_seconds", time.measured},
          {"error", time.error()}};
}

nlohmann::ordered_json json_of(const StepComparison& comparison) {
  nlohmann::ordered_json json{{"machine", comparison.machine},
                              {"steps", comparison.steps},
                              {"input_seconds", comparison.input},
                              {"step", json_of(comparison.step)}};
  for (const auto& [name, times] : {std::pair("phases", &comparison.phases), std::pair("kinds", &comparison.kinds),
                                    std::pair("layers", &comparison.layers), std::pair("nodes", &comparison.nodes)}) {
    json[name] = nlohmann::ordered_json::array();
    for (const ComparedTime& time : *times) json[name].push_back(json_of(time));
  }
  const ComparedTime* worst = comparison.worst_layer();
  json["mean_error"] = comparison.mean_error();
  json["worst_error"] = worst ? nlohmann::ordered_json(worst->error()) : nlohmann::ordered_json();
  json["worst_layer"] = worst ? nlohmann::ordered_json(worst->name) : nlohmann::ordered_json();
  return json;
}

}  // namespace

std::string value_text(const nn::Metric& metric) {
  return metric.name == "top5_accuracy" ? fmt::format("{:.2f} %", 100 * metric.value)
                                        : fmt::format("{:.4f}", metric.value);
}

std::array<std::pair<const char*, double>, 4> phases(const nn::TimeReport& t) {
  return {{{"compute", t.compute}, {"halo", t.halo}, {"collective", t.collective}, {"input", t.input}}};
}

TrainSpeaker::TrainSpeaker(ProgressStyle style, Index batch, Index samples_per_epoch)
    : progress_(style),
      batch_(std::min(batch, samples_per_epoch)),
      steps_per_epoch_((samples_per_epoch + batch_ - 1) / batch_) {}

void TrainSpeaker::after_step(const nn::StepReport& report) {
  const auto& [step, total_steps, loss, learning_rate, seconds] = report;
  // A mean over about twenty steps: steady enough to read, and it adapts soon when other programs slow the machine.
  constexpr double weight = 0.05;
  step_seconds_ = step_seconds_ == 0 ? seconds : (1 - weight) * step_seconds_ + weight * seconds;
  if (!progress_.due()) return;
  const double fraction = static_cast<double>(step) / static_cast<double>(total_steps);
  const double left = static_cast<double>(total_steps - step) * step_seconds_;
  const std::int64_t epochs = (total_steps + steps_per_epoch_ - 1) / steps_per_epoch_;
  progress_.show(fraction, {fmt::format("{:3.0f} %", 100 * fraction), clock_time(left) + " left",
                            fmt::format("{:.0f} samples/s", static_cast<double>(batch_) / step_seconds_),
                            fmt::format("loss {:.4f}", loss),
                            fmt::format("epoch {}/{}", (step - 1) / steps_per_epoch_ + 1, epochs)});
}

void TrainSpeaker::after_epoch(int epoch, int epochs, const nn::EpochReport& report, double samples_per_second) {
  progress_.clear();
  std::string test = report.test_accuracy ? fmt::format(", test accuracy {:.2f} %", 100 * *report.test_accuracy)
                     : report.test_loss   ? fmt::format(", test loss {:.4f}", *report.test_loss)
                                          : "";
  for (const auto& metric : report.test_metrics)
    test += fmt::format(", {} {}", nn::text_of_metric(metric.name), value_text(metric));
  fmt::print("epoch {}/{}: loss {:.4f}{}, {:.0f} samples/s\n", epoch, epochs, report.loss, test, samples_per_second);
  std::fflush(stdout);
}

std::string summary(const nn::TrainReport& report) {
  std::string text = fmt::format("speed       {:.0f} samples/s, {:.3f} ms per step (median)\n",
                                 report.samples_per_second, 1e3 * report.step_seconds);
  double sum = 0;
  for (const auto& [name, seconds] : phases(report.time)) sum += seconds;
  const char* heading = "time";
  for (const auto& [name, seconds] : phases(report.time)) {
    text +=
        fmt::format("{:<11} {:<10} {:9.3f} s {:6.1f} %\n", heading, name, seconds, sum > 0 ? 100 * seconds / sum : 0.0);
    heading = "";
  }
  text += fmt::format("sent        {} in {} messages per step (largest rank)\n", bytes_text(report.bytes_sent),
                      report.messages);
  if (report.loss_scale)
    text += fmt::format("loss scale  {:g}, {} skipped\n", report.loss_scale->value,
                        count_text(report.loss_scale->skipped_in_all, "update"));
  if (!report.recomputed.empty()) text += fmt::format("recomputed  {}\n", report.recomputed);
  if (!report.offloaded.empty()) text += fmt::format("offloaded   {}\n", report.offloaded);
  return text + fmt::format("memory      {}, predicted {} (largest rank)\n", bytes_text(report.peak_memory_bytes),
                            bytes_text(report.predicted_memory_bytes));
}

std::string to_json(const nn::TrainReport& report, const TrainRun& run, const StepComparison* comparison) {
  nlohmann::ordered_json json;
  json["losses"] = report.losses;
  json["epochs"] = nlohmann::ordered_json::array();
  for (const auto& epoch : report.epochs) {
    nlohmann::ordered_json entry{{"loss", epoch.loss}};
    if (epoch.test_accuracy) entry["test_accuracy"] = *epoch.test_accuracy;
    if (epoch.test_loss) entry["test_loss"] = *epoch.test_loss;
    for (const auto& metric : epoch.test_metrics) entry["test_" + metric.name] = metric.value;
    json["epochs"].push_back(entry);
  }
  json["step_seconds"] = report.step_seconds;
  json["samples_per_second"] = report.samples_per_second;
  for (const auto& [name, seconds] : phases(report.time)) json["time"][name] = seconds;
  json["peak_memory_bytes"] = report.peak_memory_bytes;
  if (report.memory_of_all_ranks_bytes > 0) json["memory_of_all_ranks_bytes"] = report.memory_of_all_ranks_bytes;
  json["predicted_memory_bytes"] = report.predicted_memory_bytes;
  if (!report.recomputed.empty()) json["recomputed"] = report.recomputed;
  if (!report.offloaded.empty()) json["offloaded"] = report.offloaded;
  if (report.loss_scale) {
    json["loss_scale"] = report.loss_scale->value;
    json["skipped_updates"] = report.loss_scale->skipped_in_all;
  }
  json["bytes_sent"] = report.bytes_sent;
  json["messages"] = report.messages;
  if (comparison) json["comparison"] = json_of(*comparison);
  json["run"] = {{"version", version()},       {"model", run.model}, {"data", run.data},   {"strategy", run.strategy},
                 {"precision", run.precision}, {"ranks", run.ranks}, {"batch", run.batch}, {"seed", run.seed}};
  // A path may contain bytes that are not UTF-8.
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::string trace_text(const comm::Communicator& comm, const nn::TrainReport& report, const TrainRun& run) {
  const Trace mine = comm::collectively(comm, "aloni train --trace: times of this rank",
                                        [&] { return nn::trace_of(*report.times, comm.rank()); });
  const std::array<TraceArgument, 8> about{{{"version", std::string(version())},
                                            {"model", run.model},
                                            {"data", run.data},
                                            {"strategy", run.strategy},
                                            {"precision", run.precision},
                                            {"ranks", std::int64_t{run.ranks}},
                                            {"batch", std::int64_t{run.batch}},
                                            {"seed", run.seed}}};
  return comm::gather_trace(comm, mine, about);
}

}  // namespace aloni::tools

#include <aloni/tools/step_sources.hpp>

#include <aloni/tools/quantity_text.hpp>

#include <fmt/format.h>

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

namespace aloni::tools {

namespace {

/// "80 % measured, 20 % links"; empty if all shares are 0.
template <class Source, std::size_t n>
std::string shares_text(const std::array<double, n>& shares) {
  std::string text;
  for (std::size_t s = 0; s < n; ++s) {
    if (shares[s] == 0) continue;
    text += fmt::format("{}{:.0f} % {}", text.empty() ? "" : ", ", 100 * shares[s], name(static_cast<Source>(s)));
  }
  return text;
}

template <class Source, std::size_t n>
nlohmann::ordered_json shares_json(const std::array<double, n>& shares) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (std::size_t s = 0; s < n; ++s) json[std::string(name(static_cast<Source>(s)))] = shares[s];
  return json;
}

nlohmann::ordered_json error_json(const model::KernelSeconds& kernels) {
  const std::optional<double> error = kernels.relative_error();
  return error ? nlohmann::ordered_json(*error) : nlohmann::ordered_json();
}

std::string error_text(const model::KernelSeconds& kernels) {
  const std::optional<double> error = kernels.relative_error();
  if (!error) return "expected error not known: no time is measured or learned";
  const bool has_roofline = kernels.by_source[static_cast<std::size_t>(model::KernelSource::roofline)] > 0;
  return "expected error " + model::percent_text(*error) +
         (has_roofline ? " of measured and learned times; not known for the roofline" : "");
}

}  // namespace

model::KernelSeconds StepSources::all_kernels() const { return sum_of(kernels); }

StepSources sources_of(const model::SimulatedStep& step) {
  return {step.kernels, step.sum_sources, step.transfer_sources};
}

std::string source_text(const model::KernelSeconds& kernels) {
  const auto main = kernels.main_source();
  if (!main) return "";
  const std::optional<double> error = kernels.relative_error();
  // A roofline that takes most of the time has no error; that of the other kernels would seem to be its own.
  if (!error || main->source == model::KernelSource::roofline) return std::string(name(main->source));
  return fmt::format("{} {}", name(main->source), model::percent_text(*error));
}

std::string to_text(const StepSources& sources) {
  const model::KernelSeconds all = sources.all_kernels();
  std::string text = fmt::format("kernels    {}\n", shares_text<model::KernelSource>(all.shares()));
  if (all.sum() > 0) text += fmt::format("           {}\n", error_text(all));
  for (const auto& [label, shares] : {std::pair("sums", &sources.sums), std::pair("transfers", &sources.transfers)})
    if (const std::string shown = shares_text<model::CommunicationSource>(*shares); !shown.empty())
      text += fmt::format("{:<9}  {}\n", label, shown);
  return text;
}

void add_sources(const StepSources& sources, nlohmann::ordered_json& json) {
  const model::KernelSeconds all = sources.all_kernels();
  json["kernel_sources"] = shares_json<model::KernelSource>(all.shares());
  json["kernel_error"] = error_json(all);
  json["sum_sources"] = shares_json<model::CommunicationSource>(sources.sums);
  json["transfer_sources"] = shares_json<model::CommunicationSource>(sources.transfers);
}

void add_sources(const model::KernelSeconds& kernels, nlohmann::ordered_json& json) {
  const auto main = kernels.main_source();
  json["kernel_source"] = main ? nlohmann::ordered_json(name(main->source)) : nlohmann::ordered_json();
  json["kernel_source_share"] = main ? nlohmann::ordered_json(main->share) : nlohmann::ordered_json();
  json["kernel_error"] = error_json(kernels);
}

}  // namespace aloni::tools

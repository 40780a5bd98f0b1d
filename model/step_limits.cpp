#include <aloni/model/step_limits.hpp>

#include <aloni/model/detail/choice_reasons.hpp>

#include <algorithm>
#include <utility>

namespace aloni::model {

namespace {

/// Less is within the error of the model.
constexpr double least_gain_of_limits = 0.01;

std::string size_text(Index bytes) {
  constexpr Index mebibyte = Index{1} << 20, kibibyte = Index{1} << 10;
  if (bytes >= mebibyte && bytes % mebibyte == 0) return std::to_string(bytes / mebibyte) + " MiB";
  return std::to_string(bytes / kibibyte) + " KiB";
}

bool exchanges_ghosts(const nn::NetworkPlan& layers) {
  return std::ranges::any_of(layers.layers, [](const nn::LayerPlan& l) { return l.input.grid().spatial_size() > 1; });
}

}  // namespace

StepLimits choose_step_limits(const nn::NetworkDescription& network, const nn::NetworkPlan& layers,
                              const Machine& machine, const KernelTimes& kernels, const SimulationOptions& options) {
  Machine tried = machine;
  SimulationOptions with = options;
  with.timeline = false;
  const auto seconds = [&] { return simulate(network, layers, tried, kernels, with).seconds; };
  StepLimits limits{.bucket_bytes = machine.planning.bucket_bytes, .largest_overhead = options.step.largest_overhead};
  limits.seconds = limits.seconds_before = seconds();
  const auto is_better = [&](double now) { return now < (1 - least_gain_of_limits) * limits.seconds; };
  if (layers.input.ranks() > 1 && options.kind == nn::StepKind::training) {
    const Index given = limits.bucket_bytes;
    Index gradients = 0;
    for (const auto& p : nn::parameters_of(network)) gradients += p.extents.size() * static_cast<Index>(sizeof(float));
    for (const Index bytes : {given / 4, 4 * given, 16 * given}) {
      if (bytes < 1 || gradients < std::min(bytes, given)) continue;  // one bucket in both cases
      tried.planning.bucket_bytes = bytes;
      if (const double now = seconds(); is_better(now)) {
        limits.bucket_bytes = bytes;
        limits.seconds = now;
      }
    }
    tried.planning.bucket_bytes = limits.bucket_bytes;
  }
  if (exchanges_ghosts(layers)) {
    for (const double overhead : {interior_at_once, interior_always_first}) {
      with.step.largest_overhead = overhead;
      if (const double now = seconds(); is_better(now)) {
        limits.largest_overhead = overhead;
        limits.seconds = now;
      }
    }
  }
  std::string changed;
  if (limits.bucket_bytes != machine.planning.bucket_bytes)
    changed =
        "buckets of " + size_text(limits.bucket_bytes) + ", not " + size_text(machine.planning.bucket_bytes) + "; ";
  if (limits.largest_overhead != options.step.largest_overhead)
    changed += *limits.largest_overhead > 0 ? "interiors first; " : "no interiors first; ";
  limits.reason = changed.empty() ? "as given; no others save 1 % of a step"
                                  : changed + "a step takes " + detail::duration_text(limits.seconds) + ", not " +
                                        detail::duration_text(limits.seconds_before);
  return limits;
}

}  // namespace aloni::model

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
  const SimulatedStep given = simulate(network, layers, tried, kernels, with);
  StepLimits limits{.bucket_bytes = machine.planning.bucket_bytes,
                    .largest_overhead = options.step.largest_overhead,
                    .seconds = given.seconds,
                    .seconds_before = given.seconds};
  const auto is_better = [&](double now) { return now < (1 - least_gain_of_limits) * limits.seconds; };
  // Other buckets save communication that no kernel hides, and nothing else.
  const bool may_gain = is_better(given.seconds - given.exposed_communication);
  if (may_gain && options.kind == nn::StepKind::training && layers.input.ranks() > 1) {
    Index gradients = 0;
    for (const auto& p : nn::parameters_of(network)) gradients += p.extents.size() * static_cast<Index>(sizeof(float));
    const auto try_bucket = [&](Index bytes) {
      if (bytes < 1 || gradients < std::min(bytes, limits.bucket_bytes)) return false;  // one bucket in both cases
      tried.planning.bucket_bytes = bytes;
      const double now = seconds();
      if (!is_better(now)) return false;
      limits.bucket_bytes = bytes;
      limits.seconds = now;
      return true;
    };
    const Index bytes = machine.planning.bucket_bytes;
    if (try_bucket(4 * bytes)) {
      try_bucket(16 * bytes);
    } else {
      try_bucket(bytes / 4);
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

#include <aloni/model/step_limits.hpp>

#include <aloni/model/quantity_text.hpp>

#include <algorithm>
#include <limits>
#include <utility>

namespace aloni::model {

namespace {

/// Less is within the error of the model.
constexpr double least_gain_of_limits = 0.01;

Index bytes_of_gradients(const nn::NetworkDescription& network) {
  return nn::count_parameters(network) * static_cast<Index>(sizeof(float));
}

/// Then convolutions add partial sums, or gather rows, of several ranks.
bool splits_channels(const nn::NetworkPlan& layers) {
  return std::ranges::any_of(layers.layers, [](const nn::LayerPlan& l) {
    return l.convolution && (l.input.grid()[views::Dim::channel] > 1 || l.output.grid()[views::Dim::channel] > 1);
  });
}

bool exchanges_ghosts(const nn::NetworkPlan& layers) {
  return std::ranges::any_of(layers.layers, [](const nn::LayerPlan& l) { return l.input.grid().spatial_size() > 1; });
}

}  // namespace

double multiplications_per_slab(const Machine& machine) {
  const Processor& p = machine.processor;
  if (!(p.float32_flops > 0 && p.kernel_seconds > 0)) return machine.planning.multiplications_per_slab;
  const double refill = p.node_cache_bandwidth > 0 ? p.core_cache_bytes / p.node_cache_bandwidth : 0;
  const double overhead = std::max(machine.planning.interior_overhead_beside_messages, 1e-3);
  const LinkCosts& link = machine.link(LinkKind::between_nodes);
  // Larger fragments travel without the host's help.
  const Index fragment = std::min(machine.planning.fragment_bytes, fragment_bytes_over_tcp);
  const double seconds = std::max((p.kernel_seconds + refill) / overhead,
                                  link.latency + static_cast<double>(fragment) * link.seconds_per_byte);
  constexpr double flops = 1e9;
  const double for_flops = roofline_seconds(
      machine, {.kind = KernelKind::convolution_forward, .type = nn::ElementType::float32, .flops = flops}, 1,
      machine.threads_per_rank);
  constexpr double least = 1e6, most = 1e12;
  return std::clamp(seconds * flops / for_flops / 2, least, most);
}

StepLimits choose_step_limits(const nn::NetworkDescription& network, const nn::NetworkPlan& layers,
                              const Machine& machine, const KernelTimes& kernels, const SimulationOptions& options) {
  Machine tried = machine;
  SimulationOptions with = options;
  with.timeline = false;
  const auto seconds = [&] { return simulate(network, layers, tried, kernels, with).seconds; };
  const SimulatedStep given = simulate(network, layers, tried, kernels, with);
  StepLimits limits{.bucket_bytes = machine.planning.bucket_bytes,
                    .chunk_bytes = static_cast<Index>(machine.planning.chunk_bytes),
                    .largest_overhead = options.step.largest_overhead,
                    .seconds = given.seconds,
                    .seconds_before = given.seconds};
  const auto is_better = [&](double now) { return now < (1 - least_gain_of_limits) * limits.seconds; };
  // Four times the given size, and if that is better 16 times; otherwise a quarter, and if that is better a sixteenth.
  // `most`: all bytes; larger sizes do not differ.
  const auto choose_size = [&](Index StepLimits::*chosen, Index most, const auto& set) {
    const Index size = std::min(limits.*chosen, most);
    const auto is_chosen = [&](Index tried_size) {
      if (tried_size < 1) return false;
      set(tried_size);
      const double now = seconds();
      if (!is_better(now)) return false;
      limits.*chosen = tried_size;
      limits.seconds = now;
      return true;
    };
    if (is_chosen(4 * size)) {
      is_chosen(16 * size);
    } else if (is_chosen(size / 4)) {
      is_chosen(size / 16);
    }
    set(limits.*chosen);
  };
  // Other sizes save communication that no kernel hides, and nothing else.
  if (layers.input.ranks() > 1 && is_better(given.seconds - given.exposed_communication)) {
    if (options.kind == nn::StepKind::training)
      choose_size(&StepLimits::bucket_bytes, bytes_of_gradients(network),
                  [&](Index size) { tried.planning.bucket_bytes = size; });
    if (splits_channels(layers))
      choose_size(&StepLimits::chunk_bytes, std::numeric_limits<Index>::max() / 16,
                  [&](Index size) { tried.planning.chunk_bytes = static_cast<double>(size); });
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
  const auto add_size = [&](const char* what, Index size, Index before) {
    if (size != before) changed += what + whole_bytes_text(size) + ", not " + whole_bytes_text(before) + "; ";
  };
  add_size("buckets of ", limits.bucket_bytes, machine.planning.bucket_bytes);
  add_size("chunks of ", limits.chunk_bytes, static_cast<Index>(machine.planning.chunk_bytes));
  if (limits.largest_overhead != options.step.largest_overhead)
    changed += *limits.largest_overhead > 0 ? "interiors first; " : "no interiors first; ";
  limits.reason = changed.empty() ? "as given; no others save 1 % of a step"
                                  : changed + "a step takes " + duration_text(limits.seconds) + ", not " +
                                        duration_text(limits.seconds_before);
  return limits;
}

}  // namespace aloni::model

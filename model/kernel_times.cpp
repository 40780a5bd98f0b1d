#include <aloni/model/kernel_times.hpp>

#include <aloni/core/error.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

namespace aloni::model {

namespace {

/// Shares of the peak rate where arithmetic is the limit. Convolutions and products: oneDNN and cuDNN on large
/// problems. The others do not keep all units of a core busy, because each of their multiplications waits for a load.
double default_efficiency(KernelKind kind) {
  switch (kind) {
    case KernelKind::convolution_forward:
      return 0.85;
    case KernelKind::convolution_data:
      return 0.8;
    case KernelKind::convolution_filter:
      return 0.65;
    case KernelKind::dense:
      return 0.7;
    default:
      return 0.25;
  }
}

double peak_flops(const Processor& processor, nn::ElementType type) {
  switch (type) {
    case nn::ElementType::float64:
      return processor.float64_flops;
    case nn::ElementType::bfloat16:
      return processor.bfloat16_flops;
    case nn::ElementType::float16:
      return processor.float16_flops > 0 ? processor.float16_flops : processor.float32_flops;
    default:
      return processor.float32_flops;
  }
}

/// Rates of the published figures: a measured time may be wrong by its spread, a roofline by a factor.
constexpr double roofline_error = 0.4;

void check(bool fine, const char* field, double value, const std::string& machine) {
  if (fine) return;
  throw InvalidArgument("aloni::model::MachineKernels", field, std::to_string(value),
                        "more than 0: the machine " + machine + " needs it for kernels that are not measured");
}

}  // namespace

std::string_view name(KernelSource source) {
  constexpr std::array<std::string_view, kernel_sources> names{"measured", "learned", "roofline"};
  return names[static_cast<std::size_t>(source)];
}

void KernelSeconds::add(double seconds, const Estimate& estimate) {
  by_source[static_cast<std::size_t>(estimate.source)] += seconds;
  if (estimate.source != KernelSource::roofline) error += seconds * estimate.relative_error;
}

KernelSeconds& KernelSeconds::operator+=(const KernelSeconds& other) {
  for (std::size_t s = 0; s < by_source.size(); ++s) by_source[s] += other.by_source[s];
  error += other.error;
  return *this;
}

double KernelSeconds::sum() const { return std::accumulate(by_source.begin(), by_source.end(), 0.0); }

std::array<double, kernel_sources> KernelSeconds::shares() const {
  std::array<double, kernel_sources> shares = by_source;
  const double all = sum();
  for (double& share : shares) share = all > 0 ? share / all : 0;
  return shares;
}

KernelSeconds sum_of(const std::vector<KernelSeconds>& layers) {
  KernelSeconds all;
  for (const KernelSeconds& layer : layers) all += layer;
  return all;
}

std::optional<double> KernelSeconds::relative_error() const {
  const double known = by_source[static_cast<std::size_t>(KernelSource::measured)] +
                       by_source[static_cast<std::size_t>(KernelSource::learned)];
  return known > 0 ? std::optional(error / known) : std::nullopt;
}

std::optional<KernelSeconds::MainSource> KernelSeconds::main_source() const {
  const double all = sum();
  if (!(all > 0)) return std::nullopt;
  const auto most = std::ranges::max_element(by_source);
  return MainSource{static_cast<KernelSource>(most - by_source.begin()), *most / all};
}

MachineKernels::MachineKernels(const Machine& machine, int ranks_per_node, int threads_per_rank)
    : machine_(&machine),
      ranks_per_node_(ranks_per_node),
      threads_per_rank_(threads_per_rank),
      table_(table_for(machine, ranks_per_node, threads_per_rank)) {
  check(machine.processor.float32_flops > 0, "processor.float32_flops", machine.processor.float32_flops, machine.name);
  check(machine.processor.core_bandwidth > 0, "processor.core_bandwidth", machine.processor.core_bandwidth,
        machine.name);
  check(machine.processor.node_bandwidth > 0, "processor.node_bandwidth", machine.processor.node_bandwidth,
        machine.name);
}

Estimate MachineKernels::of(const KernelProblem& problem) const {
  if (table_) {
    if (const auto found = table_->times.find(problem.key); found != table_->times.end()) {
      return {found->second.seconds, KernelSource::measured, found->second.spread};
    }
  }
  Estimate sum{0, KernelSource::learned, 0};
  double error = 0;
  for (const KernelCall& call : problem.calls) {
    const auto learned = std::ranges::find_if(machine_->learned, [&](const LearnedKernel& model) {
      return model.kind == call.kind && model.type == call.type && model.ranks_per_node == ranks_per_node_ &&
             model.threads_per_rank == threads_per_rank_ && covers(model, call);
    });
    const bool is_learned = learned != machine_->learned.end();
    const double seconds = is_learned ? predict(*learned, call)
                                      : machine_->processor.kernel_seconds +
                                            roofline_seconds(*machine_, call, ranks_per_node_, threads_per_rank_);
    if (!is_learned) sum.source = KernelSource::roofline;
    sum.seconds += seconds;
    error += seconds * (is_learned ? learned->relative_error : roofline_error);
  }
  sum.relative_error = sum.seconds > 0 ? error / sum.seconds : 0;
  return sum;
}

double roofline_seconds(const Machine& machine, const KernelCall& call, int ranks_per_node, int threads_per_rank) {
  const Processor& p = machine.processor;
  const double threads = threads_per_rank, ranks = ranks_per_node;
  const auto given = p.efficiency.find(call.kind);
  const double efficiency =
      given != p.efficiency.end() && given->second > 0 ? given->second : default_efficiency(call.kind);
  double peak = peak_flops(p, call.type);
  if (peak <= 0) peak = call.type == nn::ElementType::float64 ? p.float32_flops / 2 : p.float32_flops;
  double bandwidth = std::min(threads * p.core_bandwidth, p.node_bandwidth / ranks);
  if (call.bytes <= threads * p.core_cache_bytes && p.core_cache_bandwidth > 0) {
    bandwidth = threads * p.core_cache_bandwidth;
  } else if (call.bytes <= p.node_cache_bytes / ranks && p.node_cache_bandwidth > 0) {
    bandwidth = threads * p.node_cache_bandwidth;
  }
  return std::max(call.flops / (threads * peak * efficiency), call.bytes / bandwidth);
}

}  // namespace aloni::model

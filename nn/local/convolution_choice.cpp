#include <aloni/nn/local/convolution_choice.hpp>

#include <aloni/nn/local/detail/onednn_problem.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <iterator>
#include <limits>
#include <optional>
#include <utility>

namespace aloni::nn::local {

namespace {

/// Whether oneDNN is faster than the direct kernels. Its vectors hold 16 channels of the result of a pass and should be
/// full: it is fast at reading a few channels, but slow at writing them. The direct backward-filter keeps all sums of a
/// thread in the cache. It is faster while the sums fit in the second-level cache and two vectors share each value of
/// x. Speed of oneDNN 2.6 divided by the speed of the direct kernels on two cores with AVX-512 (bench_conv), channels →
/// filters:
///                       forward   backward-data   backward-filter
///   3→64, 7×7              1.1         0.5              0.9
///   18→128, 5×5            1.2         0.6              0.6
///   64→64, 3×3             1.15        1.2              0.93
///   64→32, 3×3             1.2         1.3              1.0
///   32→32, 3×3×3           1.3         1.1              0.95
///   32→16, 3×3×3           1.35        1.1              1.45
///   384→128, 3×3           1.5         1.3              1.3
///   512→128, 1×1           1.1         1.15             1.5
/// and 1→16 0.7 forward. Both give the same bits if sums are exact.
bool suits_onednn(const ConvolutionProblem& p, ConvolutionPass pass, Index cached_bytes) {
  if (p.groups > 1 && p.channels == p.groups)
    return false;  // vectors over all channels: direct is as fast, and no copies
  const Index channels_of_group = p.channels_per_group(), filters_of_group = p.filters_per_group();
  const bool channels = channels_of_group >= 16 && channels_of_group % 16 == 0;
  const bool filters = filters_of_group >= 16 && filters_of_group % 16 == 0;
  const Index taps = p.kernel[0] * p.kernel[1] * p.kernel[2];
  const Index sum_bytes = taps * channels_of_group * filters_of_group * Index{sizeof(float)};
  switch (pass) {
    case ConvolutionPass::forward:
      return filters && (channels_of_group > 3 || (channels_of_group > 1 && filters_of_group > 16));
    case ConvolutionPass::backward_data:
      return channels;
    case ConvolutionPass::backward_filter:
      return channels && filters && (taps == 1 || filters_of_group < 32 || sum_bytes > cached_bytes);
  }
  return false;
}

bool is_depthwise(const ConvolutionProblem& p) { return p.groups > 1 && p.channels == p.groups; }

/// The measured times that decide.
struct NearestTimes {
  const std::vector<ImplementationTime>* times = nullptr;  ///< null: none is near enough
  ConvolutionCase measured = {};
  double distance = 0;  ///< 1: the problem itself; 0: none of its kind is measured
};

NearestTimes nearest_times(const ConvolutionCase& c, const MeasuredImplementations& measured) {
  NearestTimes nearest;
  if (measured.empty()) return nearest;
  const MeasuredImplementations::Times& all = measured.times();
  const MeasuredImplementations::Problem key = numbers_of(c);
  if (const auto same = all.find(key); same != all.end()) return {&same->second, c, 1};
  // A plan asks for many problems: only those of the same pass, type and gaps are compared, which are neighbours in the
  // table. Of problems at one distance the first one counts, on all ranks.
  const auto front = [](const MeasuredImplementations::Problem& p) {
    return MeasuredImplementations::Problem(p.begin(), p.begin() + std::min<std::ptrdiff_t>(std::ssize(p), 4));
  };
  for (auto next = all.lower_bound(front(key)); next != all.end() && front(next->first) == front(key); ++next) {
    const std::optional<ConvolutionCase> other = convolution_case_of(next->first);
    const double far = other ? distance(c, *other) : std::numeric_limits<double>::infinity();
    if (std::isinf(far) || (nearest.distance > 0 && far >= nearest.distance)) continue;
    nearest = {far <= farthest_measured ? &next->second : nullptr, *other, far};
  }
  return nearest;
}

/// Those that can run, the fastest one first.
using MeasuredChoices = std::vector<std::pair<ConvolutionImplementation, double>>;
MeasuredChoices choices_of(const std::vector<ImplementationTime>& times, const ConvolutionCase& c,
                           const MachineDescription& machine) {
  MeasuredChoices choices;
  for (const ImplementationTime& t : times) {
    const auto implementation = convolution_implementation_named(t.implementation);
    if (!implementation || t.workspace_bytes > machine.convolutions.most_workspace_bytes() ||
        cannot_run(implementation->backend, c, machine))
      continue;
    choices.emplace_back(*implementation, t.seconds);
  }
  std::ranges::stable_sort(choices, {}, &MeasuredChoices::value_type::second);
  return choices;
}

/// The place of the chosen one. `by_rule`: the fastest of its engines counts for cuDNN.
std::size_t place_of_choice(const MeasuredChoices& choices, ConvolutionBackend by_rule) {
  const auto kept = std::ranges::find_if(choices, [&](const auto& c) { return c.first.backend == by_rule; });
  const bool keeps = kept != choices.end() && choices.front().second > (1 - least_gain_of_choice) * kept->second;
  return keeps ? static_cast<std::size_t>(kept - choices.begin()) : 0;
}

struct Decision {
  ConvolutionChoice choice;
  NearestTimes nearest;
  MeasuredChoices choices;
  std::size_t place = 0;  ///< of the choice in `choices`, unless a rule decides
};

Decision decide(const ConvolutionCase& c, const MachineDescription& machine) {
  Decision d;
  const ConvolutionBackend by_rule = choose_backend(c.problem, c.pass, c.type, machine);
  d.choice = {{by_rule}, ChoiceSource::rule};
  d.nearest = nearest_times(c, machine.convolutions);
  if (!d.nearest.times) return d;
  d.choices = choices_of(*d.nearest.times, c, machine);
  if (d.choices.empty()) return d;
  d.place = place_of_choice(d.choices, by_rule);
  d.choice.implementation = d.choices[d.place].first;
  d.choice.source = d.nearest.measured == c ? ChoiceSource::measured : ChoiceSource::near;
  return d;
}

std::string duration_text(double seconds) {
  std::array<char, 32> text{};
  const bool is_short = seconds < 1e-3;
  std::snprintf(text.data(), text.size(), is_short ? "%.3g us" : "%.3g ms", seconds * (is_short ? 1e6 : 1e3));
  return text.data();
}

}  // namespace

ConvolutionBackend choose_backend(const ConvolutionProblem& p, ConvolutionPass pass, ElementType type,
                                  const MachineDescription& machine) {
  if (!machine.on_host) {
    if (machine.cudnn) return ConvolutionBackend::cudnn;
    // One thread per element reads contiguous channels. A matrix product for each channel would have one column only.
    if (is_depthwise(p) && pass != ConvolutionPass::backward_filter) return ConvolutionBackend::reference;
    return machine.kokkos_kernels ? ConvolutionBackend::kokkos_kernels : ConvolutionBackend::reference;
  }
  if (type == ElementType::bfloat16) return ConvolutionBackend::onednn;
  if (type == ElementType::float16) type = ElementType::float32;  // it computes in copies of float
  if (type == ElementType::float32 && machine.onednn && suits_onednn(p, pass, machine.filter_gradient_bytes) &&
      !detail::onednn_refusal(detail::padded_problem(p), pass, detail::OnednnActivations::float32))
    return ConvolutionBackend::onednn;
  return ConvolutionBackend::direct;
}

std::string_view name(ChoiceSource source) {
  constexpr std::array<std::string_view, 4> names{"given", "rule", "near", "measured"};
  return names[static_cast<std::size_t>(source)];
}

ConvolutionChoice choose_convolution(const ConvolutionCase& convolution, const MachineDescription& machine) {
  return decide(convolution, machine).choice;
}

std::string explain_choice(const ConvolutionCase& convolution, const MachineDescription& machine) {
  if (machine.convolutions.empty()) return "rule: no measured times";
  const Decision d = decide(convolution, machine);
  if (d.nearest.distance == 0) return "rule: no measured problem of this kind";
  if (!d.nearest.times) {
    std::array<char, 64> text{};
    std::snprintf(text.data(), text.size(), "rule: the nearest measured problem is %.3g times as", d.nearest.distance);
    return std::string(text.data()) + " large or small";
  }
  if (d.choices.empty()) return "rule: no measured implementation can run here";
  std::string text;
  const auto add = [&](const MeasuredChoices::value_type& choice) {
    text += (text.empty() ? "" : ", ") + to_string(choice.first) + ' ' + duration_text(choice.second);
  };
  add(d.choices[d.place]);
  for (std::size_t i = 0; i < d.choices.size(); ++i)
    if (i != d.place) add(d.choices[i]);
  const bool is_same = d.choice.source == ChoiceSource::measured;
  return (is_same ? "measured: " : "near: the times of " + to_string(d.nearest.measured) + ": ") + text;
}

bool cannot_run(ConvolutionBackend backend, const ConvolutionCase& c, const MachineDescription& machine) {
  switch (backend) {
    case ConvolutionBackend::automatic:
      return true;
    case ConvolutionBackend::reference:
      return false;
    case ConvolutionBackend::direct:
      return !machine.on_host || c.type == ElementType::bfloat16;
    case ConvolutionBackend::onednn: {
      if (!machine.on_host || !machine.onednn || c.type == ElementType::float64) return true;
      if (c.type == ElementType::bfloat16) return !machine.onednn_bfloat16;  // it has its own way for refused problems
      return detail::onednn_refusal(detail::padded_problem(c.problem), c.pass, detail::OnednnActivations::float32)
          .has_value();
    }
    case ConvolutionBackend::kokkos_kernels:
      return !machine.kokkos_kernels || c.type == ElementType::bfloat16 ||
             (c.type == ElementType::float16 && !machine.on_host);
    case ConvolutionBackend::cudnn:
      return machine.on_host || !machine.cudnn;
  }
  return true;
}

bool multiplies_for_filters(const ConvolutionProblem& problem, ElementType type) {
  const detail::PaddedProblem p = detail::padded_problem(problem);
#if defined(__x86_64__)
  constexpr bool has_products = true;
#else
  constexpr bool has_products = false;  // oneDNN has a plain loop in their place
#endif
  if (!has_products || type != ElementType::float32 || p.groups != 1 || p.reads_nothing()) return false;
  if (p.samples == 0 || p.channels == 0 || p.filters == 0) return false;
  const bool one_tap = p.kernel[0] * p.kernel[1] * p.kernel[2] == 1;
  const bool has_strides = p.stride[0] * p.stride[1] * p.stride[2] > 1;
  if (one_tap && !has_strides) return true;
  constexpr Index least_channels = 64, least_row = 64, least_strided_row = 32;
  return std::min(p.channels, p.filters) >= least_channels &&
         p.output[2] >= (has_strides ? least_strided_row : least_row);
}

bool copies_for_products(const ConvolutionProblem& problem) {
  constexpr Index short_row = 64;
  return problem.kernel == std::array<Index, 3>{1, 1, 1} && problem.output[2] < short_row;
}

std::vector<ConvolutionBackend> implementations_to_measure(const ConvolutionCase& convolution,
                                                           const MachineDescription& machine) {
  std::vector<ConvolutionBackend> all;
  for (const auto backend : {ConvolutionBackend::direct, ConvolutionBackend::onednn, ConvolutionBackend::cudnn,
                             ConvolutionBackend::kokkos_kernels})
    if (!cannot_run(backend, convolution, machine)) all.push_back(backend);
  // A naive loop is the fastest one for depthwise convolutions on devices.
  if (all.empty() || (!machine.on_host && is_depthwise(convolution.problem)))
    all.push_back(ConvolutionBackend::reference);
  return all;
}

}  // namespace aloni::nn::local

#include <aloni/nn/detail/output_extents.hpp>

#include <aloni/core/error.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

namespace aloni::nn::detail {

using views::Dim;
using views::Extents;

namespace {

constexpr const char* infer_operation = "aloni::nn::infer_extents";

// Limits for window members and extents, far enough below 2^63 that no sum or product here overflows.
constexpr Index max_window_value = std::numeric_limits<std::int32_t>::max();
constexpr Index max_tensor_elements = Index{1} << 62;

std::string in_quotes(const std::string& text) { return '"' + text + '"'; }

bool is_flat(const Extents& e) { return e[Dim::depth] == 1 && e[Dim::height] == 1 && e[Dim::width] == 1; }

// The checks of one layer, with its first input.
struct Subject {
  explicit Subject(const LayerInputs& i) : all(i), spatial_rank(i.spatial_rank), input(i.extents.front()) {}

  const LayerInputs& all;
  int spatial_rank;
  Extents input;

  [[noreturn]] void refuse(const std::string& member, const std::string& value, const std::string& expectation) const {
    detail::refuse(all, member, value, expectation);
  }

  void check_at_least(const std::string& what, Index value, Index lowest) const {
    if (value < lowest || value > max_window_value) {
      refuse(what, std::to_string(value),
             "between " + std::to_string(lowest) + " and " + std::to_string(max_window_value));
    }
  }

  void check_epsilon(double epsilon) const {
    if (!(epsilon > 0 && std::isfinite(epsilon))) refuse("epsilon", std::to_string(epsilon), "a positive number");
  }
};

// Whether every window has a tap inside [0, input). A window that starts inside has one. So only windows that start
// before the first element, and the last window, can have none.
bool every_window_touches(const halo::Stencil1D& w, Index input, Index outputs) {
  if ((outputs - 1) * w.stride - w.pad_low >= input) return false;
  for (Index o = 0; o < outputs && o * w.stride < w.pad_low; ++o) {
    const Index before = w.pad_low - o * w.stride;
    const Index first_tap = (before + w.dilation - 1) / w.dilation;
    if (first_tap >= w.kernel || first_tap * w.dilation - before >= input) return false;
  }
  return true;
}

void check_window(const Subject& s, const halo::Stencil1D& t, const std::string& at) {
  s.check_at_least("kernel" + at, t.kernel, 1);
  s.check_at_least("stride" + at, t.stride, 1);
  s.check_at_least("dilation" + at, t.dilation, 1);
  s.check_at_least("padding" + at, std::min(t.pad_low, t.pad_high), 0);
  s.check_at_least("padding" + at, std::max(t.pad_low, t.pad_high), 0);
}

Extents slide(const Subject& s, const Window& w, bool every_window_must_touch) {
  Extents out = s.input;
  for (int i = 0; i < 3; ++i) {
    const Dim d = views::spatial_dims[i];
    const std::string at = std::string(" in ") + views::name(d);
    const halo::Stencil1D t = stencil_of(w)[d];
    if (i < 3 - s.spatial_rank && t != halo::Stencil1D{}) {
      s.refuse(
          "window" + at, "",
          "no window in this dimension: the network has " + std::to_string(s.spatial_rank) + " spatial dimensions");
    }
    check_window(s, t, at);
    const Index padded = s.input[d] + t.pad_low + t.pad_high;
    if (t.reach() > padded) {
      s.refuse("window" + at, std::to_string(t.reach()) + " elements",
               "at most the " + std::to_string(padded) + " elements of its padded input");
    }
    out[d] = t.output_extent(s.input[d]);
    if (every_window_must_touch && !every_window_touches(t, s.input[d], out[d])) {
      s.refuse("padding" + at, std::to_string(t.pad_low) + " and " + std::to_string(t.pad_high),
               "less padding, so that every window has an element of the input");
    }
  }
  return out;
}

// Checks filters, groups and weights of a convolution, transposed or not.
template <class Op>
void check_filters(const Subject& s, const Op& op) {
  const Index channels = s.input[Dim::channel];
  s.check_at_least("filters", op.filters, 1);
  s.check_at_least("groups", op.groups, 1);
  if (channels % op.groups != 0 || op.filters % op.groups != 0) {
    s.refuse(
        "groups", std::to_string(op.groups),
        "a divisor of its " + std::to_string(channels) + " channels and " + std::to_string(op.filters) + " filters");
  }
  check_size("layer " + in_quotes(s.all.layer.name) + ", weight", weight_extents(op, channels));
}

// Checks the output extents of a layer whose windows follow from a range map.
void check_resampling(const Subject& s, const Extents& out) {
  for (int i = 0; i < 3; ++i) {
    const Dim d = views::spatial_dims[i];
    const std::string at = std::string(" in ") + views::name(d);
    if (i < 3 - s.spatial_rank && out[d] != 1) {
      s.refuse("output" + at, std::to_string(out[d]),
               "1: the network has " + std::to_string(s.spatial_rank) + " spatial dimensions");
    }
    constexpr Index largest = halo::RangeMap1D::largest;
    if (out[d] < 1 || out[d] > largest) {
      s.refuse("output" + at, std::to_string(out[d]), "between 1 and " + std::to_string(largest));
    }
    if (out[d] != s.input[d] && s.input[d] > largest) {
      s.refuse("input" + at, std::to_string(s.input[d]), "at most " + std::to_string(largest));
    }
  }
}

}  // namespace

void check_size(const std::string& argument, const Extents& e) {
  Index size = 1;
  for (Dim d : views::all_dims) {
    if (e[d] > 0 && size > max_tensor_elements / e[d]) {
      throw InvalidArgument(infer_operation, argument, to_string(e), "at most 2^62 elements");
    }
    size *= std::max<Index>(e[d], 1);
  }
}

void refuse(const LayerInputs& inputs, const std::string& member, const std::string& value,
            const std::string& expectation) {
  throw InvalidArgument(infer_operation,
                        "layer " + in_quotes(inputs.layer.name) + (member.empty() ? "" : ", " + member), value,
                        expectation);
}

halo::Stencil stencil_of(const Window& w) {
  halo::Stencil stencil;
  for (int i = 0; i < 3; ++i)
    stencil[views::spatial_dims[i]] = {w.kernel[i], w.stride[i], w.dilation[i], w.pad_low[i], w.pad_high[i]};
  return stencil;
}

Extents weight_extents(const Convolution& op, Index channels) {
  const auto& k = op.window.kernel;
  return {{op.filters, k[0], k[1], k[2], channels / op.groups}};
}
Extents weight_extents(const TransposedConvolution& op, Index channels) {
  const auto& k = op.window.kernel;
  return {{channels, k[0], k[1], k[2], op.filters / op.groups}};
}

Extents output_extents(const LayerInputs& inputs, const Convolution& op) {
  const Subject s(inputs);
  s.check_at_least("filters", op.filters, 1);
  Extents out = slide(s, op.window, false);
  check_filters(s, op);
  out[Dim::channel] = op.filters;
  return out;
}

Extents output_extents(const LayerInputs& inputs, const TransposedConvolution& op) {
  const Subject s(inputs);
  Extents out = s.input;
  for (int i = 0; i < 3; ++i) {
    const Dim d = views::spatial_dims[i];
    const std::string at = std::string(" in ") + views::name(d);
    const halo::Stencil1D t = stencil_of(op.window)[d];
    const Index extra = op.output_padding[i];
    if (i < 3 - s.spatial_rank && (t != halo::Stencil1D{} || extra != 0)) {
      s.refuse("window" + at, "",
               "no window there: the network has " + std::to_string(s.spatial_rank) + " spatial dimensions");
    }
    check_window(s, t, at);
    s.check_at_least("output padding" + at, extra, 0);
    if (extra > 0 && extra >= std::max(t.stride, t.dilation)) {
      s.refuse("output padding" + at, std::to_string(extra), "less than the larger of stride and dilation");
    }
    // Replaces products that could overflow. The size check refuses it as too large.
    const Index limit = Index{1} << 40;
    const Index steps = s.input[d] - 1;
    const Index padded = (steps > limit / t.stride ? limit : steps * t.stride) + t.reach() + extra;
    if (padded <= t.pad_low + t.pad_high) {
      s.refuse("padding" + at, std::to_string(t.pad_low) + " and " + std::to_string(t.pad_high),
               "a sum below the " + std::to_string(padded) + " elements of the output without padding");
    }
    out[d] = padded - t.pad_low - t.pad_high;
  }
  check_filters(s, op);
  out[Dim::channel] = op.filters;
  return out;
}

// The maximum of no elements is undefined. So is their mean, unless the padding counts as zeros.
Extents output_extents(const LayerInputs& inputs, const Pooling& op) {
  const Subject s(inputs);
  return slide(s, op.window, op.kind == PoolingKind::max || !op.count_include_pad);
}

Extents output_extents(const LayerInputs& inputs, const BatchNorm& op) {
  const Subject s(inputs);
  if (op.scope == StatisticsScope::neighbours) s.check_at_least("ranks that share statistics", op.ranks, 1);
  if (!(op.momentum >= 0 && op.momentum <= 1)) s.refuse("momentum", std::to_string(op.momentum), "between 0 and 1");
  s.check_epsilon(op.epsilon);
  return s.input;
}

Extents output_extents(const LayerInputs& inputs, const GroupNorm& op) {
  const Subject s(inputs);
  const Index channels = s.input[Dim::channel];
  if (op.groups < 1 || channels % op.groups != 0) {
    s.refuse("groups", std::to_string(op.groups),
             "a divisor of the " + std::to_string(channels) + " channels of its input");
  }
  s.check_epsilon(op.epsilon);
  return s.input;
}

Extents output_extents(const LayerInputs& inputs, const LayerNorm& op) {
  const Subject s(inputs);
  s.check_epsilon(op.epsilon);
  return s.input;
}

Extents output_extents(const LayerInputs& inputs, const LeakyRelu& op) {
  const Subject s(inputs);
  if (!(op.slope >= 0 && std::isfinite(op.slope))) s.refuse("slope", std::to_string(op.slope), "a finite number ≥ 0");
  return s.input;
}

Extents output_extents(const LayerInputs& inputs, const Dropout& op) {
  const Subject s(inputs);
  if (!(op.rate >= 0 && op.rate < 1)) s.refuse("rate", std::to_string(op.rate), "at least 0 and less than 1");
  return s.input;
}

Extents output_extents(const LayerInputs& inputs, const Flatten&) {
  const Subject s(inputs);
  const Extents& e = s.input;
  return {{e[Dim::sample], 1, 1, 1, e[Dim::depth] * e[Dim::height] * e[Dim::width] * e[Dim::channel]}};
}

Extents output_extents(const LayerInputs& inputs, const Dense& op) {
  const Subject s(inputs);
  s.check_at_least("features", op.features, 1);
  if (!is_flat(s.input)) {
    s.refuse("input", to_string(s.input), "no spatial extent (a flatten or global_average_pooling layer before it)");
  }
  return {{s.input[Dim::sample], 1, 1, 1, op.features}};
}

Extents output_extents(const LayerInputs& inputs, const GlobalAveragePooling&) {
  const Subject s(inputs);
  return {{s.input[Dim::sample], 1, 1, 1, s.input[Dim::channel]}};
}

Extents output_extents(const LayerInputs& inputs, const Add&) {
  const Subject s(inputs);
  for (std::size_t k = 1; k < s.all.extents.size(); ++k) {
    if (s.all.extents[k] != s.input) {
      s.refuse("input " + in_quotes(s.all.layer.inputs[k]), to_string(s.all.extents[k]),
               to_string(s.input) + ", the extents of its first input");
    }
  }
  return s.input;
}

Extents output_extents(const LayerInputs& inputs, const Concatenate&) {
  const Subject s(inputs);
  Extents out = s.input;
  for (std::size_t k = 1; k < inputs.extents.size(); ++k) {
    Extents other = inputs.extents[k];
    other[Dim::channel] = s.input[Dim::channel];
    if (other != s.input) {
      s.refuse("input " + in_quotes(inputs.layer.inputs[k]), to_string(inputs.extents[k]),
               "the samples and spatial extents of its first input, " + to_string(s.input));
    }
    // Both are at most 2^62, so that their sum does not overflow. The size check refuses it as too large.
    out[Dim::channel] += inputs.extents[k][Dim::channel];
    if (out[Dim::channel] > max_tensor_elements) s.refuse("output", to_string(out), "at most 2^62 channels");
  }
  return out;
}

Extents output_extents(const LayerInputs& inputs, const AdaptivePooling& op) {
  const Subject s(inputs);
  Extents out = s.input;
  for (int i = 0; i < 3; ++i) out[views::spatial_dims[i]] = op.output[i];
  check_resampling(s, out);
  Index elements = 1;
  for (Dim d : views::spatial_dims) {
    const Index longest = halo::RangeMap1D{halo::RangeRule::adaptive, s.input[d], out[d]}.longest_window();
    if (longest > max_window_value / elements) {
      s.refuse("output", to_string(out), "windows of at most " + std::to_string(max_window_value) + " elements");
    }
    elements *= longest;
  }
  return out;
}

Extents output_extents(const LayerInputs& inputs, const Upsampling& op) {
  const Subject s(inputs);
  Extents out = s.input;
  for (int i = 0; i < 3; ++i) {
    const Dim d = views::spatial_dims[i];
    const std::string at = std::string(" in ") + views::name(d);
    s.check_at_least("scale" + at, op.scale[i], 1);
    s.check_at_least("output" + at, op.output[i], 0);
    if (op.output[i] > 0 && op.scale[i] > 1) {
      s.refuse("scale" + at, std::to_string(op.scale[i]), "1, because the output extent is given");
    }
    // The input extent is at most 2^62. A product that does not fit is refused as too large.
    const Index limit = halo::RangeMap1D::largest + 1;
    if (op.output[i] > 0) {
      out[d] = op.output[i];
    } else if (op.scale[i] > 1) {
      out[d] = s.input[d] > limit / op.scale[i] ? limit : s.input[d] * op.scale[i];
    }
  }
  check_resampling(s, out);
  return out;
}

}  // namespace aloni::nn::detail

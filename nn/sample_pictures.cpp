#include <aloni/nn/sample_pictures.hpp>

#include <aloni/core/bfloat16.hpp>
#include <aloni/core/float16.hpp>
#include <aloni/nn/compiled_activations.hpp>
#include <aloni/nn/metrics.hpp>

#include <algorithm>
#include <cmath>
#include <utility>

namespace aloni::nn {

using views::Box;
using views::Dim;

namespace {

constexpr Index most_cells = 128;
constexpr std::size_t numbers = 3;  // score, label + 1, predicted + 1

int colours(Index channels) { return channels == 3 ? 3 : 1; }

/// f(sample, depth, height, width, position of the first channel in the dense box) for each pixel of the first samples.
template <class F>
void for_each_pixel(const Box& box, Index samples, const F& f) {
  if (box.empty()) return;
  const Index channels = box.extent(Dim::channel);
  Index at = 0;
  for (Index n = box.lower(Dim::sample); n < std::min(samples, box.upper(Dim::sample)); ++n)
    for (Index d = box.lower(Dim::depth); d < box.upper(Dim::depth); ++d)
      for (Index h = box.lower(Dim::height); h < box.upper(Dim::height); ++h)
        for (Index w = box.lower(Dim::width); w < box.upper(Dim::width); ++w, at += channels)
          f(n, d, h, w, static_cast<std::size_t>(at));
}

/// The range of the values, for pictures without one of their own.
void show_all(SamplePicture& picture) {
  if (picture.values.empty()) return;
  const auto [least, most] = std::ranges::minmax(picture.values);
  picture.black = least;
  picture.white = most > least ? most : least + 1;
}

}  // namespace

std::array<double, 3> colour_of_class(Index label) {
  if (label == 0) return {0, 0, 0};
  // Steps by the golden angle: neighbouring classes have distant hues.
  const double hue = std::fmod(0.08 + 0.618034 * static_cast<double>(label - 1), 1.0) * 6;
  const auto part = [hue](double shift) {
    const double k = std::fmod(hue + shift, 6.0);
    return std::clamp(std::abs(k - 3) - 1, 0.0, 1.0);
  };
  std::array<double, 3> colour{part(0), part(4), part(2)};
  for (double& c : colour) c = 0.25 + 0.75 * c;
  return colour;
}

SampleSums::Canvas::Canvas(const views::Extents& sample, int number_of_channels)
    : extents(sample), channels(number_of_channels) {
  const Index largest = std::max(sample[Dim::height], sample[Dim::width]);
  side = (largest + most_cells - 1) / most_cells;
  width = static_cast<int>((sample[Dim::width] + side - 1) / side);
  height = static_cast<int>((sample[Dim::height] + side - 1) / side);
}

SamplePicture SampleSums::Canvas::picture(const double* sums) const {
  SamplePicture picture{.width = width, .height = height, .channels = channels};
  picture.values.resize(size());
  for (Index y = 0; y < height; ++y) {
    for (Index x = 0; x < width; ++x) {
      const Index rows = std::min(side, extents[Dim::height] - y * side);
      const Index columns = std::min(side, extents[Dim::width] - x * side);
      for (Index c = 0; c < channels; ++c) {
        const auto at = static_cast<std::size_t>((y * width + x) * channels + c);
        picture.values[at] = sums[at] / static_cast<double>(rows * columns);
      }
    }
  }
  return picture;
}

SampleSums::SampleSums(const NetworkDescription& network, Index samples)
    : loss_(network.loss), samples_(samples), input_(network.input, colours(network.input[Dim::channel])) {
  const views::Extents output = infer_extents(network, 1).back();
  predictions_ = predictions_in(loss_, output);
  if (loss_ == Loss::pixel_cross_entropy) output_ = Canvas(output, 3);
  if (targets_of(loss_) == LossTargets::elements) output_ = Canvas(output, colours(output[Dim::channel]));
  stride_ = input_.size() + 2 * output_.size() + numbers;
  sums_.resize(static_cast<std::size_t>(samples) * stride_);
}

template <class T>
void SampleSums::add_inputs(const Box& box, std::span<const T> values) {
  const Index slice = input_.extents[Dim::depth] / 2;
  const Index first = box.lower(Dim::channel), last = std::min<Index>(box.upper(Dim::channel), input_.channels);
  for_each_pixel(box, samples_, [&](Index n, Index d, Index h, Index w, std::size_t at) {
    if (d != slice) return;
    for (Index c = first; c < last; ++c)
      sample(n)[input_.place(h, w, c)] += static_cast<double>(values[at + static_cast<std::size_t>(c - first)]);
  });
}

template <class T>
void SampleSums::add_outputs(const Box& box, const Outputs<T>& v) {
  const Index slice = output_.extents[Dim::depth] / 2;
  const Index first = box.lower(Dim::channel), channels = box.empty() ? 0 : box.extent(Dim::channel);
  const bool has_labels = targets_of(loss_) != LossTargets::elements;
  for_each_pixel(box, samples_, [&](Index n, Index d, Index h, Index w, std::size_t at) {
    double* const truth = sample(n) + input_.size();
    double* const prediction = truth + output_.size();
    double* const all = prediction + output_.size();
    const auto y = [&](Index c) { return static_cast<double>(v.outputs[at + static_cast<std::size_t>(c)]); };
    if (has_labels) {
      Index best = 0;
      for (Index c = 1; c < channels; ++c)
        if (y(c) > y(best)) best = c;
      const Index label = v.labels[at / static_cast<std::size_t>(channels)];
      all[0] += best == label ? 1 : 0;
      if (loss_ == Loss::softmax_cross_entropy) {
        all[1] += static_cast<double>(label + 1);
        all[2] += static_cast<double>(best + 1);
      } else if (d == slice) {
        const auto wanted = colour_of_class(label), found = colour_of_class(best);
        for (std::size_t c = 0; c < 3; ++c) {
          truth[output_.place(h, w, static_cast<Index>(c))] += wanted[c];
          prediction[output_.place(h, w, static_cast<Index>(c))] += found[c];
        }
      }
      return;
    }
    for (Index c = 0; c < channels; ++c) {
      const double t = static_cast<double>(v.targets[at + static_cast<std::size_t>(c)]);
      const bool plain = loss_ == Loss::mean_squared_error;
      all[0] += plain ? std::abs(y(c) - t) : (y(c) > 0) == (t > 0.5) ? 1 : 0;
      if (d != slice || first + c >= output_.channels) continue;
      truth[output_.place(h, w, first + c)] += t;
      prediction[output_.place(h, w, first + c)] += plain ? y(c) : 1 / (1 + std::exp(-y(c)));
    }
  });
}

std::vector<SampleResult> SampleSums::results() const {
  std::vector<SampleResult> results;
  for (Index n = 0; n < samples_; ++n) {
    const double* const input = sums_.data() + static_cast<std::size_t>(n) * stride_;
    const double* const truth = input + input_.size();
    const double* const all = truth + 2 * output_.size();
    SampleResult result{
        .sample = n, .input = input_.picture(input), .score = all[0] / static_cast<double>(predictions_)};
    show_all(result.input);
    if (loss_ == Loss::softmax_cross_entropy) {
      result.label = static_cast<Index>(all[1]) - 1;
      result.predicted = static_cast<Index>(all[2]) - 1;
    } else {
      result.truth = output_.picture(truth);
      result.prediction = output_.picture(truth + output_.size());
      if (loss_ == Loss::mean_squared_error) {
        show_all(result.truth);
        result.prediction.black = result.truth.black;
        result.prediction.white = result.truth.white;
      }
    }
    results.push_back(std::move(result));
  }
  return results;
}

#define INSTANTIATE(T)                                                            \
  template void SampleSums::add_inputs<T>(const views::Box&, std::span<const T>); \
  template void SampleSums::add_outputs<T>(const views::Box&, const Outputs<T>&);
INSTANTIATE(float)
ALONI_WITH_DOUBLE(INSTANTIATE(double))
ALONI_WITH_BFLOAT16(INSTANTIATE(comm::bfloat16))
ALONI_WITH_FLOAT16(INSTANTIATE(comm::float16))
#undef INSTANTIATE

}  // namespace aloni::nn

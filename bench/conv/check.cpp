#include "conv/check.hpp"

#include <aloni/core/bfloat16.hpp>

#include <cstdint>
#include <random>
#include <stdexcept>

namespace aloni::bench {

using nn::local::ConvolutionPass;
using nn::local::ConvolutionProblem;

namespace {

template <class F>
void for_each_index(const std::array<Index, 3>& extents, const F& f) {
  for (Index d = 0; d < extents[0]; ++d)
    for (Index h = 0; h < extents[1]; ++h)
      for (Index v = 0; v < extents[2]; ++v) f(std::array<Index, 3>{d, h, v});
}

/// Sets `i` to the input pixel that output pixel `o` reads through tap `k`. Returns false if it is outside the input.
bool input_of(const ConvolutionProblem& p, const std::array<Index, 3>& o, const std::array<Index, 3>& k,
              std::array<Index, 3>& i) {
  bool inside = true;
  for (int s = 0; s < 3; ++s) {
    i[s] = o[s] * p.stride[s] + k[s] * p.dilation[s] + p.offset[s];
    inside = inside && i[s] >= 0 && i[s] < p.input[s];
  }
  return inside;
}

}  // namespace

std::array<Index, 5> input_extents(const ConvolutionProblem& p) {
  return {p.samples, p.input[0], p.input[1], p.input[2], p.channels};
}
std::array<Index, 5> output_extents(const ConvolutionProblem& p) {
  return {p.samples, p.output[0], p.output[1], p.output[2], p.filters};
}
std::array<Index, 5> filter_extents(const ConvolutionProblem& p) {
  return {p.filters, p.kernel[0], p.kernel[1], p.kernel[2], p.channels_per_group()};
}

int small_integer(unsigned seed, Index i) {
  // Neighbours must differ, and tensors have millions of elements: a multiplicative hash is cheap enough.
  const std::uint64_t h = (static_cast<std::uint64_t>(i) + 1) * 0x9e3779b97f4a7c15U * (2 * seed + 1);
  return static_cast<int>((h >> 40) % 7) - 3;
}

void check(const ConvolutionProblem& p, ConvolutionPass pass, const HostTensor& x, const HostTensor& y,
           const HostTensor& w, const std::string& who) {
  std::mt19937 random(4);
  auto below = [&](Index n) { return static_cast<Index>(random() % static_cast<unsigned long>(n)); };
  auto any = [&](const std::array<Index, 3>& e) { return std::array<Index, 3>{below(e[0]), below(e[1]), below(e[2])}; };
  for (int i = 0; i < 40; ++i) {
    double expected = 0, result = 0;
    const Index n = below(p.samples), c = below(p.channels), f = below(p.filters);
    const Index channels = p.channels_per_group(), filters = p.filters_per_group();
    const Index first_channel = f / filters * channels, first_filter = c / channels * filters;  // of their groups
    std::array<Index, 3> in{};
    if (pass == ConvolutionPass::forward) {
      const auto o = any(p.output);
      for_each_index(p.kernel, [&](const auto& k) {
        if (!input_of(p, o, k, in)) return;
        for (Index j = 0; j < channels; ++j) expected += x.at(n, in, first_channel + j) * w.at(f, k, j);
      });
      result = y.at(n, o, f);
    } else if (pass == ConvolutionPass::backward_data) {
      const auto target = any(p.input);
      for_each_index(p.kernel, [&](const auto& k) {
        std::array<Index, 3> o{};
        for (int s = 0; s < 3; ++s) {
          const Index scaled = target[s] - k[s] * p.dilation[s] - p.offset[s];
          if (scaled < 0 || scaled % p.stride[s] != 0 || scaled / p.stride[s] >= p.output[s]) return;
          o[s] = scaled / p.stride[s];
        }
        for (Index j = first_filter; j < first_filter + filters; ++j)
          expected += y.at(n, o, j) * w.at(j, k, c % channels);
      });
      result = x.at(n, target, c);
    } else {
      const auto k = any(p.kernel);
      for (Index m = 0; m < p.samples; ++m)
        for_each_index(p.output, [&](const auto& o) {
          if (input_of(p, o, k, in)) expected += x.at(m, in, first_channel + c % channels) * y.at(m, o, f);
        });
      result = w.at(f, k, c % channels);
    }
    const HostTensor& written = pass == ConvolutionPass::forward ? y : pass == ConvolutionPass::backward_data ? x : w;
    if (written.of_bfloat16) expected = static_cast<double>(comm::bfloat16(static_cast<float>(expected)));
    if (result != expected) {
      throw std::runtime_error(who + " computes " + std::to_string(result) + " instead of " + std::to_string(expected) +
                               " in " + std::string(name(pass)) + " of " + to_string(p));
    }
  }
}

}  // namespace aloni::bench

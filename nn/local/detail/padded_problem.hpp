#pragma once
// A convolution in the terms of libraries (oneDNN, cuDNN): offsets become paddings.
#include <aloni/nn/local/convolution_problem.hpp>

#include <array>
#include <cstddef>

namespace aloni::nn::local::detail {

/// The part of the input that outputs read, and zeros around it. output = (padding_before + input + padding_after -
/// dilation * (kernel - 1) - 1) / stride + 1, without a remainder.
struct PaddedProblem {
  Index samples = 0, channels = 0, filters = 0, groups = 1;
  std::array<Index, 3> first{0, 0, 0};  ///< where this part starts in the problem's input
  std::array<Index, 3> input{0, 0, 0}, output{0, 0, 0};
  std::array<Index, 3> kernel{1, 1, 1}, stride{1, 1, 1}, dilation{1, 1, 1};
  std::array<Index, 3> padding_before{0, 0, 0}, padding_after{0, 0, 0};  ///< ≥ 0

  bool reads_nothing() const { return input[0] == 0 || input[1] == 0 || input[2] == 0; }
  /// Whether some output reads the padding only.
  bool has_empty_windows() const;

  friend bool operator==(const PaddedProblem&, const PaddedProblem&) = default;
};

/// reads_nothing() if no output reads an input: then an extent of `input` is 0.
PaddedProblem padded_problem(const ConvolutionProblem& problem);

/// Where the part of x that outputs read starts. x: samples, depth, height, width, channels. Computes the address only:
/// the host cannot access the elements of a device.
template <class View>
auto* start_of_part(const View& x, const PaddedProblem& part) {
  auto* start = x.data();
  for (std::size_t i = 0; i < 3; ++i) start += part.first[i] * static_cast<Index>(x.stride(static_cast<int>(i) + 1));
  return start;
}

}  // namespace aloni::nn::local::detail

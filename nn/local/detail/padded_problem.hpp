#pragma once
// A convolution in the terms of libraries (oneDNN, cuDNN): offsets become paddings.
#include <aloni/nn/local/convolution_problem.hpp>

#include <array>

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

  friend bool operator==(const PaddedProblem&, const PaddedProblem&) = default;
};

/// reads_nothing() if no output reads an input: then an extent of `input` is 0.
PaddedProblem padded_problem(const ConvolutionProblem& problem);

}  // namespace aloni::nn::local::detail

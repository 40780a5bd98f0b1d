#pragma once
// A convolution in the terms of oneDNN, and the convolutions that oneDNN is not given. Without oneDNN itself, so that
// plans can be made where it is not installed.
#include <aloni/nn/local/convolution_problem.hpp>

#include <array>
#include <cstdint>
#include <optional>
#include <string>

namespace aloni::nn::local::detail {

/// Type of x, y and their gradients. With bfloat16, reordering rounds the weights; sums, bias and the gradients of
/// weights and bias stay float.
enum class OnednnActivations : std::uint8_t { float32, bfloat16 };

/// A problem in the terms of oneDNN: the part of the input that outputs read, and zeros around it.
struct OnednnProblem {
  Index samples = 0, channels = 0, filters = 0, groups = 1;
  std::array<Index, 3> first{0, 0, 0};  ///< where this part starts in the problem's input
  std::array<Index, 3> input{0, 0, 0}, output{0, 0, 0};
  std::array<Index, 3> kernel{1, 1, 1}, stride{1, 1, 1}, dilation{1, 1, 1};
  std::array<Index, 3> padding_before{0, 0, 0}, padding_after{0, 0, 0};  ///< ≥ 0
};

OnednnProblem onednn_problem(const ConvolutionProblem& problem);

/// Why oneDNN 2.6 is not given this pass: it computes wrong numbers, counts bytes in 32 bits, or the problem is empty.
/// None if it is. Whether it has a fast kernel on a processor, only oneDNN knows (onednn_primitives.hpp).
std::optional<std::string> onednn_refusal(const OnednnProblem& problem, ConvolutionPass pass,
                                          OnednnActivations activations);

}  // namespace aloni::nn::local::detail

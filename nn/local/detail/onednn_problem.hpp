#pragma once
// The convolutions that oneDNN is not given. Without oneDNN itself, so that plans can be made where it is not
// installed.
#include <aloni/nn/local/detail/padded_problem.hpp>

#include <cstdint>
#include <optional>
#include <string>

namespace aloni::nn::local::detail {

/// Type of x, y and their gradients. With bfloat16, reordering rounds the weights; sums, bias and the gradients of
/// weights and bias stay float.
enum class OnednnActivations : std::uint8_t { float32, bfloat16 };

/// Why oneDNN 2.6 is not given this pass: it computes wrong numbers, counts bytes in 32 bits, or the problem is empty.
/// None if it is. Whether it has a fast kernel on a processor, only oneDNN knows (onednn_primitives.hpp).
std::optional<std::string> onednn_refusal(const PaddedProblem& problem, ConvolutionPass pass,
                                          OnednnActivations activations);

}  // namespace aloni::nn::local::detail

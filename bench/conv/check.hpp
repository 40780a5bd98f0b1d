#pragma once
// Compares random elements of a convolution with the definition. For tensors that are too large for a full comparison.
#include <aloni/nn/local/convolution_problem.hpp>

#include <array>
#include <string>

namespace aloni::bench {

/// A dense tensor in host memory.
struct HostTensor {
  const float* data;
  std::array<Index, 5> extents;
  bool of_bfloat16 = false;  ///< results in this tensor are rounded to bfloat16

  double at(Index n, const std::array<Index, 3>& s, Index c) const {
    return static_cast<double>(
        data[(((n * extents[1] + s[0]) * extents[2] + s[1]) * extents[3] + s[2]) * extents[4] + c]);
  }
};

std::array<Index, 5> input_extents(const nn::local::ConvolutionProblem& p);
std::array<Index, 5> output_extents(const nn::local::ConvolutionProblem& p);
std::array<Index, 5> filter_extents(const nn::local::ConvolutionProblem& p);

/// Value of element `i` of a tensor before a check: a small integer. `seed` differs from tensor to tensor.
int small_integer(unsigned seed, Index i);

/// Compares random elements of the result of `pass` with the definition of convolution. All three tensors hold small
/// integers, so the results must agree to the bit. `who` is the name of the implementation for the error message.
/// Throws std::runtime_error if an element differs.
void check(const nn::local::ConvolutionProblem& p, nn::local::ConvolutionPass pass, const HostTensor& x,
           const HostTensor& y, const HostTensor& w, const std::string& who);

}  // namespace aloni::bench

#pragma once
// Whether a convolution computed what the definition says, at random places: for tensors too large to be compared as a whole.
#include <aloni/nn/local/convolution_problem.hpp>

#include <array>
#include <string>

namespace aloni::bench {

/// A dense tensor in host memory.
struct HostTensor {
  const float* data;
  std::array<Index, 5> extents;
  bool of_bfloat16 = false;  ///< a result in it is rounded

  double at(Index n, const std::array<Index, 3>& s, Index c) const {
    return static_cast<double>(
        data[(((n * extents[1] + s[0]) * extents[2] + s[1]) * extents[3] + s[2]) * extents[4] + c]);
  }
};

std::array<Index, 5> input_extents(const nn::local::ConvolutionProblem& p);
std::array<Index, 5> output_extents(const nn::local::ConvolutionProblem& p);
std::array<Index, 5> filter_extents(const nn::local::ConvolutionProblem& p);

/// The i-th of the small integers that tensors are filled with before they are checked.
int small_integer(unsigned seed, Index i);

/// Compares elements of what `pass` wrote with their definition; all three tensors hold small integers, so that all must agree to the
/// bit. Throws std::runtime_error that names `who`.
void check(const nn::local::ConvolutionProblem& p, nn::local::ConvolutionPass pass, const HostTensor& x,
           const HostTensor& y, const HostTensor& w, const std::string& who);

}  // namespace aloni::bench

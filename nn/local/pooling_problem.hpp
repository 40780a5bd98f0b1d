#pragma once
// The shape of one rank's part of a pooling layer, as plain data. Same convention as convolution_problem.hpp with
// dilation 1: output index o and window index k read the local input index i = o * stride + k + offset. An i outside the
// local box is outside the global domain (ghosts supply everything else) and is absent: no candidate for the maximum.
#include <aloni/core/index.hpp>

#include <array>
#include <string>

namespace aloni::nn::local {

/// What an average is divided by.
enum class AverageDivisor {
  window,    ///< always the window's size, as if padding were zeros ("include pad")
  in_domain  ///< the number of the window's elements that exist
};

struct PoolingProblem {
  Index samples = 0, channels = 0;
  std::array<Index, 3> input{1, 1, 1}, output{1, 1, 1};  ///< depth, height, width of the local boxes; may be 0
  std::array<Index, 3> window{1, 1, 1}, stride{1, 1, 1};
  std::array<Index, 3> offset{0, 0, 0};

  friend constexpr bool operator==(const PoolingProblem&, const PoolingProblem&) = default;
};

std::string to_string(const PoolingProblem& problem);

/// Throws InvalidArgument when an extent is negative, a window or stride is not positive, or a window has more than 2^31 - 1
/// elements.
void validate(const PoolingProblem& problem);

}  // namespace aloni::nn::local

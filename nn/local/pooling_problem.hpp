#pragma once
// The shape of one rank's part of a pooling layer, as plain data. Indices are as in convolution_problem.hpp with
// dilation 1: output index o and window index k read the local input index i = o * stride + k + offset. An i outside
// the local box is outside the global domain, because ghosts supply all other inputs. It is absent: neither maximum nor
// average counts it.
#include <aloni/core/index.hpp>

#include <array>
#include <string>

namespace aloni::nn::local {

/// The divisor of an average.
enum class AverageDivisor {
  window,    ///< the size of the window, as if padding were zeros ("include pad")
  in_domain  ///< the number of elements of the window inside the domain
};

struct PoolingProblem {
  Index samples = 0, channels = 0;
  std::array<Index, 3> input{1, 1, 1}, output{1, 1, 1};  ///< depth, height, width of the local boxes; may be 0
  std::array<Index, 3> window{1, 1, 1}, stride{1, 1, 1};
  std::array<Index, 3> offset{0, 0, 0};

  friend constexpr bool operator==(const PoolingProblem&, const PoolingProblem&) = default;
};

std::string to_string(const PoolingProblem& problem);

/// Throws InvalidArgument if an extent is negative, if a window or stride is not positive, or if a window has more than
/// 2^31 - 1 elements.
void validate(const PoolingProblem& problem);

}  // namespace aloni::nn::local

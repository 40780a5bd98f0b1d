#pragma once
// Dropout by a random number for each global index. Asynchronous on the given instance.
//
//   const DropoutMask mask{.seed = 1, .stream = dropout_stream(layer, step), .rate = 0.5, …};
//   dropout<T, Exec>(exec, mask, x, y);
//   dropout<T, Exec>(exec, mask, dy, dx);   // the same mask: nothing is stored
#include <aloni/nn/local/local_types.hpp>

#include <array>
#include <cstdint>

namespace aloni::nn::local {

struct DropoutMask {
  std::uint64_t seed = 0, stream = 0;  ///< of random::uniform
  double rate = 0;                     ///< in [0, 1)
  std::array<Index, 5> extents{};      ///< of the whole tensor
  std::array<Index, 5> first{};        ///< global indices of the first element of the views
};

/// A stream of random numbers of its own for each layer and step. @pre layer < 2^23, step < 2^40
inline constexpr std::uint64_t dropout_stream(int layer, std::uint64_t step) {
  return (static_cast<std::uint64_t>(layer) + 1) << 40 | step;
}

/// y = 0 where the random number of the element's global index is below `rate`, and x / (1 - rate) elsewhere, rounded
/// once. y may be x. The random numbers are multiples of 2^-24.
template <class T, class Exec>
void dropout(const Exec& exec, const DropoutMask& mask, InTensor<T, Exec> x, Tensor<T, Exec> y);

}  // namespace aloni::nn::local

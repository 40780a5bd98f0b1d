#pragma once
// ReLU and its gradient without branches. The processor cannot guess signs of activations: each wrong guess costs as
// much as ten elements. GCC 12 makes branches of a choice in short or strided loops. It does not vectorise a choice in
// loops with sums in double, and makes masked loads of it in others. So the choice is made by bits.
#include <Kokkos_Core.hpp>

#include <bit>
#include <cstdint>
#include <type_traits>

namespace aloni::nn::local::detail {

/// `value` if `chosen`, otherwise +0, also for a value that is not finite.
template <class Real>
KOKKOS_FUNCTION Real if_chosen(bool chosen, Real value) {
  using Bits = std::conditional_t<sizeof(Real) == 8, std::uint64_t, std::uint32_t>;
  static_assert(sizeof(Real) == sizeof(Bits));
  return std::bit_cast<Real>(std::bit_cast<Bits>(value) & (Bits(0) - Bits(chosen)));
}

/// `value` if y > 0, otherwise +0.
template <class Real>
KOKKOS_FUNCTION Real if_positive(Real y, Real value) {
  return if_chosen(y > 0, value);
}

/// x, or +0 if x < 0. A NaN and -0 stay.
template <class Real>
KOKKOS_FUNCTION Real unless_negative(Real x) {
  return if_chosen(!(x < 0), x);
}

}  // namespace aloni::nn::local::detail

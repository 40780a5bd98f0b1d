#pragma once
// Random numbers by index: the value at a position depends on (seed, stream, index) alone. A tensor filled by its
// global indices is therefore the same for any distribution, rank count and order of evaluation.
//
//   Kokkos::parallel_for("aloni::fill", policy, KOKKOS_LAMBDA(Index i) {
//     weights(i) = bound * aloni::random::uniform<float>(seed, stream, first_global_index + i);
//   });
//
// `stream` separates independent sequences of one seed: a layer, an epoch, the shuffling of the data.
// Where numbers need not be reproducible, use Kokkos::Random instead.
//
// Generator: Philox4x32-10 of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011. It
// has no state: it maps a counter and a key to 128 random bits.
//
// uniform() uses exact arithmetic: host and device return equal bits. normal() uses log and cos, whose last bit may
// differ between two math libraries.
#include <Kokkos_Core.hpp>

#include <cstdint>
#include <type_traits>

namespace aloni::random {

struct Philox {
  using Counter = Kokkos::Array<std::uint32_t, 4>;
  using Key = Kokkos::Array<std::uint32_t, 2>;

  /// Ten rounds with the constants of the paper.
  KOKKOS_INLINE_FUNCTION static constexpr Counter generate(Counter counter, Key key) {
    for (int round = 0; round < 10; ++round) {
      const std::uint64_t product0 = std::uint64_t{0xD2511F53u} * counter[0];
      const std::uint64_t product1 = std::uint64_t{0xCD9E8D57u} * counter[2];
      counter = {static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(product1),
                 static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
                 static_cast<std::uint32_t>(product0)};
      key = {key[0] + 0x9E3779B9u, key[1] + 0xBB67AE85u};
    }
    return counter;
  }
};

/// 128 random bits of one position. All arguments may take any value.
KOKKOS_INLINE_FUNCTION constexpr Philox::Counter bits(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  return Philox::generate({static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32),
                           static_cast<std::uint32_t>(stream), static_cast<std::uint32_t>(stream >> 32)},
                          {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
}

/// 64 random bits of one position, for shuffling and for integers.
KOKKOS_INLINE_FUNCTION constexpr std::uint64_t integer(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  const auto words = bits(seed, stream, index);
  return (std::uint64_t{words[1]} << 32) | words[0];
}

namespace detail {

/// [0, 1) in steps of 2^-53
KOKKOS_INLINE_FUNCTION constexpr double unit(std::uint32_t high, std::uint32_t low) {
  return static_cast<double>(((std::uint64_t{high} << 32) | low) >> 11) * 0x1p-53;
}

}  // namespace detail

/// Uniform distribution in [0, 1): multiples of 2^-24 (float) or 2^-53 (double).
template <class T>
KOKKOS_INLINE_FUNCTION constexpr T uniform(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  static_assert(std::is_same_v<T, float> || std::is_same_v<T, double>);
  if constexpr (std::is_same_v<T, float>) {
    return static_cast<float>(bits(seed, stream, index)[0] >> 8) * 0x1p-24f;
  } else {
    const auto words = bits(seed, stream, index);
    return detail::unit(words[1], words[0]);
  }
}

/// Normal distribution with mean 0 and variance 1, by the Box-Muller transform. Computed in double and rounded to T: a
/// float tensor equals the rounded double tensor.
template <class T>
KOKKOS_INLINE_FUNCTION T normal(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  static_assert(std::is_same_v<T, float> || std::is_same_v<T, double>);
  const auto words = bits(seed, stream, index);
  constexpr double two_pi = 6.283185307179586476925286766559;
  const double radius = Kokkos::sqrt(-2.0 * Kokkos::log(1.0 - detail::unit(words[1], words[0])));  // 1 - u is never 0
  return static_cast<T>(radius * Kokkos::cos(two_pi * detail::unit(words[3], words[2])));
}

}  // namespace aloni::random

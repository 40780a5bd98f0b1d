#pragma once
// The random numbers of core/random.hpp for host code without Kokkos: plans, orders of samples, augmentation.
//
//   const std::uint64_t word = random::host_integer(seed, stream, sample);   // the bits of random::integer
#include <cstdint>

namespace aloni::random {

/// 64 random bits of one position, equal to random::integer(seed, stream, index).
std::uint64_t host_integer(std::uint64_t seed, std::uint64_t stream, std::uint64_t index);

/// Uniform in [0, 1), equal to random::uniform<double>(seed, stream, index).
double host_uniform(std::uint64_t seed, std::uint64_t stream, std::uint64_t index);

}  // namespace aloni::random

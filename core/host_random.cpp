#include <aloni/core/host_random.hpp>

#include <aloni/core/random.hpp>

namespace aloni::random {

std::uint64_t host_integer(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  return integer(seed, stream, index);
}

double host_uniform(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  return uniform<double>(seed, stream, index);
}

}  // namespace aloni::random

#pragma once
// An all-gather for set-up, before any transport exists.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <random>
#include <span>
#include <type_traits>
#include <vector>

namespace aloni::comm::detail {

/// Returns the bytes of all ranks, in the order of ranks. `mine` has the same length on all ranks. Collective.
using GatherBytes = std::function<std::vector<std::byte>(std::span<const std::byte> mine)>;

/// All-gather of one value per rank. Collective.
template <class T>
std::vector<T> gather(const GatherBytes& all_gather, const T& mine) {
  static_assert(std::is_trivially_copyable_v<T>, "values travel as bytes");
  const std::vector<std::byte> bytes = all_gather(std::as_bytes(std::span(&mine, 1)));
  std::vector<T> all(bytes.size() / sizeof(T));
  std::memcpy(all.data(), bytes.data(), bytes.size());
  return all;
}

/// A random number by which a rank recognises the memory or connection of another rank of its job.
inline std::uint64_t random_token() {
  std::random_device random;
  return std::uint64_t{random()} << 32 | random();
}

}  // namespace aloni::comm::detail

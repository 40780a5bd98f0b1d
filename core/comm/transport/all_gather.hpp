#pragma once
// How ranks introduce themselves to each other before there is any transport.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <random>
#include <span>
#include <type_traits>
#include <vector>

namespace aloni::comm::detail {

/// Collective. Every rank gives `mine` and gets all of theirs, in the order of ranks; the same length on all.
using AllGather = std::function<std::vector<std::byte>(std::span<const std::byte> mine)>;

/// The same for a value.
template <class T>
std::vector<T> gather(const AllGather& all_gather, const T& mine) {
  static_assert(std::is_trivially_copyable_v<T>, "values travel as bytes");
  const std::vector<std::byte> bytes = all_gather(std::as_bytes(std::span(&mine, 1)));
  std::vector<T> all(bytes.size() / sizeof(T));
  std::memcpy(all.data(), bytes.data(), bytes.size());
  return all;
}

/// By which a rank recognises another's memory or connection: a stranger has another.
inline std::uint64_t random_token() {
  std::random_device random;
  return std::uint64_t{random()} << 32 | random();
}

}  // namespace aloni::comm::detail

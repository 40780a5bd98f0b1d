#pragma once
// Describes memory of one rank that another rank may read and write directly. Pure.
#include <aloni/core/comm/transport.hpp>

#include <array>
#include <cstddef>
#include <cstdint>

namespace aloni::comm {

/// Trivially copyable: it is sent as bytes.
struct ExposedMemory {
  enum class Kind : std::uint32_t { none, shared_heap, device };

  Kind kind = Kind::none;
  SharedAddress shared{};              ///< shared_heap: address of host memory; device: of the word of the segment
  std::array<std::byte, 64> handle{};  ///< device: handle of the segment
  std::uint64_t offset = 0;            ///< device: bytes from the start of the segment
  std::uint32_t generation = 0;        ///< device: of the segment (device/device_heap.hpp)

  bool reachable() const { return kind != Kind::none; }
};

}  // namespace aloni::comm

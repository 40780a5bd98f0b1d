#pragma once
// Memory of one rank that another may read and write directly, as it is described in a message. Pure.
#include <aloni/core/comm/transport.hpp>

#include <array>
#include <cstddef>
#include <cstdint>

namespace aloni::comm {

/// Plain bytes: travels as it is.
struct ExposedMemory {
  enum class Kind : std::uint32_t { none, shared_heap, device };

  Kind kind = Kind::none;
  SharedAddress shared{};              ///< of host memory
  std::array<std::byte, 64> handle{};  ///< of an allocation on a device
  std::uint64_t offset = 0;            ///< in it

  bool reachable() const { return kind != Kind::none; }
};

}  // namespace aloni::comm

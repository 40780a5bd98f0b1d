#pragma once
// The checksum of iSCSI and of most file systems (Castagnoli's polynomial, RFC 3720), which processors compute.
#include <cstddef>
#include <cstdint>

namespace aloni::comm::detail {

std::uint32_t crc32c(const void* data, std::size_t bytes);

}  // namespace aloni::comm::detail

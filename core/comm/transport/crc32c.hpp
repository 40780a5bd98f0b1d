#pragma once
// CRC32C: the checksum of iSCSI and of many file systems (Castagnoli polynomial, RFC 3720). x86 processors have an
// instruction for it.
#include <cstddef>
#include <cstdint>

namespace aloni::comm::detail {

std::uint32_t crc32c(const void* data, std::size_t bytes);

}  // namespace aloni::comm::detail

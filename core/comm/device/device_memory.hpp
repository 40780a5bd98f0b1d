#pragma once
// Shares device memory between the processes of a node. Builds without a device share none.
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

namespace aloni::comm::detail {

struct DeviceMemory {
  std::array<std::byte, 64> handle{};  ///< handle of the allocation, which other processes can open
  std::uint64_t offset = 0;            ///< bytes from the start of the allocation
};

/// Returns none if `data` is not device memory, or its allocation cannot be shared.
std::optional<DeviceMemory> share_device_memory(const void* data);
/// Opens device memory of another process. Returns null if this is impossible: another node, or an unreachable device.
std::shared_ptr<std::byte> open_device_memory(const DeviceMemory& memory);

/// Whether MPI sends from and receives into device memory.
bool mpi_takes_device_memory();

}  // namespace aloni::comm::detail

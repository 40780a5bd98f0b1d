#pragma once
// Memory of a device that processes of one node share. In builds without such a device nothing is ever found.
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

namespace aloni::comm::detail {

struct DeviceMemory {
  std::array<std::byte, 64> handle{};  ///< of the allocation, as the driver gives it to other processes
  std::uint64_t offset = 0;
};

/// None when `data` isn't memory of a device, or its allocation can't be shared.
std::optional<DeviceMemory> share_device_memory(const void* data);
/// Another process's; null when it can't be opened: another node, or a device that this one doesn't reach.
std::shared_ptr<std::byte> open_device_memory(const DeviceMemory& memory);

/// Whether MPI itself sends from and receives into device memory.
bool mpi_takes_device_memory();

}  // namespace aloni::comm::detail

#include <aloni/core/comm/device/device_memory.hpp>

namespace aloni::comm::detail {

std::optional<DeviceMemory> share_device_memory(const void*) { return {}; }

std::shared_ptr<std::byte> open_device_memory(const DeviceMemory&) { return nullptr; }

bool build_has_devices() { return false; }

bool mpi_reports_device_memory() { return false; }

std::unique_ptr<TrialMemory> make_trial_memory(int, std::size_t) { return nullptr; }

}  // namespace aloni::comm::detail

#include <aloni/core/comm/device/device_memory.hpp>
#include <aloni/core/comm/device/device_sharing.hpp>

namespace aloni::comm::detail {

std::shared_ptr<DeviceSharing> device_sharing_of_process() { return nullptr; }

bool build_has_devices() { return false; }

bool mpi_reports_device_memory() { return false; }

DeviceFacts device_facts() { return {}; }

std::unique_ptr<TrialMemory> make_trial_memory(int, std::size_t) { return nullptr; }

}  // namespace aloni::comm::detail

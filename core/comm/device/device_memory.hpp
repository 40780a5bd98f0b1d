#pragma once
// The memory of the device of this process, and whether messages may lie in it: see engine/trial_message.hpp. Processes
// of a node share memory through device_sharing.hpp.
#include <aloni/core/comm/device_links.hpp>

#include <cstddef>
#include <memory>

namespace aloni::comm::detail {

/// Whether this build uses devices.
bool build_has_devices();
/// Whether MPI says that it sends from and receives into device memory. Some do and then fail: see
/// engine/trial_message.hpp.
bool mpi_reports_device_memory();

/// comm::own_device().
DeviceFacts device_facts();

/// Two arrays for a trial message.
class TrialMemory {
 public:
  virtual ~TrialMemory() = default;
  /// `bytes` bytes, whose values depend on the rank.
  virtual const void* sent() const = 0;
  virtual void* received() = 0;
  /// Whether received() holds the values that this rank sends.
  virtual bool holds_values_of(int rank) const = 0;
};

/// In device memory. Returns null in builds without a device, and if the device has no memory for it.
std::unique_ptr<TrialMemory> make_trial_memory(int rank, std::size_t bytes);
/// The value of a byte that a rank sends.
constexpr std::byte trial_value(int rank, std::size_t position) {
  return static_cast<std::byte>((position * 7 + static_cast<std::size_t>(rank) * 31 + 1) & 0xff);
}

}  // namespace aloni::comm::detail

#pragma once
// The devices of the ranks, and how values travel between them. For people: `aloni info` prints it.
//
//   const DeviceLinks links = describe_devices(comm);                  // collective
//   links.devices[3];                                                  // "… (0000:01:00.0)", of rank 3
//   links.way(0, 3);                                                   // DeviceWay::copies_by_events
#include <aloni/core/comm/communicator.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace aloni::comm {

/// Of the device of this process. Zeros, and an empty name, without a device.
struct DeviceFacts {
  std::string name = {};  ///< "NVIDIA H100 80GB HBM3"
  double memory_bytes = 0;
  double cache_bytes = 0;    ///< of the cache that all its multiprocessors share
  std::string address = {};  ///< on the bus of its node: "0000:01:00.0"
};
DeviceFacts own_device();

enum class DeviceWay : std::uint8_t {
  copies_by_events,      ///< the receiver copies from the sender's device; kernels wait for kernels
  copies_by_hosts,       ///< the same, but the hosts wait for kernels
  groups_from_device,    ///< grouped messages of the device library, for transfers that all ranks start in one order
  messages_from_device,  ///< messages that are sent from and received in device memory
  messages_from_host     ///< messages through pinned host memory
};
std::string name(DeviceWay way);

struct DeviceLinks {
  std::vector<std::string> devices;  ///< by rank; empty text: this process has no device
  std::vector<DeviceWay> ways;       ///< row by row: from each rank to each rank

  DeviceWay way(int from, int to) const {
    return ways[static_cast<std::size_t>(from) * devices.size() + static_cast<std::size_t>(to)];
  }
  /// How many pairs of ranks have each way, by the slower of the two directions. Only ways that occur.
  std::vector<std::pair<DeviceWay, int>> pairs() const;
};

/// Tries each way within a node: opens memory and events of the other ranks. With several nodes it makes the device
/// library of the communicator. Equal on all ranks. Collective. Throws PeerFailed, CommunicationError.
DeviceLinks describe_devices(const Communicator& comm);

}  // namespace aloni::comm

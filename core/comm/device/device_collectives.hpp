#pragma once
// A vendor's library for collectives on device memory, of one communicator.
#include <aloni/core/comm/communicator.hpp>
#include <aloni/core/comm/reduction.hpp>

#include <cstddef>
#include <memory>

namespace aloni::comm::detail {

class DeviceCollectives {
 public:
  virtual ~DeviceCollectives() = default;
  /// Collective, in place, in the order of `stream`. Throws as finish().
  virtual void start_all_reduce(const Communicator& comm, void* data, std::size_t count, ElementType type, Reduction op,
                                void* stream) = 0;
  /// Waits for all that is on `stream`. Meanwhile it looks after the other ranks: throws PeerFailed when one has failed, CommunicationError what
  /// the library says.
  virtual void finish(const Communicator& comm, void* stream) = 0;
};

/// Collective. Null on all ranks where the build has no such library, or two ranks share a device.
std::shared_ptr<DeviceCollectives> make_device_collectives(const Communicator& comm);

}  // namespace aloni::comm::detail

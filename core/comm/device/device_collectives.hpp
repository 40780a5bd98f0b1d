#pragma once
// A vendor library for collectives on device memory (NCCL), for one communicator.
#include <aloni/core/comm/communicator.hpp>
#include <aloni/core/comm/reduction.hpp>

#include <cstddef>
#include <memory>

namespace aloni::comm::detail {

class DeviceCollectives {
 public:
  virtual ~DeviceCollectives() = default;
  /// Starts an all-reduce in place, in the order of `stream`. Collective. Throws like finish().
  virtual void start_all_reduce(const Communicator& comm, void* data, std::size_t count, ElementType type, Reduction op,
                                void* stream) = 0;
  /// Waits until all work on `stream` is complete. Meanwhile it checks the other ranks. Throws PeerFailed if a rank has
  /// failed; CommunicationError with the error text of the library.
  virtual void finish(const Communicator& comm, void* stream) = 0;
};

/// Returns null on all ranks if the build has no device library, or if two ranks share a device. Collective.
std::shared_ptr<DeviceCollectives> make_device_collectives(const Communicator& comm);

}  // namespace aloni::comm::detail

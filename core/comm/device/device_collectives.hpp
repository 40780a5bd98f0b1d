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
  /// Starts an all-reduce in place, in the order of `stream`. Collective. Throws PeerFailed if a rank has failed;
  /// CommunicationError with the error text of the library.
  virtual void start_all_reduce(const Communicator& comm, void* data, std::size_t count, ElementType type, Reduction op,
                                void* stream) = 0;
  /// Ends start_all_reduce(): later work of its stream sees the result. The host does not wait. A failure that shows
  /// only later is found by look(). Throws like start_all_reduce().
  virtual void finish(const Communicator& comm) = 0;
  /// Throws CommunicationError if an operation has failed. Not collective; returns at once. The runtime of the family
  /// calls it while it makes progress.
  virtual void look() = 0;
  /// Ends all pending operations, so that no stream waits for a failed rank. Later calls throw. Thread-safe. The
  /// runtime calls it when the family is poisoned.
  virtual void end_all() noexcept = 0;
};

/// Returns null on all ranks if the build has no device library, or if two ranks share a device. Collective.
std::shared_ptr<DeviceCollectives> make_device_collectives(const Communicator& comm);

}  // namespace aloni::comm::detail

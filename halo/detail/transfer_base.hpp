#pragma once
// What a Pending holds.
#include <aloni/core/comm/communicator.hpp>

#include <memory>

namespace aloni::halo::detail {

class TransferBase {
 public:
  virtual ~TransferBase() = default;
  virtual void finish() = 0;
  virtual const comm::Communicator& communicator() const = 0;
  virtual bool waits_for_messages() const = 0;
};

/// Buffers into which a message may still arrive live as long as the process: on purpose never destroyed, because
/// Views must not be released after Kokkos is down.
void keep_forever(std::shared_ptr<TransferBase> transfer);

}  // namespace aloni::halo::detail

#pragma once
// The interface of a started transfer, which Pending holds.
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

/// Keeps buffers in which a message may still arrive until the process ends. They are never destroyed, because Views
/// must not be released after Kokkos is finalized.
void keep_forever(std::shared_ptr<TransferBase> transfer);

}  // namespace aloni::halo::detail

#pragma once
// The handle of a started exchange, redistribution or transfer.
#include <memory>

namespace aloni::halo {

namespace detail {
class TransferBase;
}

/// A started transfer. Move-only; call finish() once. The destructor finishes a transfer that is still active.
/// If an exception unwinds, or finishing fails, the destructor waits for no messages. It then poisons the communicator,
/// because peers wait for messages that will not come. The buffers are never released, because a late message may still
/// arrive in them.
class Pending {
 public:
  Pending() = default;
  explicit Pending(std::shared_ptr<detail::TransferBase> transfer);
  Pending(Pending&&) noexcept = default;
  Pending& operator=(Pending&& other) noexcept;
  ~Pending();

  /// Waits for the messages and unpacks them on the queue of start(): kernels submitted there afterwards see the
  /// result. Does nothing on a Pending that is finished or empty. Throws PeerFailed, CommunicationError.
  void finish();
  /// Whether finish() has not been called yet.
  bool active() const { return transfer_ != nullptr; }

 private:
  void abandon_or_finish() noexcept;

  std::shared_ptr<detail::TransferBase> transfer_;
  int exceptions_ = 0;
};

}  // namespace aloni::halo

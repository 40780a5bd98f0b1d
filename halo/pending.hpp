#pragma once
// A started exchange, redistribution or transfer.
#include <memory>

namespace aloni::halo {

namespace detail {
class TransferBase;
}

/// A started transfer. Move-only; finish() exactly once. When it is destroyed unfinished, it is finished there; while
/// an exception unwinds, or when finishing fails, nothing is waited for: the buffers are then never released (a late
/// message may still be written into them) and the communicator is poisoned, because peers wait for what will not
/// come.
class Pending {
 public:
  Pending() = default;
  explicit Pending(std::shared_ptr<detail::TransferBase> transfer);
  Pending(Pending&&) noexcept = default;
  Pending& operator=(Pending&& other) noexcept;
  ~Pending();

  /// Waits for the messages and unpacks them on the queue that was given to start: kernels that are submitted there
  /// afterwards see the result. Does nothing on a Pending that is finished or empty. Throws PeerFailed,
  /// CommunicationError.
  void finish();
  /// Whether finish() is still due.
  bool active() const { return transfer_ != nullptr; }

 private:
  void abandon_or_finish() noexcept;

  std::shared_ptr<detail::TransferBase> transfer_;
  int exceptions_ = 0;
};

}  // namespace aloni::halo

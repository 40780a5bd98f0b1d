#pragma once
// Mini-batches on their way to a device: two buffers of pinned host memory and two of device memory, in turn. The copy
// of a batch runs beside the kernels of the step before. The host waits only for the copy of the batch before the last.
//
//   StagedBatches batches;
//   batches.put(streams, bytes, write, copy, use);
//
// `Streams` has submit, record and await as run_on_streams() says (nn/stream_plan.hpp), and wait(point): the host waits
// for the event. The streams here are those of copies and of kernels. So tests run this code on streams that work late.
#include <array>
#include <cstddef>

namespace aloni::nn::detail {

class StagedBatches {
 public:
  static constexpr int kernels = 0, copies = 1;  ///< streams
  /// Of a buffer: its copy to the device is complete; kernels have read it there.
  static constexpr int copied(int buffer) { return 2 * buffer; }
  static constexpr int used(int buffer) { return 2 * buffer + 1; }
  static constexpr int points = 4;

  /// `write(buffer)` puts the values into the pinned buffer; the host has nothing else to wait for.
  /// `copy(buffer, queue)` submits the copy to device memory; `use(buffer, queue)` the kernels that read it there.
  /// `moves(buffer)`: whether the buffers are too small: write() then makes larger ones, and no kernel or copy may use
  /// the old ones.
  template <class Streams, class Moves, class Write, class Copy, class Use>
  void put(Streams& streams, const Moves& moves, const Write& write, const Copy& copy, const Use& use) {
    const int b = next_;
    next_ = 1 - next_;
    const bool again = filled_[static_cast<std::size_t>(b)];
    if (again) streams.wait(moves(b) ? used(b) : copied(b));
    write(b);
    if (again) streams.await(copies, used(b));
    streams.submit(copies, [b, copy](const auto& queue) { copy(b, queue); });
    streams.record(copies, copied(b));
    streams.await(kernels, copied(b));
    streams.submit(kernels, [b, use](const auto& queue) { use(b, queue); });
    streams.record(kernels, used(b));
    filled_[static_cast<std::size_t>(b)] = true;
  }

 private:
  int next_ = 0;
  std::array<bool, 2> filled_{};
};

}  // namespace aloni::nn::detail

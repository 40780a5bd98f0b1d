#pragma once
// Copies a host batch into the memory of a network.
#include <aloni/nn/data/host_batch.hpp>
#include <aloni/nn/network.hpp>

#include <memory>

namespace aloni::nn {

/// The part of a mini-batch that this rank owns in `network`, for read_batch(). Not collective.
template <class T, class Exec>
BatchPart part_of_batch(const Network<T, Exec>& network, const NetworkDescription& description);

/// Loads mini-batches one after the other. On a device each passes through one of two buffers of pinned memory, on a
/// queue of copies. So it travels beside the kernels of the step before, and the host waits only for the copy of the
/// batch before the last. On a host a batch is in the network when load() returns.
///
///   BatchLoader<float> loader(queue);
///   while (const HostBatch<float>* batch = next()) {
///     loader.load(*batch, network);
///     network.start_train_step(queue, optimiser, ++step);
///   }
///
/// The buffers are allocated at the first load, and again for larger batches. The destructor waits for both queues.
/// Not collective.
template <class T, class Exec = Kokkos::DefaultExecutionSpace>
class BatchLoader {
 public:
  /// `kernels`: the queue of the networks. Makes a queue for copies.
  explicit BatchLoader(const Queue<Exec>& kernels);
  BatchLoader(const Queue<Exec>& kernels, const Queue<Exec>& copies);
  BatchLoader(BatchLoader&&) noexcept = default;
  BatchLoader& operator=(BatchLoader&&) = delete;
  ~BatchLoader();

  /// As load_batch() and load_input(). Asynchronous: later work on the queue of kernels sees the values.
  void load(const HostBatch<T>& batch, Network<T, Exec>& network);
  void load_input(const HostBatch<T>& batch, Network<T, Exec>& network);

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

/// Fills input(), and labels(), pixel_labels() or targets() of `network`. The batch may change when it returns.
/// Not collective. @pre `batch` was read for part_of_batch(network, description)
/// Throws InvalidArgument for a batch of another size.
template <class T, class Exec>
void load_batch(const Queue<Exec>& queue, const HostBatch<T>& batch, Network<T, Exec>& network);

/// Fills input() only: for a network that predicts. As above otherwise. @pre `batch` was read for input_box()
template <class T, class Exec>
void load_input(const Queue<Exec>& queue, const HostBatch<T>& batch, Network<T, Exec>& network);

}  // namespace aloni::nn

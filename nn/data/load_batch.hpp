#pragma once
// Copies a host batch into the memory of a network.
#include <aloni/nn/data/host_batch.hpp>
#include <aloni/nn/network.hpp>

namespace aloni::nn {

/// The part of a mini-batch that this rank owns in `network`, for read_batch(). Not collective.
template <class T, class Exec>
BatchPart part_of_batch(const Network<T, Exec>& network, const NetworkDescription& description);

/// Fills input(), and labels(), pixel_labels() or targets() of `network`. The batch may change when it returns.
/// Not collective. @pre `batch` was read for part_of_batch(network, description)
/// Throws InvalidArgument for a batch of another size.
template <class T, class Exec>
void load_batch(const Queue<Exec>& queue, const HostBatch<T>& batch, Network<T, Exec>& network);

/// Fills input() only: for a network that predicts. As above otherwise. @pre `batch` was read for input_box()
template <class T, class Exec>
void load_input(const Queue<Exec>& queue, const HostBatch<T>& batch, Network<T, Exec>& network);

}  // namespace aloni::nn

#pragma once
// Fills this rank's part of a mini-batch from a set of images.
#include <aloni/nn/data/augmentation.hpp>
#include <aloni/nn/data/labelled_images.hpp>
#include <aloni/nn/network.hpp>

#include <span>

namespace aloni::nn {

/// Fills input() and labels() of `network` with the samples `chosen`: positions in `images`, one per sample of the
/// mini-batch, equal on all ranks. Each rank reads only the rows and columns of its own box.
/// Not collective. Asynchronous on the queue, but `images` has been read when it returns.
/// @pre chosen.size() is the number of samples of the network
/// @pre images.image has the extents of one sample of the network's input
/// @pre shifts is empty or has one element per sample of the mini-batch
template <class T, class Exec>
void fill_batch(const Queue<Exec>& queue, const LabelledImages& images, std::span<const Index> chosen,
                Network<T, Exec>& network, std::span<const Shift> shifts = {});

}  // namespace aloni::nn

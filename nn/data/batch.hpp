#pragma once
// From a set of images to this rank's part of a mini-batch.
#include <aloni/nn/data/labelled_images.hpp>
#include <aloni/nn/network.hpp>

#include <span>

namespace aloni::nn {

/// A sample moved by whole pixels; what the image doesn't cover then is background (bytes of 0).
struct Shift {
  int down = 0, right = 0;
};

/// Fills input() and labels() of `network` with the samples `chosen` (positions in `images`, one per sample of the mini-batch; the same on
/// all ranks): each rank reads the rows and columns of its own box only. Not collective. Asynchronous on the queue, but the
/// bytes have been read when it returns.
/// @pre chosen.size() is the network's number of samples; images.image its input
/// @pre shifts is empty or has one element per sample of the mini-batch
template <class T, class Exec>
void fill_batch(const Queue<Exec>& queue, const LabelledImages& images, std::span<const Index> chosen,
                Network<T, Exec>& network, std::span<const Shift> shifts = {});

}  // namespace aloni::nn

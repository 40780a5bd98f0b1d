#pragma once
// The values of a box of a changed sample: stored elements, moved, mirrored, jittered and normalised.
//
//   read_input<float>(set, sample, change, box, scratch, values);     // values.size() = box.size()
#include <aloni/nn/data/augmentation.hpp>
#include <aloni/nn/data/dataset.hpp>

#include <cstddef>
#include <span>
#include <vector>

namespace aloni::nn {

// Common contract. `box` counts within the sample. Values are written dense, channels last. Only the part of the file
// that `box` shows is read, into `scratch`, whose memory is used again. T is float, double, bfloat16 or float16; values
// are computed in double and rounded once.
// Not collective. Throw InvalidArgument for a wrong box or size, and FileError as SampleArray::read.

/// The input: all changes, then the normalisation of the set.
template <class T>
void read_input(const Dataset& set, Index sample, const Augmentation& change, const views::Box& box,
                std::vector<std::byte>& scratch, std::span<T> into);

/// Targets of elements. Their places change as those of the input; their values stay as they are stored.
template <class T>
void read_target_elements(const Dataset& set, Index sample, const Augmentation& change, const views::Box& box,
                          std::vector<std::byte>& scratch, std::span<T> into);

/// Labels of pixels. Their places change as those of the input; background has the label 0.
/// Throws FileError also for a label outside [0, classes). classes = 0: labels have no upper limit.
void read_pixel_labels(const Dataset& set, Index sample, const Augmentation& change, const views::Box& box,
                       Index classes, std::vector<int>& scratch, std::span<int> into);

}  // namespace aloni::nn

#pragma once
// Targets of a data set as the loss takes them: labels as int.
#include <aloni/nn/data/sample_array.hpp>

#include <span>

namespace aloni::nn {

/// Writes the labels of `box` of one sample to `into`, dense. `classes`: labels are below it; 0: not checked.
/// @pre is_integer(labels.type()), box lies within one sample, into.size() = box.size()
/// Not collective. Throws FileError naming the array, the sample and the label, for a label below 0, or not below
/// `classes`, or that no int can hold.
void read_labels(const SampleArray& labels, Index sample, const views::Box& box, Index classes, std::span<int> into);

/// The largest label of an array with one label for each sample. Reads all of them, one by one.
/// Not collective. Throws as read_labels. @pre labels.extents().size() = 1
Index largest_label(const SampleArray& labels, Index classes = 0);

}  // namespace aloni::nn

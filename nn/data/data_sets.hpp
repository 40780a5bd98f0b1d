#pragma once
// Opens the data sets of a folder; the names of the files say of which kind they are (docs/data.md):
//
//   const TrainAndTestSets sets = open_data_sets("cifar-10-batches-bin");
#include <aloni/nn/data/dataset.hpp>

#include <string>

namespace aloni::nn {

/// Kinds, by the first file found:
/// * train-images-idx3-ubyte[.gz]: MNIST, as read_mnist (nn/data/labelled_images.hpp);
/// * data_batch_*.bin[.gz]: CIFAR-10 (nn/data/cifar10.hpp); test_batch.bin[.gz] is the test set, if there is one;
/// * train-images or images, with .npy (nn/data/npy.hpp) or .json (nn/data/raw_array.hpp): own arrays.
/// Own arrays have their targets beside them: train-labels or labels (a label for each sample), masks (a label for each
/// pixel), or targets (values of the output). test-images and its targets are the test set, if they exist.
/// Bytes of own arrays are multiplied by 1/255. The number of classes is the largest label of the samples, plus one.
/// A path that ends with .h5 or .hdf5 is a file whose data sets have the names of own arrays (nn/data/hdf5_array.hpp).
/// Reads headers, and the labels of samples. Not collective: wrap it in comm::collectively.
/// Throws FileError naming the path if it has no data of these kinds, or two candidates for one array. Also for a size
/// or type that does not fit, and for test samples with other extents than training samples.
TrainAndTestSets open_data_sets(const std::string& path);

}  // namespace aloni::nn

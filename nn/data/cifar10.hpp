#pragma once
// The binary form of CIFAR-10: records of 3,073 bytes. A record is one byte of label, 0 to 9, and 3,072 bytes of an
// image of 32 x 32 pixels: the red plane, then green, then blue, each row by row.
// Source: Krizhevsky, "Learning multiple layers of features from tiny images", 2009.
#include <aloni/nn/data/dataset.hpp>

#include <string>
#include <vector>

namespace aloni::nn {

/// The records of several files, in the order of the files. Images are 1,1,32,32,3. A read takes one record of a plain
/// file; nothing stays in memory. A gzip file is inflated first (docs/data.md).
/// Not collective. Throws FileError naming the path: no whole number of records, or none. Throws Unsupported for a gzip
/// file without zlib.
Dataset open_cifar10(const std::vector<std::string>& paths);

}  // namespace aloni::nn

#pragma once
// A whole set of images with one label each, in host memory of every rank. Pixels stay bytes until a mini-batch is
// filled.
#include <aloni/core/index.hpp>
#include <aloni/views/box.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace aloni::nn {

struct LabelledImages {
  views::Extents image;  ///< one sample: 1,1,H,W,C
  Index classes = 10;
  std::vector<std::uint8_t> pixels;  ///< size() * image.size() bytes, channels last
  std::vector<std::uint8_t> labels;  ///< each less than classes
  double scale = 1.0 / 255.0;        ///< value = (pixel * scale - mean) / deviation
  double mean = 0.0;
  double deviation = 1.0;

  Index size() const { return static_cast<Index>(labels.size()); }
};

struct TrainAndTest {
  LabelledImages train, test;
};

/// Reads sets in the format of MNIST from one folder: train-images-idx3-ubyte, train-labels-idx1-ubyte,
/// t10k-images-idx3-ubyte, t10k-labels-idx1-ubyte, each plain or with .gz. Normalises by the mean and deviation of
/// MNIST (0.1307, 0.3081).
/// Not collective: wrap it in comm::collectively.
/// Throws FileError for a missing, truncated or too long file, a wrong magic number, different numbers of images and
/// labels, and a label ≥ 10. Throws Unsupported for .gz without zlib.
TrainAndTest read_mnist(const std::string& folder);

}  // namespace aloni::nn

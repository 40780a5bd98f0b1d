#pragma once
// A set of images with one label each, whole, in host memory of every rank; pixels stay bytes until a mini-batch is filled.
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
  std::vector<std::uint8_t> labels;  ///< each below classes
  double scale = 1.0 / 255.0;        ///< value = (pixel * scale - mean) / deviation
  double mean = 0.0;
  double deviation = 1.0;

  Index size() const { return static_cast<Index>(labels.size()); }
};

struct TrainAndTest {
  LabelledImages train, test;
};

/// Reads MNIST-like sets: train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte, t10k-labels-idx1-ubyte,
/// each plain or with .gz, from one folder; normalises by the mean and deviation of MNIST (0.1307, 0.3081).
/// Not collective: wrap in comm::collectively. Throws FileError: missing, truncated, or too long file, wrong magic number,
/// counts that differ between images and labels, label ≥ 10; Unsupported for .gz without zlib.
TrainAndTest read_mnist(const std::string& folder);

}  // namespace aloni::nn

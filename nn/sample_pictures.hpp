#pragma once
// Test samples with their predictions as small pictures, for a report. Pure. Each rank adds its part of the samples.
// A sum over ranks then gives each rank all pictures. No rank ever has a whole large sample: a picture has the means
// over cells of pixels, and at most 128 cells in height and width.
//
//   SampleSums sums(network, 8);
//   sums.add_inputs<float>(input_box, values);             // on ranks that own the first copy of them
//   sums.add_outputs<float>(output_box, {.outputs = y, .labels = labels});
//   comm.all_reduce(sums.values(), comm::Reduction::sum);
//   const std::vector<SampleResult> results = sums.results();
#include <aloni/nn/network_description.hpp>
#include <aloni/views/box.hpp>

#include <array>
#include <cstddef>
#include <span>
#include <vector>

namespace aloni::nn {

/// Of volumes, the slice in the middle.
struct SamplePicture {
  int width = 0, height = 0, channels = 1;  ///< channels: 1, or 3 for red, green, blue
  std::vector<double> values = {};          ///< channels last, row by row from the top
  double black = 0, white = 1;              ///< the values to show as black and as white
};

struct SampleResult {
  Index sample = 0;          ///< position in the test set
  SamplePicture input = {};  ///< three channels as red, green, blue; of any other number the first one
  /// Of pixel_cross_entropy: the colours of the classes (colour_of_class). Of binary_cross_entropy and dice: t and
  /// sigmoid(logit) of the first channel, or of three. Of mean_squared_error: t and y. Empty for labels of samples.
  SamplePicture truth = {}, prediction = {};
  Index label = -1, predicted = -1;  ///< of softmax_cross_entropy
  /// Correct predictions divided by all of the sample; of mean_squared_error, the mean of |y - t|.
  double score = 0;
};

/// Red, green and blue from 0 to 1. Class 0 is black; others have a hue each.
std::array<double, 3> colour_of_class(Index label);

class SampleSums {
 public:
  /// For the first `samples` of a mini-batch.
  SampleSums(const NetworkDescription& network, Index samples);

  template <class T>
  struct Outputs {
    std::span<const T> outputs;        ///< of the box, dense, channels last
    std::span<const int> labels = {};  ///< as HostBatch::labels, of the same box
    std::span<const T> targets = {};   ///< as HostBatch::targets
  };
  /// `box`: samples count within the mini-batch; those beyond the first ones are left out. T: float, double, bfloat16,
  /// float16.
  template <class T>
  void add_inputs(const views::Box& box, std::span<const T> values);
  /// @pre the box has all channels if the loss has labels
  template <class T>
  void add_outputs(const views::Box& box, const Outputs<T>& values);

  /// To be summed over ranks, between the last add and results().
  std::span<double> values() { return sums_; }
  std::vector<SampleResult> results() const;

 private:
  /// The cells of a picture.
  struct Canvas {
    views::Extents extents;  ///< of one sample
    Index side = 1;          ///< pixels of a cell in height and width
    int width = 0, height = 0, channels = 0;

    Canvas() = default;
    Canvas(const views::Extents& sample, int channels);
    std::size_t size() const {
      return static_cast<std::size_t>(width) * static_cast<std::size_t>(height) * static_cast<std::size_t>(channels);
    }
    std::size_t place(Index h, Index w, Index c) const {
      return static_cast<std::size_t>(((h / side) * width + w / side) * channels + c);
    }
    /// Means from the sums of the cells.
    SamplePicture picture(const double* sums) const;
  };

  double* sample(Index n) { return sums_.data() + static_cast<std::size_t>(n) * stride_; }

  Loss loss_;
  Index samples_;
  Canvas input_, output_;
  Index predictions_ = 1;   ///< of one sample
  std::size_t stride_ = 0;  ///< sums of one sample: input, truth, prediction, score, label + 1, predicted + 1
  std::vector<double> sums_;
};

}  // namespace aloni::nn

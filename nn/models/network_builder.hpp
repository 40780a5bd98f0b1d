#pragma once
// Builds a description layer by layer. Private to nn/models/.
//
//   NetworkBuilder net(2, input, Loss::softmax_cross_entropy);
//   net.add("conv1", Convolution{6, square_window(2, 5)});   // reads "input"
//   const std::string skip = net.add("relu1", Relu{});       // reads conv1
//   net.add("sum", Add{}, {"conv1", skip});
#include <aloni/nn/models.hpp>

#include <string>
#include <utility>
#include <vector>

namespace aloni::nn::models {

class NetworkBuilder {
 public:
  NetworkBuilder(int spatial_rank, const views::Extents& input, Loss loss) {
    network_.spatial_rank = spatial_rank;
    network_.input = input;
    network_.loss = loss;
  }

  /// Adds a layer that reads the last one. Returns its name.
  std::string add(const std::string& name, Operation op) { return add(name, std::move(op), {last_}); }
  std::string add(const std::string& name, Operation op, std::vector<std::string> inputs) {
    network_.layers.push_back({name, std::move(op), std::move(inputs)});
    return last_ = name;
  }

  /// A square convolution that pads by half its kernel, without bias, and batch normalisation: "<prefix>conv<suffix>",
  /// "<prefix>bn<suffix>".
  std::string add_normalised(const std::string& prefix, const std::string& suffix, Index filters, Index kernel,
                             Index stride) {
    add(prefix + "conv" + suffix, convolution(filters, kernel, stride));
    return add(prefix + "bn" + suffix, BatchNorm{});
  }
  /// As above, and a ReLU: "<prefix>relu<suffix>".
  std::string add_rectified(const std::string& prefix, const std::string& suffix, Index filters, Index kernel,
                            Index stride) {
    add_normalised(prefix, suffix, filters, kernel, stride);
    return add(prefix + "relu" + suffix, Relu{});
  }
  Convolution convolution(Index filters, Index kernel, Index stride, bool bias = false) const {
    return {filters, square_window(network_.spatial_rank, kernel, stride, kernel / 2), bias};
  }

  const std::string& last() const { return last_; }
  /// The layers that follow read `name` instead of the last layer.
  void continue_from(const std::string& name) { last_ = name; }

  NetworkDescription finish() && { return std::move(network_); }

 private:
  NetworkDescription network_;
  std::string last_ = "input";
};

/// The extents given in the options, or else the default.
inline views::Extents input_of(const ModelOptions& options, const views::Extents& otherwise) {
  return options.input.value_or(otherwise);
}

/// Images that deep classifiers read without an early reduction.
inline bool is_small(const views::Extents& image) {
  return image[views::Dim::height] <= 64 && image[views::Dim::width] <= 64;
}

}  // namespace aloni::nn::models

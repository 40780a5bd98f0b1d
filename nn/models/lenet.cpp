#include <aloni/nn/models/families.hpp>

namespace aloni::nn {

NetworkDescription lenet5(const views::Extents& image, Index classes) {
  const Pooling halve{PoolingKind::max, square_window(2, 2, 2)};
  NetworkDescription network;
  network.spatial_rank = 2;
  network.input = image;
  network.loss = Loss::softmax_cross_entropy;
  network.layers = {
      {"conv1", Convolution{6, square_window(2, 5, 1, 2)}, {"input"}},
      {"relu1", Relu{}, {"conv1"}},
      {"pool1", halve, {"relu1"}},
      {"conv2", Convolution{16, square_window(2, 5)}, {"pool1"}},
      {"relu2", Relu{}, {"conv2"}},
      {"pool2", halve, {"relu2"}},
      {"flatten", Flatten{}, {"pool2"}},
      {"fc1", Dense{120}, {"flatten"}},
      {"relu3", Relu{}, {"fc1"}},
      {"fc2", Dense{84}, {"relu3"}},
      {"relu4", Relu{}, {"fc2"}},
      {"fc3", Dense{classes}, {"relu4"}},
  };
  return network;
}

NetworkDescription models::lenet5(const ModelOptions& options) {
  return nn::lenet5(options.input.value_or(views::Extents{{1, 1, 28, 28, 1}}), options.classes.value_or(10));
}

}  // namespace aloni::nn

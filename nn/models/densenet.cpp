#include <aloni/nn/models/families.hpp>
#include <aloni/nn/models/network_builder.hpp>

#include <array>

namespace aloni::nn::models {

// Each layer reads the channels of all earlier layers of its block. They grow by one concatenation after each layer,
// which the next layer and the next concatenation read: the same values as one concatenation of all, with two inputs.
NetworkDescription densenet121(const ModelOptions& options) {
  constexpr Index growth = 32, bottleneck = 4 * growth;
  constexpr std::array<int, 4> layers{6, 12, 24, 16};
  const views::Extents input = input_of(options, {{1, 1, 224, 224, 3}});
  NetworkBuilder net(2, input, Loss::softmax_cross_entropy);
  Index channels = 64;
  if (is_small(input)) {
    net.add_rectified("stem.", "", channels, 3, 1);
  } else {
    net.add_rectified("stem.", "", channels, 7, 2);
    net.add("stem.pool", Pooling{PoolingKind::max, square_window(2, 3, 2, 1)});
  }
  for (std::size_t b = 0; b < layers.size(); ++b) {
    const std::string block = std::to_string(b + 1);
    for (int l = 1; l <= layers[b]; ++l) {
      const std::string prefix = "block" + block + ".layer" + std::to_string(l) + ".", features = net.last();
      net.add(prefix + "bn1", BatchNorm{});
      net.add(prefix + "relu1", Relu{});
      net.add_rectified(prefix, "2", bottleneck, 1, 1);
      const std::string grown = net.add(prefix + "conv3", net.convolution(growth, 3, 1));
      net.add(prefix + "join", Concatenate{}, {features, grown});
      channels += growth;
    }
    if (b + 1 == layers.size()) break;
    const std::string prefix = "transition" + block + ".";
    channels /= 2;
    net.add(prefix + "bn", BatchNorm{});
    net.add(prefix + "relu", Relu{});
    net.add(prefix + "conv", net.convolution(channels, 1, 1));
    net.add(prefix + "pool", Pooling{PoolingKind::average, square_window(2, 2, 2)});
  }
  net.add("bn", BatchNorm{});
  net.add("relu", Relu{});
  net.add("mean", GlobalAveragePooling{});
  net.add("fc", Dense{options.classes.value_or(is_small(input) ? 10 : 1000)});
  return std::move(net).finish();
}

}  // namespace aloni::nn::models

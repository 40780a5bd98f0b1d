#include <aloni/nn/models/families.hpp>
#include <aloni/nn/models/network_builder.hpp>

#include <array>

namespace aloni::nn::models {

NetworkDescription vgg16(const ModelOptions& options) {
  NetworkBuilder net(2, input_of(options, {{1, 1, 224, 224, 3}}), Loss::softmax_cross_entropy);
  constexpr std::array<int, 5> convolutions{2, 2, 3, 3, 3};
  constexpr std::array<Index, 5> filters{64, 128, 256, 512, 512};
  for (std::size_t b = 0; b < convolutions.size(); ++b) {
    const std::string block = std::to_string(b + 1);
    for (int i = 1; i <= convolutions[b]; ++i) {
      const std::string suffix = block + "_" + std::to_string(i);
      net.add("conv" + suffix, net.convolution(filters[b], 3, 1, true));
      net.add("relu" + suffix, Relu{});
    }
    net.add("pool" + block, Pooling{PoolingKind::max, square_window(2, 2, 2)});
  }
  // The identity for 224 × 224. Dense layers need these extents for other inputs too.
  net.add("pool6", AdaptivePooling{PoolingKind::average, square_extents(2, 7)});
  net.add("flatten", Flatten{});
  net.add("fc1", Dense{4096});
  net.add("relu6", Relu{});
  net.add("fc2", Dense{4096});
  net.add("relu7", Relu{});
  net.add("fc3", Dense{options.classes.value_or(1000)});
  return std::move(net).finish();
}

}  // namespace aloni::nn::models

#include <aloni/nn/models/families.hpp>
#include <aloni/nn/models/network_builder.hpp>

#include <array>

namespace aloni::nn::models {

namespace {

enum class Block { basic, bottleneck };

/// The output channels of a block are those of its stage times this factor.
Index expansion(Block block) { return block == Block::bottleneck ? 4 : 1; }

/// A residual block: the sum of its convolutions and of its input, or of a projection of its input.
void add_block(NetworkBuilder& net, const std::string& name, Block block, Index filters, Index stride, bool projects) {
  const std::string prefix = name + ".", input = net.last();
  std::string result;
  if (block == Block::basic) {
    net.add_rectified(prefix, "1", filters, 3, stride);
    result = net.add_normalised(prefix, "2", filters, 3, 1);
  } else {
    net.add_rectified(prefix, "1", filters, 1, 1);
    net.add_rectified(prefix, "2", filters, 3, stride);
    result = net.add_normalised(prefix, "3", filters * expansion(block), 1, 1);
  }
  std::string shortcut = input;
  if (projects) {
    net.continue_from(input);
    shortcut = net.add_normalised(prefix + "shortcut.", "", filters * expansion(block), 1, stride);
  }
  net.add(prefix + "sum", Add{}, {result, shortcut});
  net.add(prefix + "relu", Relu{});
}

NetworkDescription resnet(const ModelOptions& options, Block block, const std::array<int, 4>& blocks) {
  const views::Extents input = input_of(options, {{1, 1, 224, 224, 3}});
  NetworkBuilder net(2, input, Loss::softmax_cross_entropy);
  if (is_small(input)) {
    net.add_rectified("stem.", "", 64, 3, 1);
  } else {
    net.add_rectified("stem.", "", 64, 7, 2);
    net.add("stem.pool", Pooling{PoolingKind::max, square_window(2, 3, 2, 1)});
  }
  Index filters = 64;
  for (std::size_t s = 0; s < blocks.size(); ++s, filters *= 2) {
    for (int b = 0; b < blocks[s]; ++b) {
      const Index stride = s > 0 && b == 0 ? 2 : 1;
      const bool projects = b == 0 && (stride > 1 || expansion(block) > 1);
      add_block(net, "stage" + std::to_string(s + 1) + ".block" + std::to_string(b + 1), block, filters, stride,
                projects);
    }
  }
  net.add("mean", GlobalAveragePooling{});
  net.add("fc", Dense{options.classes.value_or(is_small(input) ? 10 : 1000)});
  return std::move(net).finish();
}

}  // namespace

NetworkDescription resnet18(const ModelOptions& options) { return resnet(options, Block::basic, {2, 2, 2, 2}); }
NetworkDescription resnet50(const ModelOptions& options) { return resnet(options, Block::bottleneck, {3, 4, 6, 3}); }
NetworkDescription resnet152(const ModelOptions& options) { return resnet(options, Block::bottleneck, {3, 8, 36, 3}); }

}  // namespace aloni::nn::models

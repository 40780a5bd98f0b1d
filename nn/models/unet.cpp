#include <aloni/nn/models/families.hpp>
#include <aloni/nn/models/network_builder.hpp>

#include <vector>

namespace aloni::nn::models {

namespace {

/// The filters of the two convolutions of one resolution.
struct Pair {
  Index first, second;
};

void add_pair(NetworkBuilder& net, const std::string& prefix, const Pair& filters) {
  net.add_rectified(prefix, "1", filters.first, 3, 1);
  net.add_rectified(prefix, "2", filters.second, 3, 1);
}

/// `down`: one pair for each resolution, the lowest last. `up`: the pairs on the way back, and the filters of the
/// transposed convolution before each.
struct Filters {
  std::vector<Pair> down, up;
  std::vector<Index> transposed;
};

NetworkDescription unet(const ModelOptions& options, int spatial_rank, const views::Extents& input, const Filters& f) {
  NetworkBuilder net(spatial_rank, input_of(options, input), Loss::binary_cross_entropy);
  const Window halves = square_window(spatial_rank, 2, 2);
  std::vector<std::string> skips;
  for (std::size_t l = 0; l + 1 < f.down.size(); ++l) {
    const std::string prefix = "down" + std::to_string(l + 1) + ".";
    add_pair(net, prefix, f.down[l]);
    skips.push_back(net.last());
    net.add(prefix + "pool", Pooling{PoolingKind::max, halves});
  }
  add_pair(net, "bottom.", f.down.back());
  for (std::size_t k = 0; k < f.up.size(); ++k) {
    const std::string prefix = "up" + std::to_string(skips.size()) + ".";
    const std::string fine = net.add(prefix + "transposed", TransposedConvolution{f.transposed[k], halves});
    net.add(prefix + "join", Concatenate{}, {skips.back(), fine});
    skips.pop_back();
    add_pair(net, prefix, f.up[k]);
  }
  net.add("prediction", net.convolution(options.classes.value_or(1), 1, 1, true));
  return std::move(net).finish();
}

}  // namespace

NetworkDescription unet2d(const ModelOptions& options) {
  return unet(options, 2, {{1, 1, 512, 512, 1}},
              {.down = {{64, 64}, {128, 128}, {256, 256}, {512, 512}, {1024, 1024}},
               .up = {{512, 512}, {256, 256}, {128, 128}, {64, 64}},
               .transposed = {512, 256, 128, 64}});
}

NetworkDescription unet3d(const ModelOptions& options) {
  return unet(options, 3, {{1, 128, 128, 128, 1}},
              {.down = {{32, 64}, {64, 128}, {128, 256}, {256, 512}},
               .up = {{256, 256}, {128, 128}, {64, 64}},
               .transposed = {512, 256, 128}});
}

}  // namespace aloni::nn::models

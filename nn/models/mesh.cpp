#include <aloni/nn/models/families.hpp>
#include <aloni/nn/models/network_builder.hpp>

#include <array>

namespace aloni::nn::models {

namespace {

NetworkDescription mesh(const ModelOptions& options, Index pixels, int convolutions) {
  constexpr std::array<Index, 6> filters{128, 160, 192, 256, 384, 128};
  NetworkBuilder net(2, input_of(options, {{1, 1, pixels, pixels, 18}}), Loss::binary_cross_entropy);
  for (std::size_t b = 0; b < filters.size(); ++b) {
    for (int i = 1; i <= convolutions; ++i) {
      const bool first = i == 1;
      net.add_rectified("", std::to_string(b + 1) + "_" + std::to_string(i), filters[b], b == 0 && first ? 5 : 3,
                        first ? 2 : 1);
    }
  }
  net.add("prediction", net.convolution(options.classes.value_or(1), 1, 1, true));
  return std::move(net).finish();
}

}  // namespace

NetworkDescription mesh1k(const ModelOptions& options) { return mesh(options, 1024, 3); }
NetworkDescription mesh2k(const ModelOptions& options) { return mesh(options, 2048, 5); }

}  // namespace aloni::nn::models

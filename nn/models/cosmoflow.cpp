#include <aloni/nn/models/families.hpp>
#include <aloni/nn/models/network_builder.hpp>

#include <algorithm>
#include <array>

namespace aloni::nn::models {

NetworkDescription cosmoflow(const ModelOptions& options) {
  constexpr std::array<Index, 7> filters{16, 32, 64, 128, 256, 256, 256};
  const views::Extents input = input_of(options, {{1, 128, 128, 128, 1}});
  const Index longest = std::max({input[views::Dim::depth], input[views::Dim::height], input[views::Dim::width]});
  NetworkBuilder net(3, input, Loss::mean_squared_error);
  const int pools = longest >= 512 ? 7 : longest >= 256 ? 6 : 5;
  for (int i = 1; i <= 7; ++i) {
    const std::string number = std::to_string(i);
    net.add("conv" + number, net.convolution(filters[static_cast<std::size_t>(i - 1)], 3, i == 4 ? 2 : 1, true));
    net.add("relu" + number, Relu{});
    if (i <= pools) net.add("pool" + number, Pooling{PoolingKind::average, square_window(3, 3, 2, 1)});
  }
  net.add("flatten", Flatten{});
  net.add("fc1", Dense{2048});
  net.add("relu8", Relu{});
  net.add("fc2", Dense{256});
  net.add("relu9", Relu{});
  net.add("fc3", Dense{options.classes.value_or(4)});
  return std::move(net).finish();
}

}  // namespace aloni::nn::models

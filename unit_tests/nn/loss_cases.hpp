#pragma once
// A small network for each loss, and labels or targets that depend on their global position only.
#include "random_network.hpp"
#include "split_harness.hpp"

#include <aloni/nn/detail/convolution_direction.hpp>

#include <array>
#include <cstdint>
#include <type_traits>

namespace aloni::nn::test {

inline constexpr std::array all_losses{Loss::softmax_cross_entropy, Loss::binary_cross_entropy,
                                       Loss::mean_squared_error, Loss::pixel_cross_entropy, Loss::dice};

inline int label_at(std::uint64_t seed, Index position, int classes) {
  return static_cast<int>(random::integer(seed, 8, static_cast<std::uint64_t>(position)) %
                          static_cast<std::uint64_t>(classes));
}
inline double target_at(std::uint64_t seed, Index position) {
  return random::uniform<double>(seed, 9, static_cast<std::uint64_t>(position));
}

/// Fills the labels or targets of this rank by their global positions.
template <class T>
void fill_targets(Run<T>& run, Loss loss) {
  auto& network = run.network;
  const Box out = network.output_box();
  const Extents whole = network.output_distribution().extents();
  const int classes = static_cast<int>(whole[Dim::channel]);
  const auto upload = [](const auto& view, const auto& host) {
    using Memory = typename std::decay_t<decltype(view)>::memory_space;
    const auto dense = Kokkos::create_mirror_view_and_copy(Memory{}, host);
    Kokkos::deep_copy(view, dense);
  };
  switch (targets_of(loss)) {
    case LossTargets::sample_labels: {
      auto host = Kokkos::create_mirror_view(network.labels());
      for (std::size_t i = 0; i < host.extent(0); ++i)
        host(i) = label_at(run.seed, out.lower(Dim::sample) + static_cast<Index>(i), classes);
      Kokkos::deep_copy(network.labels(), host);
      EXPECT_EQ(network.pixel_labels().size() + network.targets().size(), 0u);
      return;
    }
    case LossTargets::pixel_labels: {
      Extents pixels = whole;
      pixels[Dim::channel] = 1;
      const auto host = on_host(network.pixel_labels());
      if (!out.empty())
        for_each_index(detail::with_channels(out, {0, 1}), pixels, [&](const auto& i, Index position) {
          host(i[0], i[1], i[2], i[3], 0) = label_at(run.seed, position, classes);
        });
      upload(network.pixel_labels(), host);
      EXPECT_EQ(network.labels().size() + network.targets().size(), 0u);
      return;
    }
    case LossTargets::elements:
      break;
  }
  const auto host = on_host(network.targets());
  for_each_index(out, whole, [&](const auto& i, Index position) {
    host(i[0], i[1], i[2], i[3], i[4]) = static_cast<T>(target_at(run.seed, position));
  });
  upload(network.targets(), host);
  EXPECT_EQ(network.labels().size() + network.pixel_labels().size(), 0u);
}

inline NetworkDescription net_of_loss(Loss loss, int classes) {
  NetworkDescription net;
  net.spatial_rank = 2;
  net.input = views::make_extents(1, {7, 6}, 2);
  net.loss = loss;
  net.layers = {{"conv", Convolution{4, square_window(2, 3, 1, 1)}, {"input"}},
                {"tanh", Tanh{}, {"conv"}},
                {"last", Convolution{classes, square_window(2, 1)}, {"tanh"}}};
  if (loss == Loss::softmax_cross_entropy) net.layers.push_back({"mean", GlobalAveragePooling{}, {"last"}});
  return net;
}

template <class T>
Run<T> run_of(const comm::Communicator& comm, const NetworkDescription& net, const Strategy& strategy, Index samples,
              Weights weights = Weights::whole) {
  return {comm, net, strategy, samples, Values::reals, 5, local::ConvolutionBackend::automatic, weights};
}

}  // namespace aloni::nn::test

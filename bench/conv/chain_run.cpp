#include "conv/chain_run.hpp"

#include <aloni/core/random.hpp>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

namespace aloni::bench {

namespace {

constexpr Index channels = 16, width = 64;
constexpr int depth = 8;

nn::NetworkDescription chain() {
  nn::NetworkDescription net;
  net.input = views::make_extents(1, {width, width}, channels);
  net.loss = nn::Loss::binary_cross_entropy;
  std::string previous = "input";
  for (int i = 1; i <= depth; ++i) {
    const std::string number = std::to_string(i);
    net.layers.push_back({"conv" + number, nn::Convolution{channels, nn::square_window(2, 3, 1, 1)}, {previous}});
    net.layers.push_back({"relu" + number, nn::Relu{}, {"conv" + number}});
    previous = "relu" + number;
  }
  return net;
}

nn::Strategy in_height(int ranks, nn::Overlap overlap) {
  nn::LayerSplit split = nn::LayerSplit::parse("h" + std::to_string(ranks));
  split.overlap = overlap;
  return nn::Strategy::uniform(split);
}

using Dense = Kokkos::View<float*****, Kokkos::LayoutRight, Kokkos::DefaultExecutionSpace::memory_space>;

template <class View>
Dense dense_like(const View& v) {
  return Dense("aloni::bench::dense", v.extent(0), v.extent(1), v.extent(2), v.extent(3), v.extent(4));
}

/// Fills the input. A value depends only on the global index, so every split gets the same image.
void paint(const nn::Network<float>& network) {
  const auto x = network.input();
  const Dense dense = dense_like(x);
  const auto host = Kokkos::create_mirror_view(dense);
  const auto first = static_cast<std::uint64_t>(network.input_box().lower(views::Dim::height) * width * channels);
  for (std::size_t i = 0; i < host.size(); ++i) host.data()[i] = random::normal<float>(1, 2, first + i);
  Kokkos::deep_copy(dense, host);
  Kokkos::deep_copy(x, dense);
}

auto result_of(const nn::Network<float>& network) {
  const Dense dense = dense_like(network.output());
  Kokkos::deep_copy(dense, network.output());
  return Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, dense);
}

}  // namespace

ChainRun::ChainRun(const comm::Communicator& world, nn::Overlap overlap)
    : net_(chain()),
      parameters_(queue_, net_, 1),
      network_(world, queue_, net_, in_height(world.size(), overlap), 1, parameters_) {
  nn::Network<float> alone(world.split(world.rank(), 0), queue_, net_, nn::Strategy::uniform({}), 1, parameters_);
  for (nn::Network<float>* network : {&network_, &alone}) {
    paint(*network);
    network->forward(queue_, nn::Mode::evaluation);
  }
  queue_.fence("aloni::bench: results are compared");
  const auto mine = result_of(network_), whole = result_of(alone);
  const Index first = network_.output_box().lower(views::Dim::height);
  float worst = 0, largest = 0;
  for (std::size_t i = 0; i < mine.size(); ++i) {
    const float expected = whole.data()[static_cast<std::size_t>(first * width * channels) + i];
    worst = std::max(worst, std::abs(mine.data()[i] - expected));
    largest = std::max(largest, expected);
  }
  if (!(largest > 0) || !(worst <= 1e-5F * largest))
    throw std::runtime_error("bench_conv: chain split in height with overlap " + std::string(nn::name(overlap)) +
                             " gives another result than one rank alone");
}

void ChainRun::run() {
  network_.forward(queue_, nn::Mode::evaluation);
  queue_.fence("aloni::bench: the chain is complete");
}

}  // namespace aloni::bench

// Times the set-up of a network: its constructor plans the steps, takes memory and makes kernels and transfers.
//
//   set_up/MODEL/GRID-bBATCH    MODEL: lenet5 (28x28x1), resnet18 (32x32x3); GRID with two ranks: n2 or h2
//
// The file uses only what older trees have too, so that bench/compare_builds.py can compare them: copy it into bench/
// of the older tree, and its line in bench/CMakeLists.txt. ResNet-18 is therefore described here.
#include "support/benchmark.hpp"

#include <aloni/core/comm/communicator.hpp>
#include <aloni/nn/network.hpp>

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace aloni::bench {
namespace {

using views::ProcessGrid;

nn::NetworkDescription images(Index size, Index channels) {
  nn::NetworkDescription net;
  net.spatial_rank = 2;
  net.input = views::make_extents(1, {size, size}, channels);
  net.loss = nn::Loss::softmax_cross_entropy;
  return net;
}

nn::NetworkDescription lenet5() {
  nn::NetworkDescription net = images(28, 1);
  net.layers = {{"conv1", nn::Convolution{6, nn::square_window(2, 5, 1, 2)}, {"input"}},
                {"relu1", nn::Relu{}, {"conv1"}},
                {"pool1", nn::Pooling{nn::PoolingKind::max, nn::square_window(2, 2, 2, 0)}, {"relu1"}},
                {"conv2", nn::Convolution{16, nn::square_window(2, 5, 1, 0)}, {"pool1"}},
                {"relu2", nn::Relu{}, {"conv2"}},
                {"pool2", nn::Pooling{nn::PoolingKind::max, nn::square_window(2, 2, 2, 0)}, {"relu2"}},
                {"flatten", nn::Flatten{}, {"pool2"}},
                {"fc1", nn::Dense{120}, {"flatten"}},
                {"relu3", nn::Relu{}, {"fc1"}},
                {"fc2", nn::Dense{84}, {"relu3"}},
                {"relu4", nn::Relu{}, {"fc2"}},
                {"fc3", nn::Dense{10}, {"relu4"}}};
  return net;
}

nn::NetworkDescription resnet18() {
  nn::NetworkDescription net = images(32, 3);
  std::string last = "input";
  const auto add = [&](const std::string& name, nn::Operation operation, std::vector<std::string> inputs) {
    net.layers.push_back({name, std::move(operation), std::move(inputs)});
    return last = name;
  };
  const auto convolution = [&](const std::string& name, const std::string& from, Index filters, Index size,
                               Index stride) {
    nn::Convolution c{filters, nn::square_window(2, size, stride, size / 2)};
    c.bias = false;
    add(name, c, {from});
    return add(name + "_norm", nn::BatchNorm{}, {name});
  };
  add("relu", nn::Relu{}, {convolution("conv", "input", 64, 3, 1)});
  for (int stage = 0; stage < 4; ++stage) {
    for (int block = 0; block < 2; ++block) {
      const std::string name = "stage" + std::to_string(stage + 1) + "_block" + std::to_string(block + 1) + "_";
      const std::string from = last;
      const Index filters = Index{64} << stage, stride = stage > 0 && block == 0 ? 2 : 1;
      add(name + "relu1", nn::Relu{}, {convolution(name + "conv1", from, filters, 3, stride)});
      const std::string path = convolution(name + "conv2", last, filters, 3, 1);
      const std::string shortcut = stride == 1 ? from : convolution(name + "shortcut", from, filters, 1, stride);
      add(name + "sum", nn::Add{}, {path, shortcut});
      add(name + "relu2", nn::Relu{}, {last});
    }
  }
  add("mean", nn::GlobalAveragePooling{}, {last});
  add("flatten", nn::Flatten{}, {last});
  add("dense", nn::Dense{10}, {last});
  return net;
}

/// What a set-up needs, and the network that it makes.
struct SetUp {
  comm::Communicator comm;
  Queue<> queue;
  nn::NetworkDescription net;
  nn::Strategy strategy;
  Index batch;
  nn::Parameters<float> parameters;

  SetUp(const comm::Communicator& c, nn::NetworkDescription description, const ProcessGrid& grid, Index samples)
      : comm(c),
        net(std::move(description)),
        strategy(nn::Strategy::uniform(grid)),
        batch(samples),
        parameters(comm, queue, net, 1) {}

  std::unique_ptr<nn::Network<float>> run() {
    auto network = std::make_unique<nn::Network<float>>(comm, queue, net, strategy, batch, parameters);
    queue.fence("aloni::bench: the network is complete");
    return network;
  }
  /// Throws std::runtime_error unless each rank has its part of the input.
  void check() {
    const auto network = run();
    if (static_cast<Index>(network->input().size()) != network->input_box().size())
      throw std::runtime_error("bench_set_up: a rank has no input of its box");
  }
};

}  // namespace

void register_benchmarks(const comm::Communicator& world) {
  std::vector<ProcessGrid> grids{{}};
  if (world.size() > 1) {
    grids = {ProcessGrid::parse("n" + std::to_string(world.size())),
             ProcessGrid::parse("h" + std::to_string(world.size()))};
  }
  for (const bool large : {false, true}) {
    for (const ProcessGrid& grid : grids) {
      const std::string name =
          std::string("set_up/") + (large ? "resnet18" : "lenet5") + "/" + to_string(grid) + "-b64";
      add_timed(world, name, [world, large, grid]() -> Case {
        auto state = std::make_shared<SetUp>(world, large ? resnet18() : lenet5(), grid, 64);
        state->check();
        return {.run = [state] { state->run(); }};
      });
    }
  }
}

}  // namespace aloni::bench

// Times the cost model on 4,096 ranks of a100_cluster. It runs on rank 0 alone, on one core.
//
//   search/MODEL/r4096       choose_strategy() with all candidates, without simulated steps; resnet152, densenet121
//   choose/resnet50/r4096    the same with the simulated steps of the best
//   simulate/resnet50/r4096  simulate() of one step under n1024h2w2
//   search/lenet5/r16        a smoke run
#include "support/benchmark.hpp"

#include <aloni/model/choose_strategy.hpp>
#include <aloni/model/shipped_machines.hpp>
#include <aloni/model/simulate.hpp>
#include <aloni/nn/models.hpp>

#include <array>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace aloni::bench {
namespace {

/// ResNet-152 (He et al. 2016, table 1), with the stride in the 3×3 convolution as in make_model("resnet50").
nn::NetworkDescription resnet152() {
  nn::NetworkDescription net{.spatial_rank = 2,
                             .input = views::make_extents(1, {224, 224}, 3),
                             .layers = {},
                             .loss = nn::Loss::softmax_cross_entropy};
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
  add("relu", nn::Relu{}, {convolution("conv", "input", 64, 7, 2)});
  add("pool", nn::Pooling{nn::PoolingKind::max, nn::square_window(2, 3, 2, 1)}, {"relu"});
  constexpr std::array<int, 4> blocks{3, 8, 36, 3};
  for (int stage = 0; stage < 4; ++stage) {
    for (int block = 0; block < blocks[static_cast<std::size_t>(stage)]; ++block) {
      const std::string name = "stage" + std::to_string(stage + 1) + "_block" + std::to_string(block + 1) + "_";
      const std::string from = last;
      const Index filters = Index{64} << stage, stride = stage > 0 && block == 0 ? 2 : 1;
      add(name + "relu1", nn::Relu{}, {convolution(name + "conv1", from, filters, 1, 1)});
      add(name + "relu2", nn::Relu{}, {convolution(name + "conv2", last, filters, 3, stride)});
      const std::string path = convolution(name + "conv3", last, 4 * filters, 1, 1);
      const std::string shortcut = block > 0 ? from : convolution(name + "shortcut", from, 4 * filters, 1, stride);
      add(name + "sum", nn::Add{}, {path, shortcut});
      add(name + "relu3", nn::Relu{}, {last});
    }
  }
  add("mean", nn::GlobalAveragePooling{}, {last});
  add("flatten", nn::Flatten{}, {last});
  add("dense", nn::Dense{1000}, {last});
  return net;
}

struct Problem {
  nn::NetworkDescription net;
  model::Machine machine = model::find_machine("a100_cluster");
  int ranks;
  Index samples;
};

Case search(nn::NetworkDescription net, int ranks, int simulated) {
  auto problem = std::make_shared<const Problem>(Problem{.net = std::move(net), .ranks = ranks, .samples = 8 * ranks});
  return {.run =
              [problem, simulated] {
                const model::StrategyChoice choice =
                    choose_strategy(problem->net, problem->machine, problem->ranks,
                                    {.samples = problem->samples, .simulated = simulated});
                if (!(choice.seconds > 0)) throw std::runtime_error("bench_model: a strategy without time");
              },
          .counters = {{"layers", static_cast<double>(problem->net.layers.size())}},
          .on_first_rank = true};
}

Case simulation() {
  auto problem =
      std::make_shared<const Problem>(Problem{.net = nn::make_model("resnet50"), .ranks = 4096, .samples = 32'768});
  const auto splits = nn::resolve(nn::Strategy::uniform(nn::LayerSplit::parse("n1024h2w2")), problem->net, 4096);
  auto layers = std::make_shared<const nn::NetworkPlan>(nn::plan_network(problem->net, splits, 4096, problem->samples));
  return {.run =
              [problem, layers] {
                const model::Machine& machine = problem->machine;
                const model::MachineKernels kernels(machine, machine.ranks_per_node, machine.threads_per_rank);
                if (!(simulate(problem->net, *layers, machine, kernels).seconds > 0))
                  throw std::runtime_error("bench_model: a step without time");
              },
          .on_first_rank = true};
}

}  // namespace

void register_benchmarks(const comm::Communicator& world) {
  add_timed(world, "search/lenet5/r16", [] { return search(nn::make_model("lenet5"), 16, 0); });
  add_timed(world, "search/resnet152/r4096", [] { return search(resnet152(), 4096, 0); });
  add_timed(world, "search/densenet121/r4096", [] { return search(nn::make_model("densenet121"), 4096, 0); });
  add_timed(world, "choose/resnet50/r4096", [] { return search(nn::make_model("resnet50"), 4096, 3); });
  add_timed(world, "simulate/resnet50/r4096", [] { return simulation(); });
}

}  // namespace aloni::bench

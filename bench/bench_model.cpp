// Times the cost model on 4,096 ranks of a100_cluster. It runs on rank 0 alone, on one core.
//
//   search/MODEL/r4096       choose_strategy() with all candidates, without simulated steps; resnet152, densenet121
//   search/MODEL/r4096/SIZE  the same with a mini-batch of 4,096, under this limit of memory for each rank
//   choose/resnet50/r4096    the same with the simulated steps of the best
//   simulate/resnet50/r4096  simulate() of one step under n1024h2w2
//   search/lenet5/r16        a smoke run
#include "support/benchmark.hpp"

#include <aloni/model/choose_strategy.hpp>
#include <aloni/model/shipped_machines.hpp>
#include <aloni/model/simulate.hpp>
#include <aloni/nn/models.hpp>

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

namespace aloni::bench {
namespace {

struct Problem {
  nn::NetworkDescription net;
  model::Machine machine = model::find_machine("a100_cluster");
  int ranks;
  Index samples;
};

Case search(nn::NetworkDescription net, int ranks, int simulated, double memory_bytes = 0) {
  auto all = std::make_shared<Problem>(
      Problem{.net = std::move(net), .ranks = ranks, .samples = (memory_bytes > 0 ? 1 : 8) * ranks});
  if (memory_bytes > 0) all->machine.memory_bytes = memory_bytes;
  const std::shared_ptr<const Problem> problem = all;
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
  add_timed(world, "search/resnet152/r4096", [] { return search(nn::make_model("resnet152"), 4096, 0); });
  add_timed(world, "search/densenet121/r4096", [] { return search(nn::make_model("densenet121"), 4096, 0); });
  add_timed(world, "search/resnet152/r4096/500M", [] { return search(nn::make_model("resnet152"), 4096, 0, 500e6); });
  add_timed(world, "search/densenet121/r4096/180M",
            [] { return search(nn::make_model("densenet121"), 4096, 0, 180e6); });
  add_timed(world, "choose/resnet50/r4096", [] { return search(nn::make_model("resnet50"), 4096, 3); });
  add_timed(world, "simulate/resnet50/r4096", [] { return simulation(); });
}

}  // namespace aloni::bench

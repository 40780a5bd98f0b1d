// Times a whole training step of LeNet-5 (28x28 digits): forward, loss, backward, gradient all-reduce and optimiser.
// The input is in place before the step.
//
//   train_step/lenet5/PRECISION/GRID-bBATCH    split over all ranks; GRID with two ranks: n2 (samples) or h2 (height)
//   train_step/lenet5/PRECISION/timed-GRID-b64   the same step with times of all its nodes (nn/step_times.hpp)
//   train_step/lenet5/PRECISION/alone-bBATCH   limit: every rank runs its share of the samples, without messages
//
// PRECISION: float, double. BATCH: 64 or 1024 samples per step, of all ranks together. The ratio of the two times is
// the cost of the split.
#include "support/benchmark.hpp"

#include <aloni/core/comm/communicator.hpp>
#include <aloni/core/random.hpp>
#include <aloni/nn/models.hpp>
#include <aloni/nn/network.hpp>
#include <aloni/nn/step_times.hpp>

#include <cmath>
#include <memory>
#include <stdexcept>
#include <string>

namespace aloni::bench {
namespace {

using views::Dim;
using views::ProcessGrid;

template <class T>
struct Step {
  comm::Communicator comm;
  Queue<> queue;
  nn::NetworkDescription net = nn::lenet5(views::make_extents(1, {28, 28}, 1), 10);
  nn::Parameters<T> parameters{comm, queue, net, 1};
  nn::Network<T> network;
  nn::StepTimes times;

  Step(const comm::Communicator& c, const ProcessGrid& grid, Index batch)
      : comm(c), network(comm, queue, net, nn::Strategy::uniform(grid), batch, parameters) {
    const auto x = network.input();
    auto host = Kokkos::create_mirror_view(
        Kokkos::View<T*****, Kokkos::LayoutRight, typename Kokkos::DefaultExecutionSpace::memory_space>(
            "aloni::bench::input", x.extent(0), x.extent(1), x.extent(2), x.extent(3), x.extent(4)));
    for (std::size_t i = 0; i < host.size(); ++i) host.data()[i] = random::normal<T>(1, 2, i);
    const auto dense =
        Kokkos::create_mirror_view_and_copy(typename Kokkos::DefaultExecutionSpace::memory_space{}, host);
    Kokkos::deep_copy(queue.space(), x, dense);
    const auto labels = Kokkos::create_mirror_view(network.labels());
    for (std::size_t i = 0; i < labels.extent(0); ++i) labels(i) = static_cast<int>(i % 10);
    Kokkos::deep_copy(queue.space(), network.labels(), labels);
    queue.fence("aloni::bench: input is in place");
  }

  double run() {
    times.clear();
    const double loss = network.train_step(queue).loss;
    parameters.sgd(queue, {.learning_rate = 0.01});
    queue.fence("aloni::bench: the step is complete");
    return loss;
  }

  /// Throws std::runtime_error unless 20 more steps on one mini-batch reduce its loss.
  void check() {
    const double before = run();
    double after = before;
    for (int i = 0; i < 20; ++i) after = run();
    if (!std::isfinite(after) || after >= before) {
      throw std::runtime_error("bench_train_step: 20 steps on one mini-batch must reduce the loss, but it went from " +
                               std::to_string(before) + " to " + std::to_string(after));
    }
  }
};

template <class T>
void add_step(const comm::Communicator& comm, const comm::Communicator& world, const std::string& name,
              const ProcessGrid& grid, Index batch, Index samples_of_all, bool timed = false) {
  add_timed(world, name, [comm, grid, batch, samples_of_all, timed]() -> Case {
    auto step = std::make_shared<Step<T>>(comm, grid, batch);
    if (timed) step->network.record_times(&step->times);
    step->check();
    return {.run = [step] { step->run(); }, .items = static_cast<double>(samples_of_all)};
  });
}

template <class T>
void add_all(const comm::Communicator& world, const comm::Communicator& self, const std::string& precision) {
  const int ranks = world.size();
  std::vector<ProcessGrid> grids{{}};
  if (ranks > 1) {
    grids = {ProcessGrid::parse("n" + std::to_string(ranks)), ProcessGrid::parse("h" + std::to_string(ranks))};
  }
  const std::string prefix = "train_step/lenet5/" + precision + "/";
  for (Index batch : {64, 1024}) {
    const std::string suffix = "-b" + std::to_string(batch);
    for (const ProcessGrid& grid : grids) {
      const std::string name = to_string(grid) + suffix;
      add_step<T>(world, world, prefix + name, grid, batch, batch);
      if (batch == 64) add_step<T>(world, world, prefix + "timed-" + name, grid, batch, batch, true);
    }
    add_step<T>(self, world, prefix + "alone" + suffix, {}, batch / ranks, batch);
  }
}

}  // namespace

void register_benchmarks(const comm::Communicator& world) {
  const comm::Communicator self = world.split(world.rank(), 0);
  add_all<float>(world, self, "float");
  add_all<double>(world, self, "double");
}

}  // namespace aloni::bench

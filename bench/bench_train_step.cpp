// Times whole steps of the networks by name: a training step with forward, loss, backward, gradient all-reduce and
// optimiser, and an inference step. The input is in place before the step.
//
//   train_step/lenet5/PRECISION/GRID-bBATCH        GRID with two ranks: n2 (samples) or h2 (height)
//   train_step/lenet5/PRECISION/timed-GRID-b64     the same step with times of all its nodes (nn/step_times.hpp)
//   train_step/lenet5/PRECISION/alone-bBATCH       limit: every rank runs its share of the samples, without messages
//   train_step/MODEL/float/GRID-bBATCH             the other networks, with the inputs of zoo() below
//   infer_step/MODEL/float/GRID-bBATCH             a network for inference, lenet5 included
//
// PRECISION: float, double. BATCH: samples per step, of all ranks together; 64 and 1024 for LeNet-5. The ratio of the
// times of GRID and alone is the cost of the split.
//
// Before the clock starts, LeNet-5 must learn its mini-batch. The other networks must give the loss that one rank alone
// gets.
#include "support/benchmark.hpp"

#include <aloni/core/comm/communicator.hpp>
#include <aloni/core/random.hpp>
#include <aloni/nn/data/synthetic.hpp>
#include <aloni/nn/models.hpp>
#include <aloni/nn/network.hpp>
#include <aloni/nn/step_times.hpp>

#include <algorithm>
#include <cmath>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

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

/// A network of the zoo with an input that two cores train in about a second.
struct Model {
  std::string name;
  views::Extents input;
  Index batch;
};

std::vector<Model> zoo() {
  const auto image = [](Index size, Index channels) { return views::make_extents(1, {size, size}, channels); };
  const auto volume = [](Index size) { return views::make_extents(1, {size, size, size}, 1); };
  return {{"vgg16", image(32, 3), 8},       {"resnet18", image(32, 3), 16}, {"resnet50", image(32, 3), 16},
          {"densenet121", image(32, 3), 8}, {"mesh1k", image(128, 18), 2},  {"mesh2k", image(128, 18), 2},
          {"unet2d", image(64, 1), 2},      {"unet3d", volume(16), 2},      {"cosmoflow", volume(32), 2}};
}

/// A training or inference step of one network on made-up data.
class ZooStep {
 public:
  ZooStep(const comm::Communicator& comm, const Model& model, const ProcessGrid& grid, bool infers)
      : net_(nn::make_model(model.name, {.input = model.input})),
        parameters_(comm, queue_, net_, 1, infers ? nn::ParameterUse::inference : nn::ParameterUse::training),
        network_(comm, queue_, net_, nn::Strategy::uniform(grid), model.batch, parameters_, {.inference = infers}),
        infers_(infers) {
    nn::fill_synthetic(queue_, net_, 1, 0, network_);
    queue_.fence("aloni::bench: input is in place");
  }

  double run() {
    const double loss = infers_ ? network_.evaluate(queue_).loss : network_.train_step(queue_).loss;
    if (!infers_) parameters_.sgd(queue_, {.learning_rate = 1e-3});
    queue_.fence("aloni::bench: the step is complete");
    return loss;
  }

 private:
  Queue<> queue_;
  nn::NetworkDescription net_;
  nn::Parameters<float> parameters_;
  nn::Network<float> network_;
  bool infers_;
};

/// Throws std::runtime_error unless the loss is finite and that of one rank alone. All ranks have equal losses.
void check_loss(const std::string& name, double loss, double alone) {
  if (std::isfinite(loss) && std::abs(loss - alone) <= 1e-3 * std::max(1.0, std::abs(alone))) return;
  throw std::runtime_error("bench_train_step: the loss of " + name + " is " + std::to_string(loss) +
                           ", but that of one rank alone " + std::to_string(alone));
}

void add_zoo_step(const comm::Communicator& world, const comm::Communicator& self, const Model& model,
                  const ProcessGrid& grid, bool infers) {
  const std::string name = std::string(infers ? "infer_step/" : "train_step/") + model.name + "/float/" +
                           to_string(grid) + "-b" + std::to_string(model.batch);
  add_timed(world, name, [world, self, model, grid, infers, name]() -> Case {
    const double alone = world.size() > 1 ? ZooStep(self, model, {}, infers).run() : 0;
    auto step = std::make_shared<ZooStep>(world, model, grid, infers);
    const double loss = step->run();
    check_loss(name, loss, world.size() > 1 ? alone : loss);
    return {.run = [step] { step->run(); }, .items = static_cast<double>(model.batch)};
  });
}

/// One rank, or all ranks by samples and by height.
std::vector<ProcessGrid> grids_of(int ranks) {
  if (ranks == 1) return {{}};
  return {ProcessGrid::parse("n" + std::to_string(ranks)), ProcessGrid::parse("h" + std::to_string(ranks))};
}

template <class T>
void add_all(const comm::Communicator& world, const comm::Communicator& self, const std::string& precision) {
  const int ranks = world.size();
  const std::vector<ProcessGrid> grids = grids_of(ranks);
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
  const auto add_grids = [&](const Model& model, bool infers) {
    for (const ProcessGrid& grid : grids_of(world.size())) add_zoo_step(world, self, model, grid, infers);
  };
  for (const Index batch : {64, 1024}) add_grids({"lenet5", views::make_extents(1, {28, 28}, 1), batch}, true);
  for (const Model& model : zoo())
    for (const bool infers : {false, true}) add_grids(model, infers);
}

}  // namespace aloni::bench

// A simulation in which a network learns while the solver runs. Smoke drifts in the wind. The solver has a cheap
// step, which smears the smoke, and an accurate one. The network learns the error of the cheap step and corrects it.
//   mpirun -n 3 in_simulation [--steps N] [--size CELLS] [--picture FILE.png]
// The solver splits the domain into uneven blocks of rows (solver.hpp). The cost model chooses the splits of layers.
// The network reads the solver's View where it lies. Redistributions bring predictions to the solver, and gradients to
// the network.
// In the last quarter of the run the network gets no accurate steps any more.
// The picture shows the smoke, the true correction of the last step, and its prediction.
#include "picture.hpp"
#include "solver.hpp"

#include <aloni/core/comm/mpi.hpp>
#include <aloni/core/environment.hpp>
#include <aloni/model/choose_strategy.hpp>
#include <aloni/model/shipped_machines.hpp>
#include <aloni/nn/network.hpp>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <string>
#include <string_view>

namespace in_simulation {

struct Options {
  Index steps = 600, size = 64;
  std::string picture;
};

/// Throws InvalidArgument (equal on all ranks).
Options parse(int argc, char** argv) {
  const auto bad = [](std::string_view flag, std::string_view value, const char* expectation) {
    throw InvalidArgument("in_simulation", std::string(flag), std::string(value), expectation);
  };
  Options options;
  for (int i = 1; i < argc; i += 2) {
    const std::string_view flag = argv[i], value = i + 1 < argc ? argv[i + 1] : "";
    const auto number = [&](Index least, Index most, const char* expectation) {
      Index n = 0;
      const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), n);
      if (error != std::errc{} || end != value.data() + value.size() || n < least || n > most)
        bad(flag, value, expectation);
      return n;
    };
    if (flag == "--steps") {
      options.steps = number(4, 1000000, "a number of steps from 4 to 1000000");
    } else if (flag == "--size") {
      options.size = number(16, 4096, "a number of cells from 16 to 4096");
    } else if (flag == "--picture") {
      if (value.empty()) bad(flag, value, "the name of a file");
      options.picture = value;
    } else {
      bad("argument", flag, "--steps N, --size CELLS or --picture FILE.png");
    }
  }
  return options;
}

/// From smoke and wind to the correction of the smoke. The loss of the description is not used.
nn::NetworkDescription corrector(Index size) {
  using nn::Convolution;
  return {.spatial_rank = 2,
          .input = views::make_extents(1, {size, size}, channels),
          .layers = {{"conv1", Convolution{12, nn::square_window(2, 5, 1, 2)}, {"input"}},
                     {"relu1", nn::Relu{}, {"conv1"}},
                     {"conv2", Convolution{12, nn::square_window(2, 3, 1, 1)}, {"relu1"}},
                     {"relu2", nn::Relu{}, {"conv2"}},
                     {"conv3", Convolution{1, nn::square_window(2, 3, 1, 1)}, {"relu2"}},
                     {"linear", Convolution{1, nn::square_window(2, 7, 1, 3)}, {"input"}},
                     {"sum", nn::Add{}, {"conv3", "linear"}}},
          .loss = nn::Loss::binary_cross_entropy};
}

/// Both corrections have the same colours. Collective.
void write_picture(const comm::Communicator& comm, const std::string& path, const Solver& solver, const State& state,
                   const Field& truth, const Field& prediction) {
  const auto cells = solver.gather(state.fields), wanted = solver.gather(truth), found = solver.gather(prediction);
  comm::collectively(comm, "in_simulation: writing the picture", [&] {
    if (comm.rank() != 0) return;
    float largest = 1e-9F;
    for (std::size_t i = 0; i < wanted.extent(1); ++i)
      for (std::size_t j = 0; j < wanted.extent(2); ++j) largest = std::max(largest, std::abs(wanted(0, i, j, 0)));
    Picture picture(static_cast<int>(wanted.extent(1)), 2, 3);
    const float brightest = largest / 4;  // corrections are largest at the wall
    picture.draw(0, false, [&](int y, int x) { return cells(0, y, x, smoke); });
    picture.draw(1, true, [&](int y, int x) { return wanted(0, y, x, 0) / brightest; });
    picture.draw(2, true, [&](int y, int x) { return found(0, y, x, 0) / brightest; });
    picture.write(path);
  });
}

void run(const comm::Communicator& comm, const Options& options) {
  const Queue<> queue;
  const Solver solver(comm, queue, options.size);
  const State corrected = solver.state(), uncorrected = solver.state(), reference = solver.state();
  const Field cheap = solver.cells("cheap"), accurate = solver.cells("accurate"), truth = solver.cells("truth");
  const Field prediction = solver.cells("prediction"), gradient = solver.cells("gradient");

  const auto net = corrector(options.size);
  // Equal on all ranks without communication. model::read_machine() takes a file of `aloni calibrate` instead.
  const auto choice = model::choose_strategy(net, model::find_machine("x86_server"), comm.size());
  if (comm.rank() == 0)
    std::printf("strategy %s: %.2f ms per step of the network by the cost model\n", choice.strategy.source.c_str(),
                1e3 * choice.seconds);
  nn::Parameters<float> parameters(comm, queue, net, choice.splits, 1);
  for (const int layer : {4, 5})  // zero: no correction at first
    for (const int k : {0, 1}) Kokkos::deep_copy(queue.space(), parameters.value(parameters.find(layer, k)), 0);
  nn::Network<float> network(comm, queue, net, choice.strategy, 1, parameters, {}, corrected.fields);
  const halo::Redistribution<> to_solver(comm, queue, network.output_field(), prediction);
  const halo::Redistribution<> to_network(comm, queue, gradient, network.output_gradient_field());

  float unit = 1;  // of predictions: the size of the first true correction
  const Index learning = options.steps - options.steps / 4;
  for (Index step = 0; step < options.steps; ++step) {
    solver.cheap_step(step, corrected, cheap);
    network.forward(queue, nn::Mode::training);
    to_solver.run(queue);
    if (step < learning || step + 1 == options.steps) {
      solver.accurate_step(step, corrected, accurate);
      if (step == 0) unit = static_cast<float>(solver.difference(accurate, cheap));
      solver.combine(truth, 1 / unit, accurate, -1 / unit, cheap);
    }
    if (step < learning) {  // the loss is the mean square of prediction - truth
      const float factor = 2 / static_cast<float>(options.size * options.size);
      solver.combine(gradient, factor, prediction, -factor, truth);
      to_network.run(queue);
      network.backward(queue);
      network.reduce_gradients(queue);
      parameters.sgd(queue, {.learning_rate = 0.03});
    }
    solver.combine(corrected.fields, 1, cheap, unit, prediction);
    solver.cheap_step(step, uncorrected, cheap);
    solver.combine(uncorrected.fields, 1, cheap, 0, cheap);
    solver.accurate_step(step, reference, reference.fields);

    const Index done = step + 1;
    if (done % std::max<Index>(1, options.steps / 8) != 0 && done != options.steps) continue;
    const double with = solver.difference(corrected.fields, reference.fields);
    const double without = solver.difference(uncorrected.fields, reference.fields);
    if (comm.rank() == 0)
      std::printf("step %d: error %.4f without the network, %.4f with it: %.1f times smaller\n", static_cast<int>(done),
                  without, with, without / with);
  }
  if (!options.picture.empty()) write_picture(comm, options.picture, solver, corrected, truth, prediction);
}

}  // namespace in_simulation

int main(int argc, char** argv) {
  const aloni::Environment environment(argc, argv);
  const auto comm = aloni::comm::from_mpi(MPI_COMM_WORLD);
  try {
    in_simulation::run(comm, in_simulation::parse(argc, argv));
  } catch (const std::exception& e) {
    std::fprintf(stderr, "rank %d: %s\n", comm.rank(), e.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
}

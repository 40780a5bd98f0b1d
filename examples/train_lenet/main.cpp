// LeNet-5 learns handwritten digits; the application has its own training loop.
//   mpirun -n 2 train_lenet FOLDER [GRID]
// FOLDER: for example examples/data/mnist_subset. GRID: the split of images and mini-batches, h2 (default), n2, h2w2, …
#include <aloni/core/comm/mpi.hpp>
#include <aloni/core/environment.hpp>
#include <aloni/nn/data/batch.hpp>
#include <aloni/nn/models.hpp>
#include <aloni/nn/network.hpp>

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <random>
#include <stdexcept>

using namespace aloni;

void train(const comm::Communicator& comm, const char* folder, const char* grid) {
  // If one rank cannot read a file, collectively() throws on all ranks.
  const auto digits = comm::collectively(comm, "reading the digits", [&] { return nn::read_mnist(folder); });
  const auto lenet = nn::lenet5(digits.train.image, digits.train.classes);
  const auto strategy = nn::Strategy::uniform(views::ProcessGrid::parse(grid));
  constexpr Index batch = 50;  // divides the sizes of both data sets
  const Index steps = digits.train.size() / batch, tests = digits.test.size() / batch;
  const Queue<> queue;
  nn::Parameters<float> parameters(comm, queue, lenet, 1);
  nn::Network<float> network(comm, queue, lenet, strategy, batch, parameters);

  std::vector<Index> order(digits.train.size());
  std::iota(order.begin(), order.end(), Index{0});
  const std::vector<Index> in_order = order;
  for (int epoch = 1; epoch <= 2; ++epoch) {
    std::shuffle(order.begin(), order.end(), std::mt19937(epoch));  // the same order on all ranks
    double loss = 0, right = 0;
    for (Index i = 0; i < steps; ++i) {
      nn::fill_batch(queue, digits.train, {&order[i * batch], batch}, network);
      loss += network.train_step(queue).loss / steps;
      parameters.sgd(queue, {.learning_rate = 0.02});
    }
    for (Index i = 0; i < tests; ++i) {
      nn::fill_batch(queue, digits.test, {&in_order[i * batch], batch}, network);
      right += network.evaluate(queue).correct;
    }
    if (comm.rank() == 0)
      std::printf("epoch %d: loss %.3f, %.1f %% right\n", epoch, loss, 100 * right / digits.test.size());
  }
}

int main(int argc, char** argv) {
  const Environment environment(argc, argv);
  const auto comm = comm::from_mpi(MPI_COMM_WORLD);
  try {
    if (argc < 2) throw std::invalid_argument("usage: train_lenet FOLDER [GRID]");
    train(comm, argv[1], argc > 2 ? argv[2] : "h2");
  } catch (const std::exception& e) {
    std::fprintf(stderr, "rank %d: %s\n", comm.rank(), e.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
}

// A training step inside a host program. After the first step the library allocates no Kokkos memory and no large
// heap block, fences no whole device, and labels every fence. Executing a step does not use the heap. The network
// works in a program that started MPI and Kokkos itself, on a communicator of that program.
#include "split_harness.hpp"

#include <support/fence_guard.hpp>
#include <support/heap_guard.hpp>

#include <aloni/core/comm/mpi.hpp>
#include <aloni/core/error.hpp>
#include <aloni/nn/data/batch.hpp>
#include <aloni/nn/models.hpp>
#include <aloni/nn/step.hpp>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <string>
#include <vector>

namespace aloni::nn::test {
namespace {

using views::ProcessGrid;

std::vector<std::string> grids(int ranks) {
  if (ranks == 1) return {"1"};
  if (ranks == 4) return {"n4", "h2w2", "n2h2", "n2"};
  return {"n" + std::to_string(ranks), "h" + std::to_string(ranks)};
}

LabelledImages made_up_images(Index count) {
  LabelledImages images;
  images.image = views::make_extents(1, {28, 28}, 1);
  for (Index i = 0; i < count * 28 * 28; ++i)
    images.pixels.push_back(static_cast<std::uint8_t>(random::integer(4, 5, i)));
  for (Index i = 0; i < count; ++i) images.labels.push_back(static_cast<std::uint8_t>(i % 10));
  return images;
}

template <class T>
void expect_clean_step(const comm::Communicator& comm, const NetworkDescription& net, const LabelledImages& images) {
  for (const std::string& grid : grids(comm.size())) {
    SCOPED_TRACE("grid " + grid);
    const Queue<> queue;
    Parameters<T> parameters(queue, net, 1);
    Network<T> network(comm, queue, net, Strategy::uniform(ProcessGrid::parse(grid)), images.size(), parameters);
    Parameters<T> others(queue, net, 1, ParameterUse::training, OptimiserKind::adam);
    Network<T> updating(comm, queue, net, Strategy::uniform(ProcessGrid::parse(grid)), images.size(), others,
                        {.update = true});
    fill_batch(queue, images, std::vector<Index>(static_cast<std::size_t>(images.size()), 0), updating);
    std::vector<Index> order(images.size());
    for (Index i = 0; i < images.size(); ++i) order[i] = i;
    const auto step = [&] {
      fill_batch(queue, images, order, network);
      network.train_step(queue);
      parameters.sgd(queue, {});
      network.evaluate(queue);
      updating.train_step(queue, AdamOptions{}, 1);
    };
    step();
    testing::FenceGuard guard;
    guard.arm();
    step();
    guard.disarm();
    EXPECT_EQ(guard.report(), "");
    EXPECT_GT(guard.kernels(), 20);
  }
}

TEST(GoodGuest, AllocatesNothingAndFencesNoWholeDeviceAfterTheFirstStep) {
  const auto comm = comm::from_mpi(MPI_COMM_WORLD);
  const LabelledImages images = made_up_images(16);
  expect_clean_step<float>(comm, lenet5(images.image, 10), images);
  expect_clean_step<double>(comm, lenet5(images.image, 10), images);
}

TEST(GoodGuest, StartsAStepWithoutAWaitForItsResult) {
  const auto comm = comm::from_mpi(MPI_COMM_WORLD).split(comm::from_mpi(MPI_COMM_WORLD).rank(), 0);  // alone
  const LabelledImages images = made_up_images(16);
  const NetworkDescription net = lenet5(images.image, 10);
  const Queue<> queue;
  std::vector<StepResult> results;
  std::vector<std::vector<float>> values;
  for (const bool waits : {true, false}) {
    Parameters<float> parameters(queue, net, 1, ParameterUse::training, OptimiserKind::adam);
    Network<float> network(comm, queue, net, Strategy::uniform({}), images.size(), parameters, {.update = true});
    std::vector<Index> order(images.size());
    for (Index i = 0; i < images.size(); ++i) order[i] = i;
    fill_batch(queue, images, order, network);
    StepResult result = network.train_step(queue, AdamOptions{}, 1);
    testing::FenceGuard guard;
    guard.arm();
    if (waits) {
      result = network.train_step(queue, AdamOptions{}, 2);
    } else {
      network.start_train_step(queue, AdamOptions{}, 2);
    }
    guard.disarm();
    EXPECT_EQ(guard.fences(), waits ? 1 : 0);
    EXPECT_GT(guard.kernels(), 10);
    results.push_back(waits ? result : network.step_result(queue));
    const auto all = parameters.gather_values(queue);
    values.emplace_back(all.data(), all.data() + all.extent(0));
  }
  EXPECT_EQ(results[0].loss, results[1].loss);
  EXPECT_EQ(results[0].correct, results[1].correct);
  EXPECT_EQ(values[0], values[1]);

  Parameters<float> parameters(queue, net, 1);
  Network<float> network(comm, queue, net, Strategy::uniform({}), images.size(), parameters);
  EXPECT_THROW(network.start_train_step(queue, SgdOptions{}, 1), InvalidArgument);
  Network<float> inference(comm, queue, net, Strategy::uniform({}), images.size(), parameters, {.inference = true});
  EXPECT_THROW((void)inference.step_result(queue), InvalidArgument);
}

TEST(GoodGuest, KeepsTheRulesInEveryLayer) {
  const auto comm = comm::from_mpi(MPI_COMM_WORLD);
  const LabelledImages images = made_up_images(8);
  NetworkDescription net;
  net.spatial_rank = 2;
  net.input = images.image;
  net.layers = {{"conv", Convolution{4, square_window(2, 3, 2, 1), true}, {"input"}},
                {"norm", BatchNorm{StatisticsScope::all, 0.1, 1e-5}, {"conv"}},
                {"group_norm", GroupNorm{2}, {"norm"}},
                {"layer_norm", LayerNorm{}, {"group_norm"}},
                {"silu", Silu{}, {"layer_norm"}},
                {"dropout", Dropout{0.25}, {"silu"}},
                {"relu", Relu{}, {"dropout"}},
                {"pool", Pooling{PoolingKind::average, square_window(2, 3, 1, 1), false}, {"relu"}},
                {"sum", Add{}, {"pool", "relu"}},
                {"up", Upsampling{UpsamplingMode::linear, square_extents(2, 2)}, {"sum"}},
                {"down", AdaptivePooling{PoolingKind::max, square_extents(2, 9)}, {"up"}},
                {"last", Convolution{10, square_window(2, 3, 1, 1), true}, {"down"}},
                {"mean", GlobalAveragePooling{}, {"last"}}};
  expect_clean_step<double>(comm, net, images);
}

TEST(GoodGuest, ExecutesAStepWithoutHeapAllocations) {
  if (!aloni::test::HeapGuard::counts) return;
  const auto comm = comm::from_mpi(MPI_COMM_WORLD);
  const Queue<> queue;
  const Kokkos::View<double*> x("x", 4), y("y", 4);
  Step<Kokkos::DefaultExecutionSpace> step;
  int actions = 0;
  step.set_scope("aloni::nn::a scope that is long enough to need memory");
  for (int i = 0; i < 10; ++i) {
    step.transfer("transfer", {writes(x)}, {});
    step.kernel("kernel", {reads(x), writes(y)}, [&](const auto&) { ++actions; });
    step.collective(
        "collective", {writes(y)}, [&](const Queue<>&) { ++actions; }, [&](const Queue<>&) { ++actions; });
  }
  step.prepare();
  Stopwatch stopwatch;
  aloni::test::HeapGuard guard;
  for (int i = 0; i < 3; ++i) step.execute(queue, comm, stopwatch);
  guard.disarm();
  EXPECT_EQ(guard.allocations(), 0) << guard.report();
  EXPECT_EQ(actions, 3 * 30);

  // The same with a separate queue for communication.
  const std::vector<Queue<>> queues{queue, Queue<>(Kokkos::Experimental::partition_space(queue.space(), 1).front())};
  aloni::test::HeapGuard second_guard;
  for (int i = 0; i < 3; ++i) step.execute(queues, comm, stopwatch);
  second_guard.disarm();
  EXPECT_EQ(second_guard.allocations(), 0) << second_guard.report();
  EXPECT_EQ(actions, 6 * 30);
}

TEST(GoodGuest, AllocatesNoLargeHeapBlockAfterTheFirstStep) {
  if (!aloni::test::HeapGuard::counts) return;
  // Small blocks are kernel labels, data that Kokkos keeps with a policy, and texts of checks that succeed. A message
  // that arrives early is stored in memory that is reused. Allocations of a step itself would appear in every step.
  constexpr std::size_t large = 128;
  const auto comm = comm::from_mpi(MPI_COMM_WORLD);
  const LabelledImages images = made_up_images(16);
  const NetworkDescription net = lenet5(images.image, 10);
  for (const std::string& grid : grids(comm.size())) {
    SCOPED_TRACE("grid " + grid);
    const Queue<> queue;
    Parameters<float> parameters(queue, net, 1);
    Network<float> network(comm, queue, net, Strategy::uniform(ProcessGrid::parse(grid)), images.size(), parameters);
    network.train_step(queue);
    long fewest = std::numeric_limits<long>::max();
    std::string report;
    for (int i = 0; i < 20; ++i) {
      aloni::test::HeapGuard guard(large);
      network.train_step(queue);
      guard.disarm();
      fewest = std::min(fewest, guard.allocations());
      report = guard.report();
    }
    EXPECT_EQ(fewest, 0) << "in the last step " << report;
  }
}

TEST(GoodGuest, WorksOnASubsetOfTheRanks) {
  MPI_Comm half;
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);  // ranks in reverse order
  if (rank % 2 == 0) {
    const auto comm = comm::from_mpi(half);
    const LabelledImages images = made_up_images(8);
    expect_clean_step<float>(comm, lenet5(images.image, 10), images);
  }
  MPI_Comm_free(&half);
}

}  // namespace
}  // namespace aloni::nn::test

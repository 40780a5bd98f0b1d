#include <aloni/core/error.hpp>
#include <aloni/model/machine_file.hpp>
#include <aloni/model/tile_kernel.hpp>
#include <aloni/tasks/cholesky.hpp>
#include <aloni/tasks/lu.hpp>

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace aloni::model {
namespace test_tile_kernel {

using tasks::Kernel;
using views::TileDistribution;

TileKernel gemm(Index rows, nn::ElementType type = nn::ElementType::float64) {
  return {Kernel::gemm, type, rows, rows, rows};
}

Machine machine_with(std::vector<std::pair<TileKernel, double>> times, int ranks_per_node = 2) {
  Machine machine = generic_machine();
  machine.kernels.push_back({ranks_per_node, 1, {}});
  for (const auto& [kernel, seconds] : times)
    machine.kernels.back().times[key_of(kernel)] = {.seconds = seconds, .spread = 0.02, .runs = 5};
  return machine;
}

template <class Rule>
double total_flops(const Rule& rule, const TileDistribution& tiles) {
  double sum = 0;
  for (const tasks::TileId& tile : rule.tiles())
    for (std::int32_t version = 1; version <= rule.writes(tile); ++version)
      sum += flops_of(kernel_of(rule.writer_of({tile, version}), tiles, nn::ElementType::float64));
  return sum;
}

/// Tiles of uneven sizes add up to the operations of the whole matrix.
TEST(TileKernel, FlopsOfAllTasksAreThoseOfTheFactorisation) {
  for (const Index tile : {7, 10, 100, 33}) {
    const TileDistribution d(100, 100, tile);
    EXPECT_NEAR(total_flops(tasks::CholeskyRule(d.tile_rows(), tile), d), 1e6 / 3, 1e-3) << tile;
    EXPECT_NEAR(total_flops(tasks::LuRule(d.tile_rows(), tile), d), 2e6 / 3, 1e-3) << tile;
  }
}

TEST(TileKernel, TakesTheShapeOfEachTile) {
  const TileDistribution d(100, 100, 40);  // the last tile has 20 rows
  const auto f = nn::ElementType::float32;
  EXPECT_EQ(kernel_of({Kernel::gemm, 2, 1, 0}, d, f), (TileKernel{Kernel::gemm, f, 20, 40, 40}));
  EXPECT_EQ(kernel_of({Kernel::trsm, 2, 0, 0}, d, f), (TileKernel{Kernel::trsm, f, 20, 40, 40}));
  EXPECT_EQ(kernel_of({Kernel::potrf, 2, 2, 2}, d, f), (TileKernel{Kernel::potrf, f, 20, 20, 20}));
  EXPECT_EQ(key_of({Kernel::trsm, f, 20, 40, 40}), "tile trsm float 20x40x40");
  EXPECT_THROW(kernel_of({Kernel::solve_lower, 0, 0, 0}, d, f), Unsupported);
}

TEST(TileKernel, MeasuredTimesComeFirst) {
  const Machine machine = machine_with({{gemm(256), 1e-3}, {gemm(64), 2e-5}});
  const TileKernelTimes times(machine, 2, 1);
  EXPECT_EQ(times.of(gemm(256)).seconds, 1e-3);
  EXPECT_EQ(times.of(gemm(256)).source, KernelSource::measured);
  EXPECT_EQ(times.of(gemm(256)).relative_error, 0.02);
  // A file keeps them.
  EXPECT_EQ(parse_machine(to_json_text(machine), "a test"), machine);
}

TEST(TileKernel, OtherSizesTakeTheRateOfTheirNeighbours) {
  const Machine machine =
      machine_with({{gemm(64), 2 * 64. * 64 * 64 / 10e9}, {gemm(256), 2 * 256. * 256 * 256 / 40e9}});
  const TileKernelTimes times(machine, 2, 1);
  const auto rate = [&](Index n) { return flops_of(gemm(n)) / times.of(gemm(n)).seconds; };
  EXPECT_NEAR(rate(32), 10e9, 1);
  EXPECT_NEAR(rate(128), 25e9, 1e3);  // half-way in the logarithm
  EXPECT_NEAR(rate(1024), 40e9, 1);
  EXPECT_EQ(times.of(gemm(128)).source, KernelSource::measured);
  // Other kernels and types are not measured.
  EXPECT_EQ(times.of(gemm(128, nn::ElementType::float32)).source, KernelSource::roofline);
  EXPECT_EQ(times.of({Kernel::trsm, nn::ElementType::float64, 64, 64, 64}).source, KernelSource::roofline);
}

TEST(TileKernel, TheRooflineTakesThePeakRateWithTheEfficiencyOfTheMachine) {
  Machine machine = generic_machine();
  machine.processor.efficiency[KernelKind::dense] = 0.5;
  const TileKernelTimes times(machine, 2, 1);
  const double seconds = times.of(gemm(512)).seconds;
  EXPECT_NEAR(seconds, 1e-6 + 2 * 512. * 512 * 512 / 25e9, 1e-12);
  EXPECT_GT(flops_of(gemm(512)) / seconds,
            flops_of({Kernel::potrf, nn::ElementType::float64, 512, 512, 512}) /
                times.of({Kernel::potrf, nn::ElementType::float64, 512, 512, 512}).seconds);
  EXPECT_LT(times.of(gemm(512, nn::ElementType::float32)).seconds, seconds);
  EXPECT_EQ(times.of({Kernel::gemm, nn::ElementType::float64, 0, 0, 0}).seconds, 0);
}

/// Of two tables the one in which as many cores computed as in the run.
TEST(TileKernel, TakesTheTableWithTheNearestNumberOfBusyCores) {
  Machine machine = machine_with({{gemm(64), 1e-5}}, 1);
  machine.processor.cores_per_node = 8;
  machine.kernels.push_back({4, 1, {{key_of(gemm(64)), {.seconds = 2e-5, .runs = 1}}}});
  machine.kernels.push_back({8, 1, {{"another kernel", {.seconds = 1, .runs = 1}}}});
  EXPECT_EQ(TileKernelTimes(machine, 1, 1).of(gemm(64)).seconds, 1e-5);
  EXPECT_EQ(TileKernelTimes(machine, 2, 2).of(gemm(64)).seconds, 2e-5);
  EXPECT_EQ(TileKernelTimes(machine, 1, 8).of(gemm(64)).seconds, 2e-5);
}

TEST(TileKernel, PricesAFactorisationOnItsRanks) {
  const Machine machine = machine_with({{gemm(64), 2 * 64. * 64 * 64 / 10e9}});
  const TileKernelTimes times(machine, 2, 2);
  const TileDistribution d(1000, 1000, 64, views::squarest_grid(4));
  const tasks::CholeskyRule rule(d.tile_rows(), d.tile());
  const TasksOnRanks run = factorisation_on(d, nn::ElementType::float64, times, 2);
  EXPECT_EQ(run.ranks, 4);
  EXPECT_EQ(run.bytes({0, 15, 0}), 8 * 40 * 64);
  const SimulatedTasks result = simulate_tasks(rule, run, machine);
  double kernels = 0;
  for (const tasks::TileId& tile : rule.tiles())
    for (std::int32_t version = 1; version <= rule.writes(tile); ++version)
      kernels += times.of(kernel_of(rule.writer_of({tile, version}), d, nn::ElementType::float64)).seconds;
  EXPECT_NEAR(result.kernels, kernels, 1e-9 * kernels);
  EXPECT_GT(result.seconds, kernels / 8);
}

}  // namespace test_tile_kernel
}  // namespace aloni::model

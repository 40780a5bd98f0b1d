// Training as a whole: the same losses however the work is split, and learning.
#include "support/sanitizer.hpp"
#include "support/transport.hpp"

#include <aloni/core/error.hpp>
#include <aloni/nn/models.hpp>
#include <aloni/nn/trainer.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

namespace aloni::nn {
namespace test_training {

using views::ProcessGrid;

const TrainAndTest& digits() {
  static const TrainAndTest data = read_mnist(ALONI_TEST_DATA);
  return data;
}

LabelledImages first(const LabelledImages& all, Index count) {
  LabelledImages some = all;
  some.labels.resize(count);
  some.pixels.resize(count * all.image.size());
  return some;
}

TrainReport run(const comm::Communicator& comm, const std::string& grid, const TrainOptions& options,
                Index images = 8000) {
  return train<double>(comm, lenet5(digits().train.image, 10), Strategy::uniform(LayerSplit::parse(grid)),
                       first(digits().train, images), first(digits().test, 100), options);
}

/// By sample, by height (uneven with three ranks), height and width, channels and filters, and mixed with samples.
std::vector<std::string> grids(int ranks) {
  switch (ranks) {
    case 2:
      return {"n2", "h2", "w2", "c2", "f2"};
    case 3:
      return {"h3"};
    case 4:
      return {"h2w2", "n2h2", "c2f2", "n2f2"};
    default:
      return {"1"};
  }
}

TEST(Training, GivesTheSameLossesForAHundredStepsHoweverItIsSplit) {
  const auto comm = aloni::test::make_communicator();
  const auto self = comm.split(comm.rank(), 0);
  const TrainOptions options{.batch = 64, .steps = aloni::test::share_of(100), .seed = 3};
  const std::vector<double> expected = run(self, "1", options).losses;
  ASSERT_EQ(expected.size(), static_cast<std::size_t>(options.steps));
  if (options.steps == 100) {
    EXPECT_LT(expected.back(), expected.front());
  }
  for (const std::string& grid : grids(comm.size())) {
    const std::vector<double> losses = run(comm, grid, options).losses;
    ASSERT_EQ(losses.size(), expected.size());
    for (std::size_t i = 0; i < losses.size(); ++i) {
      ASSERT_NEAR(losses[i], expected[i], 1e-10 * std::abs(expected[i])) << "step " << i << " over " << grid;
    }
  }
}

/// Makes one rank late now and then.
class Straggler : public TrainObserver {
 public:
  explicit Straggler(bool late) : late_(late) {}
  void after_step(std::int64_t step, std::int64_t, double, double) override {
    if (late_ && step % 5 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  void after_epoch(int, int, const EpochReport&, double) override {}

 private:
  bool late_;
};

TEST(Training, LearnsFromTheGradientsOfAMajority) {
  const auto comm = aloni::test::make_communicator();
  TrainOptions options{.batch = 64, .steps = aloni::test::share_of(200), .seed = 3};
  const std::string grid = "n" + std::to_string(comm.size());
  const std::vector<double> expected = run(comm, grid, options).losses;
  options.gradients = GradientReduction::majority;
  Straggler straggler(comm.rank() == comm.size() - 1);
  const std::vector<double> losses =
      train<double>(comm, lenet5(digits().train.image, 10), Strategy::uniform(ProcessGrid::parse(grid)),
                    first(digits().train, 8000), first(digits().test, 100), options, &straggler)
          .losses;
  ASSERT_EQ(losses.size(), expected.size());
  for (std::size_t i = 0; i < losses.size(); ++i) {
    // Everybody takes the same rounds.
    ASSERT_EQ(comm.all_reduce(losses[i], comm::Reduction::min), comm.all_reduce(losses[i], comm::Reduction::max));
    // The majority of two are two.
    if (comm.size() <= 2) {
      ASSERT_NEAR(losses[i], expected[i], 1e-10 * std::abs(expected[i]));
    }
  }
  if (options.steps == 200) {
    // Late gradients slow learning down, but not much.
    EXPECT_LT(std::accumulate(losses.end() - 20, losses.end(), 0.0) / 20, 0.5 * losses.front());
  }
}

TEST(Training, TrainsOnAnIncompleteLastMiniBatch) {
  const auto comm = aloni::test::make_communicator();
  const auto self = comm.split(comm.rank(), 0);
  const TrainOptions options{.batch = 64, .epochs = 2, .seed = 5};
  const TrainReport expected = run(self, "1", options, 131);  // 64 + 64 + 3
  EXPECT_EQ(expected.losses.size(), 6u);
  EXPECT_EQ(expected.epochs.size(), 2u);
  for (const std::string& grid : grids(comm.size())) {
    const TrainReport report = run(comm, grid, options, 131);
    ASSERT_EQ(report.losses.size(), expected.losses.size());
    for (std::size_t i = 0; i < report.losses.size(); ++i) {
      EXPECT_NEAR(report.losses[i], expected.losses[i], 1e-10 * std::abs(expected.losses[i]))
          << "step " << i << " over " << grid;
    }
    EXPECT_EQ(report.epochs[1].test_accuracy, expected.epochs[1].test_accuracy);
  }
}

TEST(Training, RefusesOptionsThatMakeNoSense) {
  const auto comm = aloni::test::make_communicator();
  const std::string all = "1";
  EXPECT_THROW(run(comm, all, {.batch = 0}), InvalidArgument);
  EXPECT_THROW(run(comm, all, {.epochs = -1}), InvalidArgument);
  EXPECT_THROW(run(comm, all, {.steps = -1}), InvalidArgument);
  EXPECT_THROW(run(comm, all, {.learning_rate = std::numeric_limits<double>::quiet_NaN()}), InvalidArgument);
  EXPECT_THROW(run(comm, all, {.momentum = 1.0}), InvalidArgument);
  EXPECT_THROW(run(comm, "n64", {}), InvalidArgument);
  EXPECT_THROW(run(comm, "c" + std::to_string(2 * comm.size()), {}), Error);
}

TEST(Training, ReportsEveryStepAndEpoch) {
  const auto comm = aloni::test::make_communicator();
  const TrainReport report = run(comm, "n" + std::to_string(comm.size()), {.batch = 50, .epochs = 2}, 200);
  EXPECT_EQ(report.losses.size(), 8u);
  ASSERT_EQ(report.epochs.size(), 2u);
  EXPECT_NEAR(report.epochs[0].loss, (report.losses[0] + report.losses[1] + report.losses[2] + report.losses[3]) / 4,
              1e-12);
  EXPECT_GT(report.step_seconds, 0);
  EXPECT_GT(report.samples_per_second, 0);
  EXPECT_GT(report.time.compute, 0);
  EXPECT_GT(report.time.input, 0);
  EXPECT_GT(report.peak_memory_bytes, 1u << 20);
}

}  // namespace test_training
}  // namespace aloni::nn

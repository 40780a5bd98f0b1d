// Whole training runs: equal losses in every split, and convergence.
#include "support/random_cases.hpp"
#include "support/sanitizer.hpp"
#include "support/transport.hpp"

#include <aloni/core/error.hpp>
#include <aloni/nn/models.hpp>
#include <aloni/nn/trainer.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <variant>
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

/// The losses of training on one rank, which rank 0 computes. Collective.
std::vector<double> losses_alone(const comm::Communicator& comm, const TrainOptions& options, Index images = 8000) {
  const auto self = comm.split(comm.rank(), 0);
  std::vector<double> losses;
  if (comm.rank() == 0) losses = run(self, "1", options, images).losses;
  EXPECT_EQ(std::ssize(losses), comm.rank() == 0 ? options.steps : 0);
  losses.resize(static_cast<std::size_t>(options.steps));
  comm.run(comm::Broadcast{std::span(losses), 0});
  return losses;
}

/// By sample, by height (uneven with three ranks), by height and width, by channels and filters, and mixed with
/// samples.
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

TEST(Training, GivesTheSameLossesInEverySplit) {
  const auto comm = aloni::test::make_communicator();
  const TrainOptions options{.batch = 64, .steps = aloni::test::nightly() ? aloni::test::share_of(100) : 25, .seed = 3};
  const std::vector<double> expected = losses_alone(comm, options);
  if (options.steps == 100) {
    EXPECT_LT(expected.back(), expected.front());
  }
  EXPECT_LT(*std::ranges::min_element(expected), 0.9 * expected.front());  // the parameters move
  for (const std::string& grid : grids(comm.size())) {
    const std::vector<double> losses = run(comm, grid, options).losses;
    ASSERT_EQ(losses.size(), expected.size());
    for (std::size_t i = 0; i < losses.size(); ++i) {
      ASSERT_NEAR(losses[i], expected[i], 1e-10 * std::abs(expected[i])) << "step " << i << " over " << grid;
    }
  }
}

TEST(Training, ByAdamGivesTheSameLossesInEverySplit) {
  const auto comm = aloni::test::make_communicator();
  const TrainOptions options{
      .batch = 64,
      .steps = 30,
      .seed = 3,
      .optimiser =
          AdamOptions{.learning_rate = 5e-3, .epsilon = 1e-4, .weight_decay = 1e-3, .decay = WeightDecay::decoupled},
      .schedule = {.schedule = LinearSchedule{}}};
  const std::vector<double> expected = losses_alone(comm, options, 640);
  EXPECT_LT(expected.back(), 0.8 * expected.front());
  for (const std::string& grid : grids(comm.size())) {
    const std::vector<double> losses = run(comm, grid, options, 640).losses;
    ASSERT_EQ(losses.size(), expected.size());
    for (std::size_t i = 0; i < losses.size(); ++i)
      ASSERT_NEAR(losses[i], expected[i], 1e-9 * std::abs(expected[i])) << "step " << i << " over " << grid;
  }
}

TEST(Training, ByLarsWithClippingAndWarmUpGivesTheSameLossesInEverySplit) {
  const auto comm = aloni::test::make_communicator();
  const TrainOptions options{.batch = 64,
                             .steps = 8,
                             .seed = 3,
                             .optimiser = LarsOptions{.learning_rate = 5, .weight_decay = 1e-3, .trust = 0.01},
                             .update = {.max_norm = 0.5},
                             .schedule = {.schedule = CosineSchedule{.lowest = 0.1}, .warm_up = 3}};
  const std::vector<double> expected = losses_alone(comm, options, 640);
  EXPECT_LT(expected.back(), expected.front());
  for (const std::string& grid : grids(comm.size())) {
    const std::vector<double> losses = run(comm, grid, options, 640).losses;
    ASSERT_EQ(losses.size(), expected.size());
    for (std::size_t i = 0; i < losses.size(); ++i)
      ASSERT_NEAR(losses[i], expected[i], 1e-9 * std::abs(expected[i])) << "step " << i << " over " << grid;
  }
}

/// An average with decay 0 is the values; one that forgets slowly tests worse at first. Training does not depend on it.
TEST(Training, TestsWithTheAverageOfTheParameters) {
  const auto comm = aloni::test::make_communicator();
  const std::string grid = "n" + std::to_string(comm.size());
  TrainOptions options{.batch = 50, .epochs = 2, .seed = 3};
  const TrainReport plain = run(comm, grid, options, 400);
  options.average = Averaging{.decay = 0, .warm_up = false};
  const TrainReport same = run(comm, grid, options, 400);
  options.average = Averaging{.decay = 0.999, .warm_up = false};
  const TrainReport slow = run(comm, grid, options, 400);
  EXPECT_EQ(same.losses, plain.losses);
  EXPECT_EQ(slow.losses, plain.losses);
  EXPECT_EQ(same.epochs[1].test_loss, plain.epochs[1].test_loss);
  EXPECT_GT(*slow.epochs[1].test_loss, *plain.epochs[1].test_loss);
}

/// With a learning rate of 0 no epoch improves.
TEST(Training, EndsEarlyWithoutAnImprovement) {
  const auto comm = aloni::test::make_communicator();
  const TrainOptions options{
      .batch = 50, .epochs = 9, .optimiser = SgdOptions{.learning_rate = 0}, .early_stop = {.patience = 2}};
  const TrainReport report = run(comm, "n" + std::to_string(comm.size()), options, 100);
  EXPECT_EQ(report.epochs.size(), 3u);
  EXPECT_EQ(report.losses.size(), 6u);
  EXPECT_FALSE(report.stopped);
}

/// A rate that a plateau makes tiny changes no more losses.
TEST(Training, LowersTheLearningRateOnAPlateau) {
  const auto comm = aloni::test::make_communicator();
  TrainOptions options{.batch = 100, .epochs = 4, .optimiser = SgdOptions{.learning_rate = 0.05, .momentum = 0}};
  options.schedule.schedule = PlateauSchedule{.factor = 1e-3, .patience = 0, .threshold = 0.5};
  const std::string grid = "n" + std::to_string(comm.size());
  const std::vector<double> falling = run(comm, grid, options, 100).losses;
  ASSERT_EQ(falling.size(), 4u);
  EXPECT_GT(std::abs(falling[1] - falling[0]), 1e-4);  // the first two updates have the first rate
  EXPECT_LT(std::abs(falling[3] - falling[2]), std::abs(falling[1] - falling[0]) / 100);
}

/// Delays one rank now and then.
class Straggler : public TrainObserver {
 public:
  explicit Straggler(bool late) : late_(late) {}
  void after_step(const StepReport& report) override {
    if (late_ && report.step % 5 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  void after_epoch(int, int, const EpochReport&, double) override {}

 private:
  bool late_;
};

TEST(Training, LearnsFromTheGradientsOfAMajority) {
  const auto comm = aloni::test::make_communicator();
  TrainOptions options{.batch = 64, .steps = aloni::test::share_of(aloni::test::nightly() ? 200 : 120), .seed = 3};
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
    // All ranks take the same rounds.
    ASSERT_EQ(comm.all_reduce(losses[i], comm::Reduction::min), comm.all_reduce(losses[i], comm::Reduction::max));
    // A majority of two ranks is both.
    if (comm.size() <= 2) {
      ASSERT_NEAR(losses[i], expected[i], 1e-10 * std::abs(expected[i]));
    }
  }
  if (!aloni::test::sanitized) {
    // Late gradients slow learning down only a little.
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

/// 131 samples: two steps of four micro-batches of 16, and one of 3 samples.
TEST(Training, AccumulatesMicroBatchesToTheStepsOfWholeMiniBatches) {
  const auto comm = aloni::test::make_communicator();
  const auto self = comm.split(comm.rank(), 0);
  TrainOptions options{.batch = 64, .epochs = 2, .seed = 5, .update = {.max_norm = 0.5}, .shift = 1};
  const TrainReport expected = run(self, "1", options, 131);
  options.accumulate = 4;
  for (const std::string& grid : grids(comm.size())) {
    const TrainReport report = run(comm, grid, options, 131);
    ASSERT_EQ(report.losses.size(), expected.losses.size());
    for (std::size_t i = 0; i < report.losses.size(); ++i) {
      EXPECT_NEAR(report.losses[i], expected.losses[i], 1e-10 * std::abs(expected.losses[i]))
          << "step " << i << " over " << grid;
    }
    EXPECT_EQ(report.epochs[1].test_accuracy, expected.epochs[1].test_accuracy);
    EXPECT_NEAR(*report.epochs[1].test_loss, *expected.epochs[1].test_loss, 1e-10);
  }
}

/// The sum over ranks is that of one mini-batch.
TEST(Training, SendsGradientsOnceForAllMicroBatches) {
  const auto comm = aloni::test::make_communicator();
  const std::string grid = "n" + std::to_string(comm.size());
  const TrainReport whole = run(comm, grid, {.batch = 64, .steps = 4});
  const TrainReport parts = run(comm, grid, {.batch = 64, .accumulate = 8, .steps = 4});
  EXPECT_EQ(whole.bytes_sent > 0, comm.size() > 1);
  EXPECT_LE(static_cast<double>(parts.bytes_sent), 1.1 * static_cast<double>(whole.bytes_sent));
}

TEST(Training, RefusesInvalidOptions) {
  const auto comm = aloni::test::make_communicator();
  const std::string all = "1";
  EXPECT_THROW(run(comm, all, {.batch = 64, .accumulate = 0}), InvalidArgument);
  EXPECT_THROW(run(comm, all, {.batch = 64, .accumulate = 3}), InvalidArgument);
  EXPECT_THROW(run(comm, all, {.batch = 64, .accumulate = 2, .gradients = GradientReduction::majority}), Unsupported);
  const UpdateOptions scaled{.loss_scaling = LossScaling{}};
  EXPECT_THROW(run(comm, all, {.update = scaled, .kfac = KfacOptions{}}), Unsupported);
  EXPECT_THROW(run(comm, all, {.update = scaled, .gradients = GradientReduction::majority}), Unsupported);
  EXPECT_THROW(run(comm, all, {.update = {.loss_scaling = LossScaling{.interval = 0}}}), InvalidArgument);
  EXPECT_THROW(run(comm, all, {.batch = 0}), InvalidArgument);
  EXPECT_THROW(run(comm, all, {.epochs = -1}), InvalidArgument);
  EXPECT_THROW(run(comm, all, {.steps = -1}), InvalidArgument);
  EXPECT_THROW(run(comm, all, {.timed_steps = -1}), InvalidArgument);
  EXPECT_THROW(run(comm, all, {.optimiser = SgdOptions{.learning_rate = std::numeric_limits<double>::quiet_NaN()}}),
               InvalidArgument);
  EXPECT_THROW(run(comm, all, {.optimiser = SgdOptions{.momentum = 1.0}}), InvalidArgument);
  EXPECT_THROW(run(comm, all, {.optimiser = AdamOptions{.beta2 = 1.0}}), InvalidArgument);
  EXPECT_THROW(run(comm, all, {.optimiser = AdamOptions{.epsilon = 0}}), InvalidArgument);
  EXPECT_THROW(train<double>(comm, lenet5(digits().train.image, 9), Strategy::uniform(LayerSplit::parse(all)),
                             digits().train, digits().test, {.steps = 1}),
               InvalidArgument);  // fewer outputs than classes
  EXPECT_THROW(run(comm, "n64", {}), InvalidArgument);
  EXPECT_THROW(run(comm, "c" + std::to_string(2 * comm.size()), {}), Error);
}

/// The arguments of one rank.
struct Arguments {
  NetworkDescription network = lenet5(digits().train.image, 10);
  Strategy strategy = Strategy::parse("conv* 1\n* 1\n", "test");
  LabelledImages train = first(digits().train, 200), test = first(digits().test, 100);
  TrainOptions options{.batch = 50, .steps = 2};
};

/// The error of a training in which `change` was applied to the arguments of the last rank. All ranks get it.
template <class F>
std::string error_of_different_arguments(const F& change) {
  const auto comm = aloni::test::make_communicator();
  comm.set_stuck_after(std::chrono::seconds(3));
  Arguments mine;
  if (comm.rank() == comm.size() - 1) change(mine);
  std::string text = "no error";
  try {
    nn::train<double>(comm, mine.network, mine.strategy, mine.train, mine.test, mine.options);
  } catch (const InvalidArgument& e) {
    text = e.what();
  } catch (const Error& e) {
    return std::string("another error: ") + e.what();
  }
  std::string of_first = text;
  comm.broadcast(of_first, 0);  // the communicator is usable after the error
  EXPECT_EQ(text, of_first);
  return text;
}

TEST(Training, NamesTheArgumentThatDiffersBetweenRanksAndTheRanks) {
  using testing::AllOf;
  using testing::HasSubstr;
  const int ranks = aloni::test::make_communicator().size();
  if (ranks == 1) return;
  const auto last = HasSubstr("on rank " + std::to_string(ranks - 1));
  EXPECT_EQ(error_of_different_arguments([](Arguments&) {}), "no error");
  EXPECT_THAT(error_of_different_arguments([](Arguments& a) { a.options.seed = 7; }),
              AllOf(HasSubstr("seed = 1 on rank"), HasSubstr("7 on rank"), last));
  EXPECT_THAT(error_of_different_arguments([](Arguments& a) { set_learning_rate(a.options.optimiser, 0.06); }),
              AllOf(HasSubstr("learning rate"), HasSubstr("0.06"), last));
  EXPECT_THAT(error_of_different_arguments([](Arguments& a) { a.options.optimiser = AdamOptions{}; }),
              AllOf(HasSubstr("optimiser"), HasSubstr("sgd"), HasSubstr("adam"), last));
  EXPECT_THAT(error_of_different_arguments([](Arguments& a) { a.options.batch = 0; }),
              AllOf(HasSubstr("batch"), HasSubstr("50"), last));
  EXPECT_THAT(error_of_different_arguments([](Arguments& a) { a.options.steps = 3; }), AllOf(HasSubstr("steps"), last));
  EXPECT_THAT(error_of_different_arguments([](Arguments& a) { a.options.gradients = GradientReduction::majority; }),
              AllOf(HasSubstr("gradients"), HasSubstr("majority"), last));
  EXPECT_THAT(error_of_different_arguments([](Arguments& a) { std::swap(a.train.labels[0], a.train.labels[1]); }),
              AllOf(HasSubstr("training set's labels"), last));
  EXPECT_THAT(error_of_different_arguments([](Arguments& a) { a.train.pixels[5] ^= 1; }),
              AllOf(HasSubstr("training set's pixels"), last));
  EXPECT_THAT(error_of_different_arguments([](Arguments& a) { a.test = first(digits().test, 90); }),
              AllOf(HasSubstr("test set's"), HasSubstr("100"), HasSubstr("90"), last));
  EXPECT_THAT(error_of_different_arguments([](Arguments& a) {
                a.network.layers.erase(a.network.layers.begin() + 1);  // relu1
                a.network.layers[1].inputs = {"conv1"};
              }),
              AllOf(HasSubstr("layer 2"), HasSubstr("relu1"), HasSubstr("pool1"), last));
  EXPECT_THAT(error_of_different_arguments(
                  [](Arguments& a) { std::get<Convolution>(a.network.layers[0].operation).bias = false; }),
              AllOf(HasSubstr("layer 1"), HasSubstr("conv1"), last));
  EXPECT_THAT(error_of_different_arguments([](Arguments& a) { a.strategy.rules[0].split.overlap = Overlap::blocking; }),
              AllOf(HasSubstr("strategy"), HasSubstr("blocking"), last));
}

/// Changes the learning rate on one rank during the training, which no comparison of arguments can see.
class Saboteur : public TrainObserver {
 public:
  Saboteur(TrainOptions& options, bool acts) : options_(options), acts_(acts) {}
  void after_step(const StepReport& report) override {
    steps = report.step;
    if (acts_ && report.step == 3) set_learning_rate(options_.optimiser, 0.1);
  }
  void after_epoch(int, int, const EpochReport&, double) override {}

  std::int64_t steps = 0;

 private:
  TrainOptions& options_;
  bool acts_;
};

TEST(Training, FindsParametersThatDifferAtTheNextCheck) {
  const auto comm = aloni::test::make_communicator();
  if (comm.size() == 1) return;
  const int last = comm.size() - 1;
  for (const std::string& grid : grids(comm.size())) {
    TrainOptions options{.batch = 50, .steps = 20, .schedule = {.schedule = LinearSchedule{}}, .check_replicas = 2};
    Saboteur saboteur(options, comm.rank() == last);
    std::string text = "no error";
    try {
      train<double>(comm, lenet5(digits().train.image, 10), Strategy::uniform(LayerSplit::parse(grid)),
                    first(digits().train, 200), first(digits().test, 100), options, &saboteur);
    } catch (const ReplicasDiffer& e) {
      text = e.what();
    } catch (const PeerFailed& e) {  // in a group that keeps other blocks of the weights
      text = e.what();
    }
    EXPECT_EQ(saboteur.steps, 3) << grid;
    EXPECT_THAT(text, testing::AllOf(testing::HasSubstr("after step 4"), testing::HasSubstr("conv1."),
                                     testing::HasSubstr("rank " + std::to_string(last))))
        << grid;
  }
}

TEST(Training, FindsNoDifferenceBetweenEqualReplicas) {
  const auto comm = aloni::test::make_communicator();
  for (const std::string& grid : grids(comm.size())) {
    const Strategy strategy = Strategy::uniform(LayerSplit::parse(grid));
    const LabelledImages some = first(digits().train, 120), test = first(digits().test, 50);
    TrainOptions options{.batch = 50, .epochs = 2, .check_replicas = 1};
    const NetworkDescription network = lenet5(some.image, 10);
    EXPECT_NO_THROW(train<double>(comm, network, strategy, some, test, options)) << grid;
    EXPECT_NO_THROW(train<float>(comm, network, strategy, some, test, options)) << grid;
    if (grid.find_first_of("cf") != std::string::npos) continue;
    options.gradients = GradientReduction::majority;
    EXPECT_NO_THROW(train<float>(comm, network, strategy, some, test, options)) << grid;
  }
}

TEST(Training, StopsAtTheFirstLossThatIsNotFinite) {
  const auto comm = aloni::test::make_communicator();
  const std::string grid = "n" + std::to_string(comm.size());
  TrainOptions options{.batch = 50, .steps = 8, .optimiser = SgdOptions{.learning_rate = 1e200}};
  try {
    run(comm, grid, options, 200);
    ADD_FAILURE() << "no error";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), testing::AllOf(testing::HasSubstr("loss of step 2 = "), testing::HasSubstr("1e+200"),
                                         testing::HasSubstr("last finite loss 2.3"), testing::HasSubstr("step 1")));
  }
  options.steps = 1;  // only the test set shows it
  EXPECT_THROW(run(comm, grid, options, 200), Error);
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

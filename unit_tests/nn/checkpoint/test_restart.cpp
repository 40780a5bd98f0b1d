// A training that stops and resumes continues as if it had not stopped: with the same bits on the same grid, and up to
// the order of sums on other numbers of ranks and with other splits.
#include "support/transport.hpp"
#include "training_of_images.hpp"

#include <aloni/core/error.hpp>
#include <aloni/core/io/file_system.hpp>
#include <aloni/core/notice.hpp>
#include <aloni/nn/checkpoint/files.hpp>

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

namespace aloni::nn::test {
namespace test_restart {

// Epochs of four full mini-batches and an incomplete one, of 38 images.
const std::int64_t total = std::getenv("ALONI_NIGHTLY") == nullptr ? 30 : 200;

TrainOptions options_of(OptimiserKind kind) {
  TrainOptions options;
  options.batch = 8;
  options.steps = total;
  options.seed = 5;
  options.shift = 1;
  if (kind == OptimiserKind::adam) {
    options.optimiser = AdamOptions{.learning_rate = 0.01};
  } else {
    options.optimiser = SgdOptions{.learning_rate = 0.05};
  }
  options.schedule = {.schedule = LinearSchedule{}};
  return options;
}

TrainReport run(const comm::Communicator& comm, const std::string& split, const TrainOptions& options) {
  return train_small_net(comm, split, options);
}

/// Trains up to `step` and writes a checkpoint.
TrainReport stop_at(const comm::Communicator& comm, const std::string& split, TrainOptions options,
                    const std::string& folder, std::int64_t step) {
  std::int64_t asked = 0;
  options.checkpoint.folder = folder;
  options.checkpoint.stop = [&] { return ++asked == step && comm.rank() == comm.size() - 1; };
  return run(comm, split, options);
}

TrainReport resume(const comm::Communicator& comm, const std::string& split, TrainOptions options,
                   const std::string& folder) {
  options.checkpoint.folder = folder;
  options.checkpoint.resume = true;
  return run(comm, split, options);
}

double largest_difference(const TrainReport& a, const TrainReport& b) {
  EXPECT_EQ(a.losses.size(), b.losses.size());
  double largest = 0;
  for (std::size_t i = 0; i < std::min(a.losses.size(), b.losses.size()); ++i)
    largest = std::max(largest, std::abs(a.losses[i] - b.losses[i]));
  return largest;
}

void expect_equal(const TrainReport& a, const TrainReport& b) {
  EXPECT_EQ(a.losses, b.losses);
  ASSERT_EQ(a.epochs.size(), b.epochs.size());
  for (std::size_t e = 0; e < a.epochs.size(); ++e) {
    EXPECT_EQ(a.epochs[e].loss, b.epochs[e].loss) << e;
    EXPECT_EQ(a.epochs[e].test_accuracy, b.epochs[e].test_accuracy) << e;
    EXPECT_FALSE(a.epochs[e].test_metrics.empty());
    EXPECT_EQ(a.epochs[e].test_metrics, b.epochs[e].test_metrics) << e;
  }
}

TEST(Restart, HasTheSameBitsOnTheSameGrid) {
  const auto comm = aloni::test::make_communicator();
  const std::string split = small_splits(comm.size()).back();
  for (const OptimiserKind kind : {OptimiserKind::sgd, OptimiserKind::adam}) {
    const TrainOptions options = options_of(kind);
    const TrainReport whole = run(comm, split, options);
    for (const std::int64_t step : {1, 5, 13}) {  // step 5 ends an epoch
      SCOPED_TRACE(std::string(name(kind)) + ", step " + std::to_string(step));
      const SharedFolder folder(comm);
      const TrainReport first = stop_at(comm, split, options, folder.path("checkpoints"), step);
      EXPECT_TRUE(first.stopped);
      EXPECT_EQ(std::ssize(first.losses), step);
      const TrainReport second = resume(comm, split, options, folder.path("checkpoints"));
      EXPECT_EQ(second.resumed_at, step);
      EXPECT_FALSE(second.stopped);
      expect_equal(second, whole);
    }
  }
}

TEST(Restart, ContinuesOnOtherRanksAndSplits) {
  const auto comm = aloni::test::make_communicator();
  const TrainOptions options = options_of(OptimiserKind::adam);
  const TrainReport whole = run(comm, small_splits(comm.size()).front(), options);
  for (int writers = 1; writers <= comm.size(); ++writers) {
    const auto some = comm.split(comm.rank() < writers ? 0 : 1, comm.rank());
    for (const std::string& written : small_splits(writers)) {
      const SharedFolder folder(comm);
      if (comm.rank() < writers) stop_at(some, written, options, folder.path("checkpoints"), 7);
      comm.barrier();
      // Each checkpoint is read with one split; all splits read some.
      const auto readers = small_splits(comm.size());
      const std::string& read = readers[static_cast<std::size_t>(written.size() + writers) % readers.size()];
      SCOPED_TRACE(written + " on " + std::to_string(writers) + " ranks, then " + read);
      EXPECT_LT(largest_difference(resume(comm, read, options, folder.path("checkpoints")), whole), 1e-10);
    }
  }
}

TEST(Restart, WritesCheckpointsBesideTheTraining) {
  const auto comm = aloni::test::make_communicator();
  const std::string split = small_splits(comm.size()).back();
  TrainOptions options = options_of(OptimiserKind::sgd);
  const TrainReport whole = run(comm, split, options);
  const SharedFolder folder(comm);
  options.checkpoint.folder = folder.path("checkpoints");
  options.checkpoint.every_steps = 4;
  options.checkpoint.keep = 3;
  EXPECT_EQ(run(comm, split, options).losses, whole.losses);
  auto& files = io::real_file_system();
  EXPECT_THAT(checkpoint::steps_in(files, folder.path("checkpoints")),
              testing::ElementsAre(total, (total - 1) / 4 * 4, (total - 1) / 4 * 4 - 4));
  // A finished training has no steps left.
  const TrainReport again = resume(comm, split, options, folder.path("checkpoints"));
  EXPECT_EQ(again.resumed_at, total);
  EXPECT_EQ(again.losses, whole.losses);
}

/// The rate falls after each epoch but the first, so it depends on the saved state. The average does too.
TEST(Restart, KeepsTheStateOfAPlateauAndTheAverageOfTheParameters) {
  const auto comm = aloni::test::make_communicator();
  const std::string split = small_splits(comm.size()).back();
  TrainOptions options = options_of(OptimiserKind::sgd);
  options.schedule = {.schedule = PlateauSchedule{.factor = 0.3, .patience = 0, .threshold = 0.9}, .warm_up = 3};
  options.average = Averaging{.decay = 0.9};
  const TrainReport whole = run(comm, split, options);
  const SharedFolder folder(comm);
  stop_at(comm, split, options, folder.path("checkpoints"), 13);  // in the third epoch
  const TrainReport resumed = resume(comm, split, options, folder.path("checkpoints"));
  EXPECT_EQ(resumed.losses, whole.losses);
  ASSERT_EQ(resumed.epochs.size(), whole.epochs.size());
  for (std::size_t e = 0; e < whole.epochs.size(); ++e)
    EXPECT_EQ(resumed.epochs[e].test_loss, whole.epochs[e].test_loss) << "epoch " << e;
}

TEST(Restart, DoesNotGoOnAfterAnEarlyStop) {
  const auto comm = aloni::test::make_communicator();
  const std::string split = small_splits(comm.size()).back();
  TrainOptions options = options_of(OptimiserKind::sgd);
  options.early_stop = {.patience = 1, .least_improvement = 1e9};  // no epoch improves
  const SharedFolder folder(comm);
  options.checkpoint.folder = folder.path("checkpoints");
  const TrainReport stopped = run(comm, split, options);
  EXPECT_EQ(stopped.epochs.size(), 2u);
  EXPECT_EQ(resume(comm, split, options, folder.path("checkpoints")).losses, stopped.losses);
  options.early_stop.patience = 0;  // now without an early stop
  EXPECT_EQ(resume(comm, split, options, folder.path("checkpoints")).losses.size(), static_cast<std::size_t>(total));
}

TEST(Restart, CanGoOnForMoreSteps) {
  const auto comm = aloni::test::make_communicator();
  const std::string split = small_splits(comm.size()).back();
  TrainOptions options = options_of(OptimiserKind::sgd);
  options.schedule = {};
  const TrainReport whole = run(comm, split, options);
  const SharedFolder folder(comm);
  options.checkpoint.folder = folder.path("checkpoints");
  options.steps = 12;  // ends within an epoch
  EXPECT_EQ(run(comm, split, options).epochs.size(), 3u);
  options.steps = total;
  const TrainReport longer = resume(comm, split, options, folder.path("checkpoints"));
  EXPECT_EQ(longer.losses, whole.losses);
  EXPECT_EQ(longer.epochs.size(), whole.epochs.size());
}

TEST(Restart, RefusesAnotherTraining) {
  const auto comm = aloni::test::make_communicator();
  const std::string split = small_splits(comm.size()).back();
  const TrainOptions options = options_of(OptimiserKind::sgd);
  const SharedFolder folder(comm);
  stop_at(comm, split, options, folder.path("checkpoints"), 3);
  const auto refusal = [&](const auto& change) -> std::string {
    TrainOptions other = options;
    other.checkpoint.folder = folder.path("checkpoints");
    other.checkpoint.resume = true;
    change(other);
    try {
      run(comm, split, other);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  using testing::HasSubstr;
  EXPECT_THAT(refusal([](TrainOptions& o) { o.seed = 6; }), HasSubstr("seed = 6: expected 5, as in the checkpoint"));
  EXPECT_THAT(refusal([](TrainOptions& o) { o.batch = 4; }), HasSubstr("batch = 4: expected 8"));
  EXPECT_THAT(refusal([](TrainOptions& o) { o.optimiser = AdamOptions{}; }), HasSubstr("optimiser = adam"));
  EXPECT_THAT(refusal([](TrainOptions& o) { o.steps = 2; }), HasSubstr("expected at least 3"));
  EXPECT_THAT(refusal([](TrainOptions& o) { o.checkpoint.resume = false; }), HasSubstr("a folder without checkpoints"));
  EXPECT_THAT(refusal([](TrainOptions& o) { o.gradients = GradientReduction::majority; }), HasSubstr("late"));
  EXPECT_THAT(refusal([](TrainOptions& o) { o.checkpoint.folder = ""; }), HasSubstr("checkpoint folder"));
  EXPECT_EQ(refusal([](TrainOptions&) {}), "");
}

TEST(Restart, TakesTheNewestWholeCheckpoint) {
  const auto comm = aloni::test::make_communicator();
  const std::string split = small_splits(comm.size()).back();
  TrainOptions options = options_of(OptimiserKind::sgd);
  const SharedFolder folder(comm);
  stop_at(comm, split, options, folder.path("checkpoints"), 3);
  TrainOptions more = options;
  more.checkpoint.resume = true;
  stop_at(comm, split, more, folder.path("checkpoints"), 4);  // asked four times: step 7
  auto& files = io::real_file_system();
  ASSERT_THAT(checkpoint::steps_in(files, folder.path("checkpoints")), testing::ElementsAre(7, 3));
  comm.barrier();
  if (comm.rank() == 0) {
    const auto file = files.create(folder.path("checkpoints") + "/" + checkpoint::folder_name(7) + "/rank-0.bin");
    file->close();  // truncated
  }
  comm.barrier();
  EXPECT_EQ(resume(comm, split, options, folder.path("checkpoints")).resumed_at, 3);
}

std::vector<std::string> notices;

TEST(Restart, GoesOnAfterACheckpointThatFails) {
  const auto comm = aloni::test::make_communicator();
  const std::string split = small_splits(comm.size()).back();
  TrainOptions options = options_of(OptimiserKind::sgd);
  const TrainReport whole = run(comm, split, options);
  const SharedFolder folder(comm);
  notices.clear();
  set_notice_handler([](const std::string& line) { notices.push_back(line); });
  std::int64_t asked = 0;
  options.checkpoint.folder = folder.path("checkpoints");
  options.checkpoint.every_steps = 1;
  options.checkpoint.stop = [&] {  // from step 5 to step 9 there is a file in the place of the folder
    ++asked;
    if (comm.rank() == 0 && asked == 5) {
      std::filesystem::remove_all(folder.path("checkpoints"));
      io::real_file_system().create(folder.path("checkpoints"));
    }
    if (comm.rank() == 0 && asked == 10) io::real_file_system().remove(folder.path("checkpoints"));
    return false;
  };
  EXPECT_EQ(run(comm, split, options).losses, whole.losses);
  set_notice_handler(nullptr);
  EXPECT_EQ(notices.size() >= 5 && notices.size() <= 6, comm.rank() == 0);  // step 4 may have been under way
  for (const std::string& line : notices) EXPECT_THAT(line, testing::HasSubstr("failed, the training goes on: "));
  EXPECT_THAT(checkpoint::steps_in(io::real_file_system(), folder.path("checkpoints")),
              testing::ElementsAre(total, total - 1));
}

TEST(Restart, FailsIfTheLastCheckpointCannotBeWritten) {
  const auto comm = aloni::test::make_communicator();
  const std::string split = small_splits(comm.size()).back();
  const SharedFolder folder(comm);
  TrainOptions options = options_of(OptimiserKind::sgd);
  options.steps = 2;
  options.checkpoint.folder = folder.path("checkpoints");
  options.checkpoint.stop = [&] {
    if (comm.rank() == 0) std::filesystem::remove_all(folder.path("checkpoints"));
    if (comm.rank() == 0) io::real_file_system().create(folder.path("checkpoints"));
    return false;
  };
  EXPECT_THROW(run(comm, split, options), FileError);
  comm.barrier();
  options.checkpoint.folder = folder.path("checkpoints/inside_a_file");  // known before the first step
  EXPECT_THROW(run(comm, split, options), Error);
}

TEST(Restart, StartsFromTheBeginningIfTheFirstCheckpointIsUnfinished) {
  const auto comm = aloni::test::make_communicator();
  const std::string split = small_splits(comm.size()).back();
  TrainOptions options = options_of(OptimiserKind::sgd);
  options.steps = 3;
  const SharedFolder folder(comm);
  stop_at(comm, split, options, folder.path("checkpoints"), 2);
  comm.barrier();
  const std::string manifest =
      folder.path("checkpoints") + "/" + checkpoint::folder_name(2) + "/" + checkpoint::manifest_name;
  if (comm.rank() == 0) std::filesystem::rename(manifest, manifest + ".part");
  comm.barrier();
  EXPECT_EQ(resume(comm, split, options, folder.path("checkpoints")).resumed_at, 0);
  EXPECT_EQ(resume(comm, split, options, folder.path("checkpoints")).resumed_at, 3);
}

}  // namespace test_restart
}  // namespace aloni::nn::test

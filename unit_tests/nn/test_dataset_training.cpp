// Training on data sets in files: the losses of the same data in memory, on any number of ranks and with any targets.
#include "data/damaged_array.hpp"
#include "data/data_files.hpp"
#include "support/shared_folder.hpp"
#include "support/transport.hpp"

#include <aloni/core/comm/mpi.hpp>
#include <aloni/nn/data/memory_array.hpp>
#include <aloni/nn/data/npy.hpp>
#include <aloni/nn/data/synthetic_array.hpp>
#include <aloni/nn/models.hpp>
#include <aloni/nn/trainer.hpp>

#include <optional>

namespace aloni::nn {
namespace test_dataset_training {

using views::Dim;
using views::ProcessGrid;

constexpr Index samples = 22;

/// Writes on rank 0. Collective.
std::string write(const comm::Communicator& comm, const aloni::test::SharedFolder& folder, const std::string& name,
                  const std::string& bytes) {
  if (comm.rank() == 0) aloni::test::write_file(folder, name, bytes);
  comm.barrier();
  return folder.path(name);
}

std::string grid_of(int ranks) { return ranks == 1 ? "h1" : ranks == 2 ? "h2" : "n2w2"; }

TrainReport train_with(const comm::Communicator& comm, const NetworkDescription& network, const Dataset& train_set,
                       const std::optional<Dataset>& test_set, const TrainOptions& options) {
  return train<double>(comm, network, Strategy::uniform(ProcessGrid::parse(grid_of(comm.size()))), train_set, test_set,
                       options);
}

LabelledImages made_up_images() {
  LabelledImages images;
  images.image = {{1, 1, 12, 8, 2}};
  images.pixels = aloni::test::counted<std::uint8_t>(samples * images.image.size());
  for (Index i = 0; i < samples; ++i) images.labels.push_back(static_cast<std::uint8_t>(i * i % 5));
  images.classes = 5;
  images.mean = 0.25;
  images.deviation = 0.5;
  return images;
}

NetworkDescription classifier(const views::Extents& image) {
  NetworkDescription n;
  n.input = image;
  n.layers = {{"conv", Convolution{4, square_window(2, 3, 1, 1)}, {"input"}},
              {"relu", Relu{}, {"conv"}},
              {"mean", GlobalAveragePooling{}, {"relu"}},
              {"fc", Dense{5}, {"mean"}}};
  return n;
}

NetworkDescription pixel_network(const views::Extents& image, Loss loss, int channels) {
  NetworkDescription n;
  n.input = image;
  n.loss = loss;
  n.layers = {{"conv", Convolution{4, square_window(2, 3, 1, 1)}, {"input"}},
              {"relu", Relu{}, {"conv"}},
              {"last", Convolution{channels, square_window(2, 1, 1, 0), true}, {"relu"}}};
  return n;
}

TEST(DatasetTraining, FilesGiveTheLossesOfMemory) {
  const auto comm = aloni::test::make_communicator();
  const aloni::test::SharedFolder folder(comm);
  const LabelledImages images = made_up_images();
  Dataset set{
      .inputs = open_npy(write(comm, folder, "images.npy",
                               aloni::test::npy("|u1", "22, 12, 8, 2", aloni::test::elements_of(images.pixels)))),
      .targets = open_npy(
          write(comm, folder, "labels.npy", aloni::test::npy("|u1", "22,", aloni::test::elements_of(images.labels)))),
      .target_kind = TargetKind::sample_labels,
      .classes = 5,
      .normalisation = {images.scale, {images.mean}, {images.deviation}}};
  const NetworkDescription network = classifier(images.image);
  // 22 samples in mini-batches of 8: the last one of each epoch is incomplete.
  for (const int shift : {0, 2}) {
    const TrainOptions options{.batch = 8, .epochs = 3, .shift = shift, .flip = shift > 0};
    const auto in_memory = train<double>(comm, network, Strategy::uniform(ProcessGrid::parse(grid_of(comm.size()))),
                                         images, images, options);
    const auto from_files = train_with(comm, network, set, set, options);
    EXPECT_EQ(from_files.losses, in_memory.losses);
    ASSERT_EQ(from_files.losses.size(), 9u);
    for (std::size_t e = 0; e < 3; ++e) {
      EXPECT_EQ(from_files.epochs[e].test_accuracy, in_memory.epochs[e].test_accuracy);
      EXPECT_EQ(from_files.epochs[e].test_loss, in_memory.epochs[e].test_loss);
    }
  }
}

TEST(DatasetTraining, SplitsGiveTheLossesOfOneRank) {
  const auto comm = aloni::test::make_communicator();
  const auto alone = comm.split(comm.rank(), 0);
  const LabelledImages images = made_up_images();
  const Dataset set = as_dataset(images);
  const TrainOptions options{.batch = 8, .epochs = 2, .shift = 2, .flip = true, .brightness = 0.2, .contrast = 0.3};
  const auto split = train_with(comm, classifier(images.image), set, std::nullopt, options);
  const auto whole = train_with(alone, classifier(images.image), set, std::nullopt, options);
  ASSERT_EQ(split.losses.size(), whole.losses.size());
  for (std::size_t i = 0; i < split.losses.size(); ++i) EXPECT_NEAR(split.losses[i], whole.losses[i], 1e-10) << i;
  EXPECT_FALSE(split.epochs[0].test_loss);
}

TEST(DatasetTraining, LearnsFromEachKindOfTargets) {
  const auto comm = aloni::test::make_communicator();
  const views::Extents image{{1, 1, 8, 8, 2}}, one_channel{{1, 1, 8, 8, 1}};
  const auto inputs = synthetic_values(12, image, 1);
  // Whether the first channel is large: a mask that a network can learn.
  std::vector<std::int32_t> mask;
  std::vector<float> values(static_cast<std::size_t>(image.size()));
  for (Index n = 0; n < 12; ++n) {
    inputs->read(n, whole(image), std::as_writable_bytes(std::span(values)));
    for (std::size_t p = 0; p < values.size(); p += 2) mask.push_back(values[p] > 0.5F ? 1 : 0);
  }
  const Dataset masks{
      .inputs = inputs, .targets = memory_array("masks", mask, one_channel), .target_kind = TargetKind::pixel_labels};
  const Dataset elements{.inputs = inputs,
                         .targets = memory_array("targets", std::vector<float>(mask.begin(), mask.end()), one_channel),
                         .target_kind = TargetKind::elements};
  const TrainOptions options{.batch = 4, .epochs = 12, .optimiser = SgdOptions{.learning_rate = 0.3}};
  const auto check = [&](const Dataset& set, Loss loss, int channels) {
    SCOPED_TRACE(name(loss));
    const auto report = train_with(comm, pixel_network(image, loss, channels), set, set, options);
    EXPECT_LT(report.epochs.back().loss, 0.9 * report.epochs.front().loss);
    EXPECT_EQ(report.epochs.back().test_accuracy.has_value(), loss != Loss::mean_squared_error);
    if (report.epochs.back().test_accuracy) {
      EXPECT_GT(*report.epochs.back().test_accuracy, 0.6);
      EXPECT_LE(*report.epochs.back().test_accuracy, 1.0);
    }
    EXPECT_NEAR(*report.epochs.back().test_loss, report.epochs.back().loss, 0.2);
    return report.losses;
  };
  check(masks, Loss::pixel_cross_entropy, 2);
  EXPECT_EQ(check(masks, Loss::binary_cross_entropy, 1), check(elements, Loss::binary_cross_entropy, 1));
  check(masks, Loss::dice, 1);
  check(elements, Loss::mean_squared_error, 1);
}

TEST(DatasetTraining, RefusesSetsThatDoNotFitOrDiffer) {
  const auto comm = aloni::test::make_communicator();
  const LabelledImages images = made_up_images();
  Dataset set = as_dataset(images);
  const NetworkDescription network = classifier(images.image);
  set.classes = 6;
  EXPECT_THROW(train_with(comm, network, set, std::nullopt, {}), InvalidArgument) << "six classes, five logits";
  set.classes = 5;
  EXPECT_THROW(train_with(comm, pixel_network(images.image, Loss::dice, 1), set, std::nullopt, {}), InvalidArgument);
  EXPECT_THROW(train_with(comm, network, set, std::nullopt, {.contrast = 2}), InvalidArgument);
  if (comm.size() == 1) return;
  LabelledImages other = images;
  if (comm.rank() == 1) other.pixels[7] ^= 1;
  const Dataset differs = as_dataset(other);
  try {
    train_with(comm, network, differs, std::nullopt, {});
    ADD_FAILURE() << "not refused";
  } catch (const InvalidArgument& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("training set's inputs"));
  }
}

// A file that only one rank cannot read: its error there, and no rank waits.
TEST(DatasetTraining, AnErrorOfOneRankReachesAll) {
  const auto comm = aloni::test::make_communicator();
  const LabelledImages images = made_up_images();
  Dataset set = as_dataset(images);
  const bool fails = comm.rank() == comm.size() - 1;
  set.inputs = std::make_shared<aloni::test::DamagedArray>(set.inputs, fails ? std::optional(Index{17}) : std::nullopt);
  const NetworkDescription network = classifier(images.image);
  const Strategy by_height = Strategy::uniform(ProcessGrid::parse("h" + std::to_string(comm.size())));
  const auto run = [&] { train<double>(comm, network, by_height, set, std::nullopt, {.batch = 4}); };
  if (fails) {
    EXPECT_THROW(run(), FileError);
  } else {
    EXPECT_THROW(run(), PeerFailed);
  }
}

}  // namespace test_dataset_training
}  // namespace aloni::nn

// Mini-batches that are read ahead equal those that are read when they are asked for, in any order of calls.
#include <aloni/core/error.hpp>
#include <aloni/nn/data/memory_array.hpp>
#include <aloni/nn/data/synthetic_array.hpp>
#include <aloni/nn/train/batch_reader.hpp>

#include <gmock/gmock.h>

namespace aloni::nn {
namespace test_batch_reader {

using views::Box;
using views::Dim;

const AugmentationOptions augmentation{.shift = 1, .flip = true, .contrast = 0.5};

Dataset made_up_set() {
  return {.inputs = synthetic_values(11, {{1, 1, 4, 6, 2}}, 1),
          .targets = synthetic_labels(11, {{1, 1, 1, 1, 1}}, 5, 2),
          .target_kind = TargetKind::sample_labels};
}

BatchPart part_of(Index samples) {
  Box input = whole(views::Extents{{samples, 1, 4, 6, 2}}), output = whole(views::Extents{{samples, 1, 1, 1, 5}});
  input.set(Dim::height, 1, 3);
  return {input, output, LossTargets::sample_labels, 5};
}

void expect_batch(BatchReader<float>& reader, const Dataset& set, std::uint64_t epoch, Index first) {
  const Index samples = std::min<Index>(4, 11 - first);
  const HostBatch<float>& got = reader.read(epoch, first, part_of(samples));
  HostBatch<float> expected;
  const auto order = epoch_order(11, 3, epoch);
  const auto chosen = std::span(order).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(samples));
  read_batch<float>(set, {augmentation, 3, epoch}, chosen, part_of(samples), expected);
  ASSERT_EQ(got.input, expected.input) << "epoch " << epoch << " sample " << first;
  ASSERT_EQ(got.labels, expected.labels);
}

TEST(BatchReader, GivesTheMiniBatchesOfAllEpochs) {
  const Dataset set = made_up_set();
  BatchReader<float> reader(set, {.batch = 4, .augmentation = augmentation, .seed = 3});
  for (std::uint64_t epoch = 0; epoch < 4; ++epoch)
    for (const Index first : {0, 4, 8}) expect_batch(reader, set, epoch, first);
}

TEST(BatchReader, GoesOnFromAnyPosition) {
  const Dataset set = made_up_set();
  BatchReader<float> reader(set, {.batch = 4, .augmentation = augmentation, .seed = 3});
  expect_batch(reader, set, 2, 8);  // a training that was interrupted
  expect_batch(reader, set, 3, 0);
  expect_batch(reader, set, 3, 0);
  expect_batch(reader, set, 1, 4);
  expect_batch(reader, set, 1, 8);
  expect_batch(reader, set, 2, 0);
}

TEST(BatchReader, KeepsTheOrderOfATestSet) {
  const Dataset set = made_up_set();
  BatchReader<float> reader(set, {.batch = 4, .shuffles = false});
  HostBatch<float> expected;
  for (std::uint64_t epoch = 0; epoch < 2; ++epoch) {
    reader.read(epoch, 0, part_of(4));
    read_batch<float>(set, {}, std::vector<Index>{4, 5, 6, 7}, part_of(4), expected);
    EXPECT_EQ(reader.read(epoch, 4, part_of(4)).input, expected.input);
    read_batch<float>(set, {}, std::vector<Index>{8, 9, 10}, part_of(3), expected);
    EXPECT_EQ(reader.read(epoch, 8, part_of(3)).input, expected.input);
  }
}

TEST(BatchReader, ThrowsTheErrorOfItsMiniBatch) {
  Dataset set = made_up_set();
  std::vector<std::int8_t> labels(11, 0);
  labels[6] = 9;
  set.targets = memory_array("labels", labels, {{1, 1, 1, 1, 1}});
  BatchReader<float> reader(set, {.batch = 4, .shuffles = false});
  reader.read(0, 0, part_of(4));
  EXPECT_THROW(reader.read(0, 4, part_of(4)), FileError);
  EXPECT_THROW(reader.read(0, 4, part_of(4)), FileError);
  reader.read(0, 8, part_of(3));
}

}  // namespace test_batch_reader
}  // namespace aloni::nn

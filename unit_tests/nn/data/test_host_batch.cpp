// A rank's part of a mini-batch, and whether a data set fits a network.
#include <aloni/core/error.hpp>
#include <aloni/nn/data/host_batch.hpp>
#include <aloni/nn/data/memory_array.hpp>
#include <aloni/nn/data/synthetic_array.hpp>

#include <gmock/gmock.h>

namespace aloni::nn {
namespace test_host_batch {

using testing::HasSubstr;
using views::Box;
using views::Dim;
using views::Extents;
using views::whole;

NetworkDescription network_with(Loss loss, bool flat, Index channels) {
  NetworkDescription n;
  n.input = {{1, 1, 4, 6, 2}};
  n.loss = loss;
  n.layers = {{"conv", Convolution{static_cast<int>(channels), square_window(2, 1, 1, 0)}, {"input"}}};
  if (flat) n.layers = {{"flat", Flatten{}, {"input"}}, {"fc", Dense{static_cast<int>(channels)}, {"flat"}}};
  return n;
}

Dataset set_with(TargetKind kind, const Extents& targets, Index classes = 0) {
  Dataset set{.inputs = synthetic_values(9, {{1, 1, 4, 6, 2}}, 1), .target_kind = kind, .classes = classes};
  if (kind == TargetKind::elements) set.targets = synthetic_values(9, targets, 2);
  if (kind == TargetKind::sample_labels || kind == TargetKind::pixel_labels)
    set.targets = synthetic_labels(9, targets, 3, 2);
  return set;
}

std::string refusal(const Dataset& set, const NetworkDescription& network, const AugmentationOptions& options = {}) {
  try {
    check_fits(set, "training set", network, options, "test");
  } catch (const InvalidArgument& e) {
    return e.what();
  }
  return "fits";
}

TEST(CheckFits, AcceptsTargetsOfTheKindOfTheLoss) {
  const Dataset labels = set_with(TargetKind::sample_labels, {{1, 1, 1, 1, 1}}, 3);
  const Dataset masks = set_with(TargetKind::pixel_labels, {{1, 1, 4, 6, 1}});
  const Dataset images = set_with(TargetKind::elements, {{1, 1, 4, 6, 1}});
  const auto classifier = network_with(Loss::softmax_cross_entropy, true, 3);
  const auto segments = network_with(Loss::pixel_cross_entropy, false, 3);
  EXPECT_EQ(refusal(labels, classifier), "fits");
  EXPECT_EQ(refusal(masks, segments), "fits");
  for (const Loss loss : {Loss::binary_cross_entropy, Loss::dice, Loss::mean_squared_error}) {
    EXPECT_EQ(refusal(images, network_with(loss, false, 1)), "fits");
    EXPECT_EQ(refusal(masks, network_with(loss, false, 1)), "fits");
    EXPECT_THAT(refusal(labels, network_with(loss, false, 1)), HasSubstr("target_kind = sample_labels"));
    EXPECT_THAT(refusal(images, network_with(loss, false, 2)), HasSubstr("targets = 1x1x4x6x1"));
  }
  EXPECT_THAT(refusal(masks, classifier), HasSubstr("sample_labels, for the loss softmax_cross_entropy"));
  EXPECT_THAT(refusal(images, segments), HasSubstr("pixel_labels, for the loss"));
  EXPECT_THAT(refusal(set_with(TargetKind::none, {}), segments), HasSubstr("target_kind = none"));
  EXPECT_THAT(refusal(labels, network_with(Loss::softmax_cross_entropy, true, 2)), HasSubstr("classes = 3"));
  auto other = classifier;
  other.input[Dim::width] = 5;
  EXPECT_THAT(refusal(labels, other), HasSubstr("the network's input, 1x1x4x5x2"));
}

TEST(CheckFits, RefusesShiftsOfCoarserTargets) {
  NetworkDescription coarse = network_with(Loss::binary_cross_entropy, false, 1);
  coarse.layers[0].operation = Convolution{1, square_window(2, 2, 2, 0)};
  const Dataset set = set_with(TargetKind::pixel_labels, {{1, 1, 2, 3, 1}});
  EXPECT_EQ(refusal(set, coarse, {.flip = true}), "fits");
  EXPECT_THAT(refusal(set, coarse, {.shift = 1}), HasSubstr("shift = 1"));
}

TEST(ReadBatch, PartsAreThoseOfTheWholeMiniBatch) {
  const Dataset set = set_with(TargetKind::pixel_labels, {{1, 1, 4, 6, 1}});
  const std::vector<Index> chosen{7, 0, 3, 8};
  const AugmentationDraws draws{{.shift = 2, .flip = true, .brightness = 0.5}, 3, 1};
  const Box all_input = whole({{4, 1, 4, 6, 2}}), all_output = whole({{4, 1, 4, 6, 1}});
  HostBatch<float> all, elements;
  read_batch(set, draws, chosen, {all_input, all_output, LossTargets::pixel_labels, 3}, all);
  read_batch(set, draws, chosen, {all_input, all_output, LossTargets::elements, 1}, elements);
  ASSERT_EQ(elements.targets.size(), all.labels.size());
  EXPECT_TRUE(elements.labels.empty());
  for (std::size_t i = 0; i < all.labels.size(); ++i) ASSERT_EQ(elements.targets[i], static_cast<float>(all.labels[i]));
  HostBatch<float> part;
  for (const Index n : {0, 1, 2}) {
    Box input = all_input, output = all_output;
    input.set(Dim::sample, n, n + 2);
    input.set(Dim::height, 1, 3);
    output.set(Dim::sample, n, n + 2);
    output.set(Dim::width, 2, 6);
    read_batch(set, draws, chosen, {input, output, LossTargets::pixel_labels, 3}, part);
    ASSERT_EQ(std::ssize(part.input), input.size());
    ASSERT_EQ(std::ssize(part.labels), output.size());
    std::size_t i = 0, k = 0;
    for (Index s = n; s < n + 2; ++s) {
      for (Index h = 1; h < 3; ++h)
        for (Index x = 0; x < 12; ++x)
          ASSERT_EQ(part.input[i++], all.input[static_cast<std::size_t>((s * 4 + h) * 12 + x)]);
      for (Index h = 0; h < 4; ++h)
        for (Index w = 2; w < 6; ++w)
          ASSERT_EQ(part.labels[k++], all.labels[static_cast<std::size_t>((s * 4 + h) * 6 + w)]);
    }
  }
  read_batch(set, draws, chosen, {{}, {}, LossTargets::pixel_labels, 3}, part);
  EXPECT_TRUE(part.input.empty() && part.labels.empty());
}

TEST(ReadBatch, RefusesLabelsThatAreNoClasses) {
  Dataset set = set_with(TargetKind::sample_labels, {{1, 1, 1, 1, 1}});
  set.targets = memory_array("labels", std::vector<std::int8_t>{0, 1, 2, 3, 4, -1, 0, 0, 0}, {{1, 1, 1, 1, 1}});
  HostBatch<float> batch;
  const BatchPart part{whole({{1, 1, 4, 6, 2}}), whole({{1, 1, 1, 1, 4}}), LossTargets::sample_labels, 4};
  const auto read = [&](Index sample) { read_batch(set, {}, std::vector<Index>{sample}, part, batch); };
  read(3);
  EXPECT_EQ(batch.labels, std::vector<int>{3});
  EXPECT_THROW(read(4), FileError);
  EXPECT_THROW(read(5), FileError);
}

}  // namespace test_host_batch
}  // namespace aloni::nn

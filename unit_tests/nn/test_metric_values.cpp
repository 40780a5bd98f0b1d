// Metrics from their sums.
#include <aloni/nn/metrics.hpp>

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace test_metric_values {

using namespace aloni;
using namespace aloni::nn;

TEST(MetricValues, OfPixelsAreAMeanOverTheClassesThatOccur) {
  const std::array<double, 6> sums{3, 4, 0, 0, 1, 4};  // the second class occurs nowhere
  const std::vector<Metric> expected{{"iou", 0.5}};
  EXPECT_EQ(metrics_of(Loss::pixel_cross_entropy, 3, sums, 100), expected);
}

TEST(MetricValues, WithoutForegroundAnywhereAgree) {
  const std::vector<Metric> expected{{"iou", 1.0}};
  EXPECT_EQ(metrics_of(Loss::dice, 1, std::array<double, 2>{0, 0}, 100), expected);
}

TEST(MetricValues, OfErrorsAndLabelsAreMeansOverPredictions) {
  EXPECT_EQ(metrics_of(Loss::mean_squared_error, 2, std::array<double, 1>{5}, 20),
            (std::vector<Metric>{{"mean_absolute_error", 0.25}}));
  EXPECT_EQ(metrics_of(Loss::softmax_cross_entropy, 10, std::array<double, 1>{15}, 20),
            (std::vector<Metric>{{"top5_accuracy", 0.75}}));
}

TEST(MetricValues, HaveOneSumEachAsTheTableSays) {
  for (const Loss loss : {Loss::softmax_cross_entropy, Loss::binary_cross_entropy, Loss::mean_squared_error,
                          Loss::pixel_cross_entropy, Loss::dice}) {
    for (const Index channels : {1, 5, 6, 20}) {
      const std::vector<double> sums(static_cast<std::size_t>(metric_sums(loss, channels)), 1.0);
      const auto metrics = metrics_of(loss, channels, sums, 7);
      const auto names = metric_names(loss, channels);
      ASSERT_EQ(metrics.size(), names.size());
      for (std::size_t i = 0; i < names.size(); ++i) EXPECT_EQ(metrics[i].name, names[i]);
      EXPECT_EQ(names.empty(), sums.empty());
    }
  }
}

TEST(MetricValues, CountPredictionsAsTheLossDoes) {
  const views::Extents output{{4, 1, 3, 2, 5}};
  EXPECT_EQ(predictions_in(Loss::pixel_cross_entropy, output), 24);
  EXPECT_EQ(predictions_in(Loss::mean_squared_error, output), 120);
}

}  // namespace test_metric_values

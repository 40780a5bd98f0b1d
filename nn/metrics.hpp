#pragma once
// Metrics of a test set beside the loss and the number of correct predictions. Pure. Each follows from sums over all
// samples and ranks (Network::metric_sums). Sums of several mini-batches are added before a metric is computed from
// them, because a mean over mini-batches would be another number.
//
//   loss                    metric                sums, in this order
//   softmax_cross_entropy   top5_accuracy         samples whose label has one of the five largest logits
//   pixel_cross_entropy     iou                   of each class: pixels in both sets, and pixels in at least one
//   binary_cross_entropy    iou                   elements in both sets, and elements in at least one
//   dice                    iou                   as binary_cross_entropy
//   mean_squared_error      mean_absolute_error   |y - t| over the elements
//
// The two sets of iou (intersection over union) are those of the prediction and of the target. A class of pixels is in
// the prediction where its logit is the largest. Elements are in it where the logit is above 0, and in the target where
// t > 1/2. With at most five classes there is no top5_accuracy, as it would be 1.
//
//   std::vector<double> sums(metric_sums(net.loss, classes));
//   // for each mini-batch: network.evaluate(queue), then network.metric_sums() is added to sums
//   const std::vector<Metric> metrics = metrics_of(net.loss, classes, sums, samples);
#include <aloni/nn/network_description.hpp>

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace aloni::nn {

struct Metric {
  std::string name;  ///< "top5_accuracy", "iou", "mean_absolute_error"
  double value = 0;
  bool operator==(const Metric&) const = default;
};

/// The results of a test set; without one, empty.
struct TestResult {
  std::optional<double> accuracy = {};  ///< correct predictions divided by all; none for mean_squared_error
  std::optional<double> loss = {};      ///< mean over the samples; of dice, mean over the mini-batches by samples
  std::vector<Metric> metrics = {};
};

/// The names of the metrics. `channels`: of the output of the network.
std::vector<std::string> metric_names(Loss loss, Index channels);
/// The number of sums from which the metrics follow; 0 without metrics.
Index metric_sums(Loss loss, Index channels);
/// Number of predictions in an output of these extents: samples, pixels or elements (nn/network_description.hpp).
Index predictions_in(Loss loss, const views::Extents& output);
/// The metrics from the sums over a test set. `predictions`: predictions_in() over all its samples.
/// iou of pixels is the mean over the classes that occur in a prediction or a label. Without foreground in all
/// predictions and targets iou is 1.
/// @pre sums.size() == metric_sums(loss, channels), predictions ≥ 1
std::vector<Metric> metrics_of(Loss loss, Index channels, std::span<const double> sums, Index predictions);

/// The name of a metric in a text: "top-5 accuracy", "IoU", "mean absolute error".
std::string text_of_metric(std::string_view name);

}  // namespace aloni::nn

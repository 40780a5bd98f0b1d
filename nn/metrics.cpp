#include <aloni/nn/metrics.hpp>

#include <cstddef>

namespace aloni::nn {

using views::Dim;

std::vector<std::string> metric_names(Loss loss, Index channels) {
  switch (loss) {
    case Loss::softmax_cross_entropy:
      return channels > 5 ? std::vector<std::string>{"top5_accuracy"} : std::vector<std::string>{};
    case Loss::pixel_cross_entropy:
    case Loss::binary_cross_entropy:
    case Loss::dice:
      return {"iou"};
    case Loss::mean_squared_error:
      break;
  }
  return {"mean_absolute_error"};
}

Index metric_sums(Loss loss, Index channels) {
  switch (loss) {
    case Loss::softmax_cross_entropy:
      return channels > 5 ? 1 : 0;
    case Loss::pixel_cross_entropy:
      return 2 * channels;
    case Loss::binary_cross_entropy:
    case Loss::dice:
      return 2;
    case Loss::mean_squared_error:
      break;
  }
  return 1;
}

Index predictions_in(Loss loss, const views::Extents& output) {
  return targets_of(loss) == LossTargets::elements ? output.size() : output.size() / output[Dim::channel];
}

std::vector<Metric> metrics_of(Loss loss, Index channels, std::span<const double> sums, Index predictions) {
  const std::vector<std::string> names = metric_names(loss, channels);
  if (names.empty()) return {};
  if (names[0] != "iou") return {{names[0], sums[0] / static_cast<double>(predictions)}};
  double sum = 0;
  int classes = 0;
  for (std::size_t i = 0; i + 1 < sums.size(); i += 2) {
    if (sums[i + 1] == 0) continue;
    sum += sums[i] / sums[i + 1];
    ++classes;
  }
  return {{names[0], classes > 0 ? sum / classes : 1.0}};
}

std::string text_of_metric(std::string_view name) {
  if (name == "top5_accuracy") return "top-5 accuracy";
  if (name == "iou") return "IoU";
  std::string text(name);
  for (char& c : text)
    if (c == '_') c = ' ';
  return text;
}

}  // namespace aloni::nn

#include <aloni/tools/sample_report.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace aloni::tools {

namespace {

ReportPage::Picture picture_of(const char* name, const nn::SamplePicture& from) {
  ReportPage::Picture picture{name, from.width, from.height};
  const std::size_t channels = static_cast<std::size_t>(from.channels);
  for (std::size_t pixel = 0; pixel < from.values.size() / channels; ++pixel) {
    for (std::size_t c = 0; c < 3; ++c) {
      const double value = from.values[pixel * channels + std::min(c, channels - 1)];
      const double share = (value - from.black) / (from.white - from.black);
      picture.pixels.push_back(
          std::isfinite(share) ? static_cast<std::uint8_t>(std::lround(255 * std::clamp(share, 0.0, 1.0))) : 0);
    }
  }
  return picture;
}

std::string caption_of(const nn::SampleResult& result, nn::Loss loss) {
  if (loss == nn::Loss::softmax_cross_entropy) {
    if (result.label == result.predicted) return fmt::format("predicted {}: right", result.predicted);
    return fmt::format("predicted {}: wrong, is {}", result.predicted, result.label);
  }
  if (loss == nn::Loss::mean_squared_error)
    return fmt::format("sample {}: mean absolute error {:.3g}", result.sample, result.score);
  return fmt::format("sample {}: {:.1f} % right", result.sample, 100 * result.score);
}

}  // namespace

std::vector<ReportPage::Sample> samples_of(const std::vector<nn::SampleResult>& results, nn::Loss loss) {
  std::vector<ReportPage::Sample> samples;
  for (const nn::SampleResult& result : results) {
    ReportPage::Sample sample{.caption = caption_of(result, loss)};
    sample.pictures.push_back(picture_of("input", result.input));
    if (loss == nn::Loss::softmax_cross_entropy) {
      sample.right = result.label == result.predicted;
    } else {
      sample.pictures.push_back(picture_of("truth", result.truth));
      sample.pictures.push_back(picture_of("prediction", result.prediction));
    }
    samples.push_back(std::move(sample));
  }
  return samples;
}

}  // namespace aloni::tools

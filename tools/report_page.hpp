#pragma once
// A training as one HTML page: curves, time, memory, the plan's table, sample pictures, the configuration. The page has
// no links and no server, and follows the light or dark setting of the browser. It is complete without scripts; a small
// one shows the values under the pointer.
//
//   write_result_file("report.html", to_html(page));
//
// The element <script type="application/json" id="aloni-data"> holds the numbers for programs:
// {"version", "losses": [[step, loss]], "learning_rates": [[step, rate]], "epochs": [{"loss", "metrics": {name:
// value}}], "tiles": {name: text}, "seconds": {name: seconds}, "memory": {"measured", "predicted"}, "configuration":
// {name: text}}.
#include <aloni/tools/plan_summary.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace aloni::tools {

struct ReportPage {
  using Texts = std::vector<std::pair<std::string, std::string>>;
  using Numbers = std::vector<std::pair<std::string, double>>;

  struct Epoch {
    std::int64_t last_step = 0;
    double loss = 0;
    Numbers metrics = {};  ///< for example {"test accuracy", 0.99}
  };
  struct Picture {
    std::string name;  ///< for example "truth"
    int width = 0, height = 0;
    std::vector<std::uint8_t> pixels = {};  ///< 3 bytes each (red, green, blue), row by row from the top
  };
  /// A sample with its prediction.
  struct Sample {
    std::vector<Picture> pictures = {};  ///< side by side; of more than one, each with its name
    std::string caption = {};
    std::optional<bool> right = {};  ///< none if a prediction is neither right nor wrong
  };

  std::string title, subtitle;
  Texts tiles = {};                 ///< the most important results
  std::vector<double> losses = {};  ///< of all steps, from the first
  std::vector<double> rates = {};   ///< learning rates of the same steps; may be empty
  std::vector<Epoch> epochs = {};
  Numbers seconds = {};  ///< of each phase, on rank 0
  double measured_bytes = 0, predicted_bytes = 0;
  std::vector<LayerSummary> layers = {};
  int spatial_rank = 2;
  std::string plan_picture = {};  ///< SVG of to_svg(); may be empty
  std::vector<Sample> samples = {};
  Texts configuration = {};
};

/// A complete HTML document in UTF-8. Curves of more than 1,000 points show the mean, the least and the largest value
/// of groups of steps. Values that are not finite are left out of the curves. Pure.
/// @pre each picture has 3 * width * height bytes
std::string to_html(const ReportPage& page);

}  // namespace aloni::tools

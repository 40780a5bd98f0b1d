#pragma once
// Curves of the report page as SVG, and the axes of all charts.
#include <cstddef>
#include <string>
#include <vector>

namespace aloni::tools {

/// logarithmic: only if all values are above 0 and the largest is many times the least; otherwise linear.
enum class ChartScale { linear, logarithmic };

/// The values from `least` to `most` along a side of a chart.
struct ChartAxis {
  double least = 0, most = 1;
  bool logarithmic = false;

  /// 0 for the least value, 1 for the largest one.
  double position(double value) const;
  /// Round numbers for the lines of the axis. On a logarithmic one also 2 and 5 times powers of ten, or only these
  /// powers from three decades on.
  std::vector<double> values() const;
};

/// `wide`: the least ratio of the largest and the least value for a logarithmic axis. A linear axis begins at 0 if
/// the least value is positive and below half of the largest one. An axis of one value is widened around it.
/// @pre least <= most, both finite
ChartAxis axis_over(double least, double most, ChartScale scale, double wide = 20);

struct ChartAbout {
  std::string caption;
  ChartScale scale = ChartScale::linear;
};

struct ChartPoint {
  double step = 0, value = 0;
};

/// At most 1,000 positions of `count` values, evenly spread, with the first and the last one.
std::vector<std::size_t> chosen_steps(std::size_t count);

/// Round numbers from `least` to `most`, at most seven, for the lines of an axis. @pre least < most, both finite
std::vector<double> axis_values(double least, double most);

/// A curve over the steps 1, 2, 3, … A logarithmic scale needs a ratio of 20. Of more than 500 values it shows the mean
/// of groups, and a band from their least to their largest value. Values that are not finite are left out.
std::string chart(const ChartAbout& about, const std::vector<double>& values);
/// A curve with a dot at each point.
std::string chart(const ChartAbout& about, const std::vector<ChartPoint>& points);

}  // namespace aloni::tools

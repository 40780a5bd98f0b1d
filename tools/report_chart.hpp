#pragma once
// Curves of the report page as SVG.
#include <cstddef>
#include <string>
#include <vector>

namespace aloni::tools {

/// logarithmic: only if all values are above 0 and the largest is at least 20 times the least; otherwise linear.
enum class ChartScale { linear, logarithmic };

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

/// A curve over the steps 1, 2, 3, … Of more than 500 values it shows the mean of groups, and a band from their least
/// to their largest value. Values that are not finite are left out.
std::string chart(const ChartAbout& about, const std::vector<double>& values);
/// A curve with a dot at each point.
std::string chart(const ChartAbout& about, const std::vector<ChartPoint>& points);

}  // namespace aloni::tools

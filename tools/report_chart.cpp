#include <aloni/tools/report_chart.hpp>

#include <aloni/tools/markup_text.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace aloni::tools {

namespace {

constexpr double width = 520, height = 240, left = 58, right = 22, top = 20, bottom = 30;
constexpr std::size_t most_groups = 500;

/// Values of neighbouring steps.
struct Group {
  double step = 0, mean = 0, least = 0, most = 0;
};

ChartAxis axis_of(const std::vector<Group>& groups, ChartScale scale) {
  double least = std::numeric_limits<double>::max(), most = std::numeric_limits<double>::lowest();
  for (const Group& g : groups) {
    least = std::min(least, g.least);
    most = std::max(most, g.most);
  }
  return axis_over(least, most, scale);
}

std::string number(double value) { return fmt::format("{:.4g}", value); }

std::string draw(const ChartAbout& about, const std::vector<Group>& groups, bool dots) {
  const std::string caption = escaped(about.caption);
  if (groups.empty())
    return fmt::format("<figure><figcaption>{}</figcaption><p>No finite values.</p></figure>\n", caption);
  const ChartAxis axis = axis_of(groups, about.scale);
  const double first = groups.front().step, last = std::max(groups.back().step, first + 1);
  const auto x = [&](double step) { return left + (step - first) / (last - first) * (width - left - right); };
  const auto y = [&](double value) { return height - bottom - axis.position(value) * (height - top - bottom); };

  std::string drawing, curve, band, back, points;
  for (const double value : axis.values()) {
    drawing += fmt::format(
        "<line class=\"axis\" x1=\"{:.0f}\" x2=\"{:.0f}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>"
        "<text x=\"{:.0f}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n",
        left, width - right, y(value), y(value), left - 8, y(value) + 4, number(value));
  }
  for (const double step : axis_values(first, last)) {
    if (step != std::floor(step)) continue;
    drawing += fmt::format("<text x=\"{:.1f}\" y=\"{:.0f}\" text-anchor=\"middle\">{:.0f}</text>\n", x(step),
                           height - 10, step);
  }
  bool is_band = false;
  for (const Group& g : groups) {
    curve += fmt::format("{}{:.1f} {:.1f}", curve.empty() ? "M" : "L", x(g.step), y(g.mean));
    band += fmt::format("{}{:.1f} {:.1f}", band.empty() ? "M" : "L", x(g.step), y(g.most));
    back = fmt::format("L{:.1f} {:.1f}", x(g.step), y(g.least)) + back;
    is_band = is_band || g.least < g.most;
    points +=
        fmt::format("{}[{:.1f},\"step {:.0f}: {}\"]", points.empty() ? "" : ",", x(g.step), g.step, number(g.mean));
  }
  if (is_band) drawing += fmt::format("<path class=\"band\" d=\"{}{}Z\"/>\n", band, back);
  drawing += fmt::format("<path class=\"curve\" d=\"{}\"/>\n", curve);
  if (dots)
    for (const Group& g : groups)
      drawing += fmt::format("<circle class=\"dot\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.5\"/>\n", x(g.step), y(g.mean));
  return fmt::format(
      "<figure><figcaption>{}</figcaption>\n<svg viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" aria-label=\"{}\" "
      "data-points='[{}]'>\n{}<line class=\"pointer\" y1=\"{:.0f}\" y2=\"{:.0f}\"/>"
      "<text class=\"value\" x=\"{:.0f}\" y=\"13\" text-anchor=\"end\"></text>\n</svg></figure>\n",
      caption, width, height, caption, points, drawing, top, height - bottom, width - right);
}

}  // namespace

std::vector<std::size_t> chosen_steps(std::size_t count) {
  constexpr std::size_t most = 1000;
  std::vector<std::size_t> chosen;
  if (count <= most) {
    for (std::size_t i = 0; i < count; ++i) chosen.push_back(i);
  } else {
    for (std::size_t i = 0; i < most; ++i) chosen.push_back(i * (count - 1) / (most - 1));
  }
  return chosen;
}

double ChartAxis::position(double value) const {
  return logarithmic ? std::log(value / least) / std::log(most / least) : (value - least) / (most - least);
}

std::vector<double> ChartAxis::values() const {
  if (!logarithmic) return axis_values(least, most);
  std::vector<double> all;
  const double decades = std::log10(most / least);
  for (double power = std::pow(10, std::floor(std::log10(least))); power <= most; power *= 10)
    for (const double factor : {1.0, 2.0, 5.0})
      if ((decades < 3 || factor == 1) && factor * power >= least && factor * power <= most)
        all.push_back(factor * power);
  return all;
}

ChartAxis axis_over(double least, double most, ChartScale scale, double wide) {
  ChartAxis axis{least, most, scale == ChartScale::logarithmic && least > 0 && most >= wide * least};
  if (axis.logarithmic) return axis;
  if (axis.least > 0 && axis.least < 0.5 * axis.most) axis.least = 0;
  if (axis.least == axis.most) {
    axis.least -= std::abs(axis.least) / 2 + 1e-9;
    axis.most += std::abs(axis.most) / 2 + 1e-9;
  }
  return axis;
}

std::vector<double> axis_values(double least, double most) {
  const double rough = (most - least) / 6, power = std::pow(10, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double factor : {5.0, 2.0, 1.0})
    if (factor * power >= rough) step = factor * power;
  std::vector<double> values;
  const double tolerance = 1e-9 * step;
  for (double k = std::ceil((least - tolerance) / step); k * step <= most + tolerance; ++k)
    values.push_back(k * step + 0.0);  // -0 becomes 0
  return values;
}

std::string chart(const ChartAbout& about, const std::vector<double>& values) {
  const std::size_t size = (values.size() + most_groups - 1) / most_groups;
  std::vector<Group> groups;
  for (std::size_t begin = 0; begin < values.size(); begin += size) {
    Group group{0, 0, std::numeric_limits<double>::max(), std::numeric_limits<double>::lowest()};
    int finite = 0;
    for (std::size_t i = begin; i < std::min(begin + size, values.size()); ++i) {
      if (!std::isfinite(values[i])) continue;
      ++finite;
      group.step = static_cast<double>(i + 1);
      group.mean += (values[i] - group.mean) / finite;
      group.least = std::min(group.least, values[i]);
      group.most = std::max(group.most, values[i]);
    }
    if (finite > 0) groups.push_back(group);
  }
  return draw(about, groups, false);
}

std::string chart(const ChartAbout& about, const std::vector<ChartPoint>& points) {
  std::vector<Group> groups;
  for (const ChartPoint& p : points)
    if (std::isfinite(p.value)) groups.push_back({p.step, p.value, p.value, p.value});
  return draw(about, groups, true);
}

}  // namespace aloni::tools

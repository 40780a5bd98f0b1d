#include <aloni/tools/chart_panel.hpp>

#include <aloni/tools/quantity_text.hpp>
#include <aloni/tools/report_chart.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace aloni::tools {

namespace {

/// About, of a text of 11 pixels height.
double width_of_text(const std::string& text) { return 6.2 * static_cast<double>(text.size()); }

std::string fill_of(std::size_t colour) { return fmt::format("c{}", colour); }

std::string scale_text(const ChartAxis& axis) { return axis.logarithmic ? " (logarithmic)" : ""; }

class Lines {
 public:
  Lines(SvgPage& page, const LinePanel& panel, const Place& place)
      : page_(page), panel_(panel), place_(place), plot_{place.x + 84, place.y + 30, place.width - 100, place.height} {}

  double draw() {
    page_.text(place_.x, place_.y + 12, "head", panel_.title);
    choose_axes();
    std::string note = panel_.note;
    if (leaves_out_zeros_) note += (note.empty() ? "" : "; ") + std::string("0 is not on a logarithmic axis");
    page_.text(place_.x + width_of_text(panel_.title) * 1.12 + 16, place_.y + 12, "small muted", note);
    if (!has_values_) {
      page_.text(place_.x, place_.y + 36, "muted", "No values.");
      return place_.y + 46;
    }
    draw_axes();
    for (const ChartLine& line : panel_.lines) draw_line(line);
    return draw_legend();
  }

 private:
  bool shown(const ChartDot& dot) const {
    return std::isfinite(dot.y) && (!y_.logarithmic || (dot.y > 0 && dot.y >= y_.least));
  }

  void choose_axes() {
    constexpr double infinity = std::numeric_limits<double>::infinity(), largest_ratio = 1e7;
    double first = infinity, last = -infinity, least = infinity, least_positive = infinity, most = -infinity;
    for (const ChartLine& line : panel_.lines) {
      for (const ChartDot& dot : line.dots) {
        if (!std::isfinite(dot.y)) continue;
        has_values_ = true;
        first = std::min(first, dot.x);
        last = std::max(last, dot.x);
        least = std::min(least, dot.y);
        most = std::max(most, dot.y);
        if (dot.y > 0) least_positive = std::min(least_positive, dot.y);
      }
    }
    if (!has_values_) return;
    constexpr double wide_x = 8;
    x_ = axis_over(first, last, ChartScale::logarithmic, wide_x);
    least_positive = std::max(least_positive, most / largest_ratio);
    y_ = most > 0 ? axis_over(least_positive, most, ChartScale::logarithmic)
                  : axis_over(least, most, ChartScale::linear);
    if (!y_.logarithmic) y_ = axis_over(std::min(least, 0.0), most, ChartScale::linear);
    leaves_out_zeros_ = y_.logarithmic && least < y_.least;
  }

  double x(double value) const { return plot_.x + plot_.width * x_.position(value); }
  double y(double value) const { return plot_.y + plot_.height * (1 - y_.position(value)); }
  double lower() const { return plot_.y + plot_.height; }

  void draw_axes() {
    for (const double value : y_.values()) {
      page_.line(plot_.x, y(value), plot_.x + plot_.width, y(value), "line");
      page_.text(plot_.x - 8, y(value) + 4, "small muted", panel_.y_text(value), "end");
    }
    double free = 0;  // from here on
    for (const double value : panel_.x_values.empty() ? x_.values() : panel_.x_values) {
      if (value < x_.least || value > x_.most) continue;
      page_.line(x(value), lower(), x(value), lower() + 5, "line");
      const std::string label = panel_.x_text(value);
      const double half = width_of_text(label) / 2;
      if (x(value) - half < free) continue;
      page_.text(x(value), lower() + 18, "small muted", label, "middle");
      free = x(value) + half + 4;
    }
    page_.path(fmt::format("M{:.2f} {:.2f}V{:.2f}H{:.2f}", plot_.x, plot_.y, lower(), plot_.x + plot_.width), "line");
    page_.text(plot_.x + plot_.width / 2, lower() + 36, "small", panel_.x_title + scale_text(x_), "middle");
    page_.upward_text(place_.x + 12, plot_.y + plot_.height / 2, "small", panel_.y_title + scale_text(y_));
  }

  static std::string stroke_of(const ChartLine& line) {
    return fmt::format("l{}{}", line.colour, line.marks == ChartMarks::dashed_line_and_dots ? " dashed" : "");
  }

  void dot(double at_x, double at_y, const ChartLine& line, bool hollow) {
    const std::string fill = fill_of(line.colour);
    page_.circle(at_x, at_y, 3.5, hollow ? fill + " hollow" : fill);
    if (hollow) page_.circle(at_x, at_y, 3.5, fmt::format("l{}", line.colour));
  }

  void draw_line(const ChartLine& line) {
    std::string path;
    bool gap = true;
    for (const ChartDot& d : line.dots) {
      if (shown(d)) path += fmt::format("{}{:.1f} {:.1f}", gap ? "M" : "L", x(d.x), y(d.y));
      gap = !shown(d);
    }
    if (line.marks != ChartMarks::dots && !path.empty()) page_.path(path, stroke_of(line));
    if (line.marks == ChartMarks::line) return;
    for (const ChartDot& d : line.dots) {
      if (!shown(d)) continue;
      page_.begin(fmt::format("{}, {}: {}", line.name, panel_.x_text(d.x), panel_.y_text(d.y)));
      dot(x(d.x), y(d.y), line, d.hollow);
      page_.end();
    }
  }

  // In columns of equal width.
  double draw_legend() {
    constexpr double row = 18, mark = 24, gap = 16;
    double entry = 0;
    for (const ChartLine& line : panel_.lines) entry = std::max(entry, mark + width_of_text(line.name) + gap);
    const auto columns =
        std::max<std::size_t>(1, static_cast<std::size_t>((place_.x + place_.width - plot_.x + gap) / entry));
    std::size_t entries = 0;
    double at_x = plot_.x, at_y = lower() + 58;
    for (std::size_t i = 0; i < panel_.lines.size(); ++i) {
      const ChartLine& line = panel_.lines[i];
      const double middle = at_y - 4;
      if (line.marks != ChartMarks::dots) page_.line(at_x, middle, at_x + mark - 6, middle, stroke_of(line));
      if (line.marks != ChartMarks::line) dot(at_x + mark / 2 - 3, middle, line, false);
      if (i + 1 < panel_.lines.size() && panel_.lines[i + 1].name.empty()) continue;  // one entry with that line
      const ChartLine& named = line.name.empty() && i > 0 ? panel_.lines[i - 1] : line;
      page_.text(at_x + mark, at_y, "small", named.name);
      const bool fills_row = ++entries % columns == 0;
      at_x = fills_row ? plot_.x : at_x + entry;
      if (fills_row && i + 1 < panel_.lines.size()) at_y += row;
    }
    return at_y + 8;
  }

  SvgPage& page_;
  const LinePanel& panel_;
  Place place_, plot_;
  ChartAxis x_, y_;
  bool has_values_ = false, leaves_out_zeros_ = false;
};

class Bars {
 public:
  Bars(SvgPage& page, const BarPanel& panel, double top) : page_(page), panel_(panel), top_(top) {
    double most = 0;
    for (const BarRow& row : panel.rows) most = std::max(most, length_of(row));
    axis_ = axis_over(0, most, ChartScale::linear);
    axis_.least = 0;
  }

  double draw() {
    page_.text(SvgPage::margin, top_ + 12, "head", panel_.title);
    draw_legend();
    const double first = top_ + 50, end = first + row_height() * static_cast<double>(panel_.rows.size()) + 4;
    page_.text(bars_at - 12, first - 8, "small", panel_.axis_title, "end");
    for (const double value : axis_.values()) {
      page_.line(x(value), first - 4, x(value), end, "line");
      page_.text(x(value), first - 8, "small muted", panel_.text(value), "middle");
    }
    double y = first + 4;
    for (const BarRow& row : panel_.rows) {
      draw_row(row, y);
      y += row_height();
    }
    return end;
  }

 private:
  static constexpr double bars_at = SvgPage::margin + 270, bars_width = 460;
  static constexpr std::size_t longest_name = 26;

  bool is_stacked() const { return panel_.layout == BarPanel::Layout::stacked; }
  double bar_height() const { return is_stacked() ? 13 : 8; }
  double row_height() const {
    return is_stacked() ? 21 : 9 + (bar_height() + 1) * static_cast<double>(panel_.parts.size());
  }
  double x(double value) const { return bars_at + bars_width * axis_.position(value); }

  double length_of(const BarRow& row) const {
    if (is_stacked()) return std::accumulate(row.values.begin(), row.values.end(), 0.0);
    return row.values.empty() ? 0 : *std::ranges::max_element(row.values);
  }

  void draw_legend() {
    double at = SvgPage::margin + width_of_text(panel_.title) * 1.12 + 24;
    for (const BarPart& part : panel_.parts) {
      page_.rectangle({at, top_ + 2, 11, 11}, fill_of(part.colour), 2);
      page_.text(at + 17, top_ + 12, "small", part.name);
      at += 17 + width_of_text(part.name) + 18;
    }
    page_.text(at, top_ + 12, "small muted", panel_.note);
  }

  void draw_row(const BarRow& row, double y) {
    std::string tooltip = row.name;
    for (std::size_t p = 0; p < panel_.parts.size(); ++p)
      tooltip += fmt::format("{} {} {}", p == 0 ? ":" : ",", panel_.parts[p].name, panel_.text(row.values[p]));
    page_.begin(tooltip);
    const double bars = row_height() - (is_stacked() ? 8 : 9), base = y + bars / 2 + 4;
    page_.text(SvgPage::margin, base, "", shortened(row.name, longest_name));
    page_.text(bars_at - 12, base, "small muted", shortened(row.note, 12), "end");
    double from = 0;
    for (std::size_t p = 0; p < panel_.parts.size(); ++p) {
      const double value = std::max(row.values[p], 0.0);
      if (value > 0)
        page_.rectangle({x(from), y, x(from + value) - x(from), bar_height()}, fill_of(panel_.parts[p].colour));
      if (is_stacked()) {
        from += value;
      } else {
        y += bar_height() + 1;
      }
    }
    page_.text(x(length_of(row)) + 8, base, "small", row.text);
    page_.end();
  }

  SvgPage& page_;
  const BarPanel& panel_;
  double top_;
  ChartAxis axis_;
};

}  // namespace

std::string plain_text(double value) { return fmt::format("{:.4g}", value); }

std::string time_text(double seconds) { return seconds == 0 ? "0" : duration_text(seconds); }

double draw(SvgPage& page, const LinePanel& panel, const Place& place) { return Lines(page, panel, place).draw(); }

double draw(SvgPage& page, const BarPanel& panel, double top) { return Bars(page, panel, top).draw(); }

}  // namespace aloni::tools

#pragma once
// Charts on an SvgPage: curves over a quantity, and bars beside names.
//
//   SvgPage page;
//   const LinePanel panel{.title = "Step", .x_title = "ranks", .y_title = "seconds of a step",
//                         .lines = {{"measured", {{1, 0.4}, {2, 0.21}, {4, 0.12}}}}};
//   const double end = draw(page, panel, {SvgPage::margin, 100, 984, 260});
//   write_result_file("step.svg", page.document("Step", end + SvgPage::margin));
//
// Each dot and each row of bars has a tooltip. Pure.
#include <aloni/tools/svg_page.hpp>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace aloni::tools {

/// The label of a value, with its unit.
using ValueText = std::function<std::string(double)>;

/// At most four digits, without unit: "0.25", "16".
std::string plain_text(double value);
/// "12.3 ms"; "0" without unit.
std::string time_text(double seconds);

struct ChartDot {
  double x = 0, y = 0;
  bool hollow = false;
};

enum class ChartMarks { line_and_dots, dashed_line_and_dots, line, dots };

struct ChartLine {
  std::string name;  ///< empty: the line belongs to the one before, and has no entry of its own in the legend
  std::vector<ChartDot> dots = {};  ///< by ascending x
  std::size_t colour = 0;           ///< below SvgPage::colours
  ChartMarks marks = ChartMarks::line_and_dots;
};

/// Curves. An axis is logarithmic if its values are above 0 and differ enough: those of x by a factor of 8, those of
/// y by 20. Values of y that are not finite are left out. A logarithmic axis leaves out values of 0, and says so.
struct LinePanel {
  std::string title, note = {}, x_title, y_title;  ///< note: beside the title
  ValueText x_text = plain_text, y_text = plain_text;
  std::vector<double> x_values = {};  ///< with labels, by ascending values; empty: round numbers
  std::vector<ChartLine> lines = {};
};

/// Height of the plot: that of `place`. The legend is below it. The result is the lower end of the legend.
double draw(SvgPage& page, const LinePanel& panel, const Place& place);

struct BarPart {
  std::string name;
  std::size_t colour = 0;
};

struct BarRow {
  std::string name, note = {};      ///< note: in grey behind the name
  std::vector<double> values = {};  ///< of the parts, as many as BarPanel::parts
  std::string text = {};            ///< behind the bars
};

/// Rows of bars on one axis, which begins at 0.
struct BarPanel {
  enum class Layout { stacked, beside };

  std::string title, note = {}, axis_title;
  Layout layout = Layout::stacked;
  ValueText text = time_text;
  std::vector<BarPart> parts = {};
  std::vector<BarRow> rows = {};
};

/// From `top` on, over the width of the page. The result is the lower end of the last row.
double draw(SvgPage& page, const BarPanel& panel, double top);

}  // namespace aloni::tools

#include <aloni/tools/calibration_drawing.hpp>

#include <aloni/tools/chart_panel.hpp>
#include <aloni/tools/quantity_text.hpp>

#include <algorithm>
#include <cmath>
#include <map>

namespace aloni::tools {

namespace {

constexpr const char* calibration_title = "Communication: measured and predicted times";

/// "all reduce" of "all_reduce".
std::string spaced(std::string name) {
  std::ranges::replace(name, '_', ' ');
  return name;
}

/// "64 B", "1.5 KiB", "4 MiB": no digits that are zero.
std::string size_text(double bytes) {
  constexpr double unit = 1024;
  const char* name = " B";
  for (const char* larger : {" KiB", " MiB", " GiB"}) {
    if (bytes < unit) break;
    bytes /= unit;
    name = larger;
  }
  return plain_text(bytes) + name;
}

/// Powers of two from `least` to `most`, at most eight.
std::vector<double> powers_of_two(double least, double most) {
  const int first = static_cast<int>(std::ceil(std::log2(least))), last = static_cast<int>(std::floor(std::log2(most)));
  const int step = std::max(1, (last - first + 7) / 7);
  std::vector<double> values;
  for (int power = first; power <= last; power += step) values.push_back(std::exp2(power));
  return values;
}

/// The rows by operation, in the order of the first row of each.
std::vector<std::vector<const CommunicationTimes*>> by_operation(const std::vector<CommunicationTimes>& all) {
  std::vector<std::vector<const CommunicationTimes*>> groups;
  std::map<std::string, std::size_t> places;
  for (const CommunicationTimes& row : all) {
    const auto [place, is_new] = places.try_emplace(row.operation, groups.size());
    if (is_new) groups.emplace_back();
    groups[place->second].push_back(&row);
  }
  return groups;
}

LinePanel panel_of(const std::vector<const CommunicationTimes*>& rows) {
  LinePanel panel{.title = spaced(rows.front()->operation),
                  .x_title = "size",
                  .y_title = "time",
                  .x_text = size_text,
                  .y_text = time_text};
  double least = 0, most = 0;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const CommunicationTimes& row = *rows[r];
    const std::string name = spaced(row.method) + (row.memory.empty() ? "" : ", " + row.memory);
    ChartLine measured{.name = name, .colour = r % SvgPage::colours, .marks = ChartMarks::dots};
    ChartLine predicted{.name = "", .colour = measured.colour, .marks = ChartMarks::line};
    for (const CommunicationTimes::Time& time : row.times) {
      const double bytes = static_cast<double>(time.bytes);
      if (bytes <= 0) continue;
      least = least > 0 ? std::min(least, bytes) : bytes;
      most = std::max(most, bytes);
      if (time.seconds > 0) measured.dots.push_back({bytes, time.seconds, time.left_out});
      if (time.predicted > 0) predicted.dots.push_back({bytes, time.predicted});
    }
    panel.lines.push_back(std::move(measured));
    panel.lines.push_back(std::move(predicted));
  }
  if (least > 0) panel.x_values = powers_of_two(least, most);
  return panel;
}

}  // namespace

std::string to_svg(const std::string& subtitle, const std::vector<CommunicationTimes>& all) {
  SvgPage page;
  page.text(SvgPage::margin, 40, "title", calibration_title);
  page.text(SvgPage::margin, 62, "muted", subtitle);
  if (all.empty()) {
    page.text(
        SvgPage::margin, 92, "",
        "No times: communication is measured on at least two ranks, and with --resume only if the file lacks it.");
    return page.document(calibration_title, 116);
  }
  page.text(SvgPage::margin, 84, "small muted",
            "Dots: measured; hollow ones are sizes left out of the fits. Lines: predicted by the cost model. "
            "Memory of the data: private or shared.");
  constexpr double gap = 24, width = (SvgPage::width - 2 * SvgPage::margin - gap) / 2, height = 230;
  double top = 108, end = top;
  bool is_left = true;
  for (const auto& rows : by_operation(all)) {
    if (is_left) top = end;
    const double x = SvgPage::margin + (is_left ? 0 : width + gap);
    end = std::max(end, draw(page, panel_of(rows), {x, top, width, height}) + gap);
    is_left = !is_left;
  }
  return page.document(calibration_title, end);
}

}  // namespace aloni::tools

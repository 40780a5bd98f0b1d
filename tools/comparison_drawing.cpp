#include <aloni/tools/comparison_drawing.hpp>

#include <aloni/tools/chart_panel.hpp>
#include <aloni/tools/quantity_text.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace aloni::tools {

namespace {

BarPanel comparison_panel(const char* title, const std::vector<ComparedTime>& times) {
  BarPanel panel{.title = title,
                 .axis_title = "time per step",
                 .layout = BarPanel::Layout::beside,
                 .parts = {{"predicted", 0}, {"measured", 1}}};
  for (const ComparedTime& time : times) {
    if (time.predicted <= 0 && time.measured <= 0) continue;
    std::string text = fmt::format("{}, measured {}", time_text(time.predicted), time_text(time.measured));
    if (time.measured > 0) text += fmt::format(" ({:+.1f} %)", 100 * time.error());
    panel.rows.push_back({.name = time.name, .values = {time.predicted, time.measured}, .text = std::move(text)});
  }
  return panel;
}

}  // namespace

std::string to_svg(const std::string& title, const StepComparison& c) {
  SvgPage page;
  page.text(SvgPage::margin, 40, "title", title);
  page.text(SvgPage::margin, 62, "muted",
            fmt::format("machine {} beside {} on {}, without the input ({} per step)", c.machine,
                        count_text(c.steps, "timed step"), count_text(c.ranks, "rank"), time_text(c.input)));
  page.text(SvgPage::margin, 84, "small muted",
            "Step: on the slowest rank. All other times: means over ranks, with waits for other ranks. "
            "In brackets: the error of the prediction.");
  std::vector<ComparedTime> step{c.step};
  step.insert(step.end(), c.phases.begin(), c.phases.end());
  std::vector<ComparedTime> kinds = c.kinds;
  for (ComparedTime& kind : kinds) std::ranges::replace(kind.name, '_', ' ');
  double end = 106;
  for (const auto& [heading, times] :
       {std::pair("Step and phases", &std::as_const(step)), std::pair("Kinds of work", &std::as_const(kinds)),
        std::pair("Layers", &c.layers)})
    end = draw(page, comparison_panel(heading, *times), end) + 26;
  return page.document(title, end);
}

}  // namespace aloni::tools

#pragma once
// Draws when each task ran: a row for each worker, a colour for each kernel. A pointer on a task shows its name.
#include <aloni/tasks/runtime.hpp>

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>

namespace cholesky {

inline std::string timeline_svg(const aloni::tasks::RunReport& report, const std::string& title) {
  using aloni::tasks::Kernel;
  const std::map<Kernel, const char*> colours{
      {Kernel::potrf, "#c0392b"}, {Kernel::trsm, "#e08e0b"}, {Kernel::syrk, "#2e86c1"}, {Kernel::gemm, "#27864e"}};
  constexpr double left = 80, width = 1100, top = 60, row = 34;
  const double bottom = top + row * static_cast<double>(report.workers.size());
  const double length = std::max(1.0, static_cast<double>(report.end - report.start));
  std::string svg;
  const auto add = [&](const char* format, auto... values) {
    char line[400];
    std::snprintf(line, sizeof line, format, values...);
    svg += line;
  };
  add("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %g %g\" font-family=\"sans-serif\" font-size=\"13\">\n",
      left + width + 20, bottom + 40);
  add("<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n<text x=\"10\" y=\"20\">%s</text>\n", title.c_str());
  std::map<Kernel, double> shares;
  for (const auto& t : report.times)
    shares[t.task.kernel] += static_cast<double>(t.end - t.start) / length / static_cast<double>(report.workers.size());
  double x = left, busy = 0;
  for (const auto& [kernel, share] : shares) {
    add("<rect x=\"%g\" y=\"32\" width=\"14\" height=\"14\" fill=\"%s\"/>"
        "<text x=\"%g\" y=\"44\">%s %.1f %%</text>\n",
        x, colours.at(kernel), x + 20, name(kernel), 100 * share);
    x += 130;
    busy += share;
  }
  add("<text x=\"%g\" y=\"44\">idle %.1f %%</text>\n", x, 100 * (1 - busy));
  for (std::size_t w = 0; w < report.workers.size(); ++w)
    add("<text x=\"10\" y=\"%g\">worker %zu</text>\n", top + row * (static_cast<double>(w) + 0.6), w);
  for (const auto& t : report.times)
    add("<rect x=\"%.3f\" y=\"%g\" width=\"%.3f\" height=\"%g\" fill=\"%s\"><title>%s: %.1f us</title></rect>\n",
        left + width * static_cast<double>(t.start - report.start) / length, top + row * t.worker + 3,
        width * static_cast<double>(t.end - t.start) / length, row - 6, colours.at(t.task.kernel),
        to_string(t.task).c_str(), static_cast<double>(t.end - t.start) * 1e-3);
  for (int tick = 0; tick <= 10; ++tick)
    add("<text x=\"%g\" y=\"%g\" text-anchor=\"middle\">%.4g</text>\n", left + width * tick / 10, bottom + 20,
        length * 1e-6 * tick / 10);
  add("<text x=\"10\" y=\"%g\">ms</text>\n</svg>\n", bottom + 20);
  return svg;
}

}  // namespace cholesky

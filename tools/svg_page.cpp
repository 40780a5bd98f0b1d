#include <aloni/tools/svg_page.hpp>

#include <aloni/tools/markup_text.hpp>

#include <fmt/format.h>

#include <algorithm>

namespace aloni::tools {

namespace {

// Light colours, and the dark ones that replace them. Renderers that know no media query keep the light ones.
constexpr std::string_view page_style = R"(
text { font-family: system-ui, -apple-system, "Segoe UI", "Helvetica Neue", "DejaVu Sans", sans-serif; font-size: 12px;
  fill: #1f2328; }
.title { font-size: 20px; font-weight: 600; }
.head { font-size: 13px; font-weight: 600; }
.muted { fill: #636c76; }
.small { font-size: 11px; }
.strong { font-weight: 600; }
.page { fill: #ffffff; }
.line { stroke: #d8dee4; fill: none; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; }
  .muted { fill: #9198a1; }
  .page { fill: #0d1117; }
  .line { stroke: #30363d; }
}
)";

// The colours of Okabe and Ito differ for people with any colour vision; the last two are purple and grey.
constexpr std::string_view colour_style = R"(
.c0 { fill: #2f6fb3; } .l0 { stroke: #2f6fb3; } .c1 { fill: #d55e00; } .l1 { stroke: #d55e00; }
.c2 { fill: #009e73; } .l2 { stroke: #009e73; } .c3 { fill: #cc79a7; } .l3 { stroke: #cc79a7; }
.c4 { fill: #56b4e9; } .l4 { stroke: #56b4e9; } .c5 { fill: #e69f00; } .l5 { stroke: #e69f00; }
.c6 { fill: #8250df; } .l6 { stroke: #8250df; } .c7 { fill: #8c959f; } .l7 { stroke: #8c959f; }
.l0, .l1, .l2, .l3, .l4, .l5, .l6, .l7 { fill: none; stroke-width: 1.8; stroke-linejoin: round; }
.dashed { stroke-dasharray: 6 4; }
.hollow { fill-opacity: 0; }
)";

}  // namespace

std::string shortened(const std::string& text, std::size_t most) {
  std::size_t characters = 0, end = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xc0) == 0x80) continue;  // not the first byte of a character
    if (++characters == most) end = i;
  }
  return characters <= most ? text : text.substr(0, end) + "…";
}

void SvgPage::text(double x, double y, std::string_view classes, std::string_view content, std::string_view anchor) {
  out_ += fmt::format(R"(<text x="{:.1f}" y="{:.1f}" class="{}" text-anchor="{}">{}</text>)", x, y, classes, anchor,
                      escaped(content)) +
          "\n";
}

void SvgPage::upward_text(double x, double y, std::string_view classes, std::string_view content) {
  out_ +=
      fmt::format(R"svg(<text transform="translate({:.1f} {:.1f}) rotate(-90)" class="{}" text-anchor="middle">)svg", x,
                  y, classes) +
      escaped(content) + "</text>\n";
}

double SvgPage::lines_of_text(double x, double y, std::string_view classes, std::string_view content,
                              std::size_t most) {
  constexpr double line_height = 18;
  while (content.size() > most) {
    const std::size_t space = content.rfind(' ', most);
    if (space == std::string_view::npos || space == 0) break;
    text(x, y, classes, content.substr(0, space));
    content.remove_prefix(space + 1);
    y += line_height;
  }
  text(x, y, classes, content);
  return y + line_height;
}

void SvgPage::rectangle(const Place& p, std::string_view classes, double radius) {
  const std::string round = radius > 0 ? fmt::format(R"( rx="{:.1f}")", radius) : "";
  out_ += fmt::format(R"(<rect x="{:.2f}" y="{:.2f}" width="{:.2f}" height="{:.2f}" class="{}"{}/>)", p.x, p.y, p.width,
                      p.height, classes, round) +
          "\n";
}

void SvgPage::line(double x1, double y1, double x2, double y2, std::string_view classes) {
  path(fmt::format("M{:.2f} {:.2f}L{:.2f} {:.2f}", x1, y1, x2, y2), classes);
}

void SvgPage::path(std::string_view d, std::string_view classes) {
  out_ += fmt::format(R"(<path d="{}" class="{}"/>)", d, classes) + "\n";
}

void SvgPage::circle(double x, double y, double r, std::string_view classes) {
  out_ += fmt::format(R"(<circle cx="{:.2f}" cy="{:.2f}" r="{:.1f}" class="{}"/>)", x, y, r, classes) + "\n";
}

void SvgPage::begin(std::string_view tooltip) { out_ += "<g><title>" + escaped(tooltip) + "</title>\n"; }

void SvgPage::end() { out_ += "</g>\n"; }

std::string SvgPage::document(std::string_view title, double height, std::string_view style) const {
  return fmt::format(R"(<?xml version="1.0" encoding="UTF-8"?>
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {0:.0f} {1:.0f}" width="{0:.0f}" height="{1:.0f}" role="img">
<title>{2}</title>
<style>{3}{4}{5}</style>
<rect width="{0:.0f}" height="{1:.0f}" class="page"/>
{6}</svg>
)",
                     width, height, escaped(title), page_style, colour_style, style, out_);
}

}  // namespace aloni::tools

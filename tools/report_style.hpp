#pragma once
// The style and the script of the report page (tools/report_page.hpp).
#include <string_view>

namespace aloni::tools {

inline constexpr std::string_view report_style = R"(
:root { color-scheme: light dark; --page: #ffffff; --panel: #f6f8fa; --ink: #1f2328; --muted: #636c76; --line: #d8dee4;
  --blue: #2f6fb3; --orange: #d9731f; --purple: #8250df; --grey: #8c959f; --good: #1a7f37; --bad: #cf222e; }
@media (prefers-color-scheme: dark) { :root { --page: #0d1117; --panel: #161b22; --ink: #e6edf3; --muted: #9198a1;
  --line: #30363d; --blue: #4493f8; --orange: #f0883e; --purple: #a371f7; --grey: #6e7681; --good: #3fb950;
  --bad: #ff7b72; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 15px/1.5 system-ui, -apple-system, "Segoe UI",
  "Helvetica Neue", "DejaVu Sans", sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 28px 24px 60px; }
h1 { font-size: 24px; margin: 0; }
h2 { font-size: 17px; margin: 36px 0 10px; }
p { margin: 4px 0; color: var(--muted); }
.tiles { display: grid; grid-template-columns: repeat(auto-fill, minmax(150px, 1fr)); gap: 12px; margin-top: 20px; }
.tile { background: var(--panel); border: 1px solid var(--line); border-radius: 8px; padding: 10px 14px; }
.tile span { display: block; color: var(--muted); font-size: 13px; }
.tile b { font-size: 18px; font-weight: 600; overflow-wrap: anywhere; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(420px, 1fr)); gap: 16px; }
figure { margin: 0; background: var(--panel); border: 1px solid var(--line); border-radius: 8px; padding: 12px 14px; }
figcaption { font-size: 13px; color: var(--muted); margin-bottom: 4px; }
figure svg { display: block; width: 100%; height: auto; }
svg text { font-size: 12px; fill: var(--muted); }
.axis { stroke: var(--line); fill: none; }
.curve { stroke: var(--blue); stroke-width: 1.8; fill: none; stroke-linejoin: round; }
.band { fill: var(--blue); fill-opacity: 0.18; }
.dot { fill: var(--blue); }
.pointer { stroke: var(--muted); stroke-dasharray: 3 3; visibility: hidden; }
.bar { display: flex; height: 26px; border-radius: 6px; overflow: hidden; gap: 2px; background: var(--panel); }
.key { display: flex; flex-wrap: wrap; gap: 6px 22px; margin: 8px 0 0; padding: 0; list-style: none; font-size: 14px; }
.key i { display: inline-block; width: 11px; height: 11px; border-radius: 3px; margin-right: 7px; }
.c0 { background: var(--blue); } .c1 { background: var(--orange); } .c2 { background: var(--purple); }
.c3 { background: var(--grey); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 14px; width: 100%; }
th { text-align: left; color: var(--muted); font-weight: 500; border-bottom: 1px solid var(--line); }
th, td { padding: 4px 14px 4px 0; white-space: nowrap; }
td.name { color: var(--muted); width: 200px; }
td.text { white-space: normal; overflow-wrap: anywhere; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
tbody tr:nth-child(even) { background: var(--panel); }
.samples { display: grid; grid-template-columns: repeat(auto-fill, minmax(112px, 1fr)); gap: 14px; }
.samples.wide { grid-template-columns: repeat(auto-fill, minmax(400px, 1fr)); }
.sample { text-align: center; font-size: 13px; color: var(--muted); }
.pictures { display: flex; gap: 6px; }
.pictures div { flex: 1; }
.pictures img { display: block; width: 100%; image-rendering: pixelated; border: 1px solid var(--line);
  border-radius: 6px; }
.right img { border: 3px solid var(--good); }
.wrong img { border: 3px dashed var(--bad); }
img.plan { width: 100%; border: 1px solid var(--line); border-radius: 8px; }
)";

/// Shows the values of the point of a curve that is nearest to the pointer.
inline constexpr std::string_view report_script = R"(
for (const svg of document.querySelectorAll("svg[data-points]")) {
  const points = JSON.parse(svg.dataset.points);
  const line = svg.querySelector(".pointer"), label = svg.querySelector(".value");
  svg.addEventListener("pointermove", event => {
    const x = (event.clientX - svg.getBoundingClientRect().left) * svg.viewBox.baseVal.width / svg.clientWidth;
    let best = points[0];
    for (const p of points) if (Math.abs(p[0] - x) < Math.abs(best[0] - x)) best = p;
    line.setAttribute("x1", best[0]); line.setAttribute("x2", best[0]);
    line.style.visibility = "visible"; label.textContent = best[1];
  });
  svg.addEventListener("pointerleave", () => { line.style.visibility = "hidden"; label.textContent = ""; });
}
)";

}  // namespace aloni::tools

#include <aloni/tools/report_page.hpp>

#include <aloni/core/version.hpp>
#include <aloni/tools/markup_text.hpp>
#include <aloni/tools/png.hpp>
#include <aloni/tools/quantity_text.hpp>
#include <aloni/tools/report_chart.hpp>
#include <aloni/tools/report_style.hpp>

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace aloni::tools {

namespace {

using Json = nlohmann::ordered_json;

std::string section(std::string_view heading, const std::string& content) {
  return fmt::format("<h2>{}</h2>\n{}\n", escaped(heading), content);
}

std::string tiles_of(const ReportPage& page) {
  std::string html = "<div class=\"tiles\">\n";
  for (const auto& [name, value] : page.tiles)
    html += fmt::format("<div class=\"tile\"><span>{}</span><b>{}</b></div>\n", escaped(name), escaped(value));
  return html + "</div>\n";
}

std::string charts_of(const ReportPage& page) {
  std::string html = "<div class=\"charts\">\n" + chart({"Loss of each step", ChartScale::logarithmic}, page.losses);
  if (!page.epochs.empty()) {
    for (std::size_t m = 0; m < page.epochs.front().metrics.size(); ++m) {
      std::vector<ChartPoint> points;
      for (const auto& epoch : page.epochs)
        if (m < epoch.metrics.size()) points.push_back({static_cast<double>(epoch.last_step), epoch.metrics[m].second});
      html += chart({page.epochs.front().metrics[m].first + " after each epoch", ChartScale::linear}, points);
    }
  }
  const auto [least, most] = std::ranges::minmax_element(page.rates);
  if (!page.rates.empty() && *least != *most) html += chart({"Learning rate", ChartScale::linear}, page.rates);
  return html + "</div>\n";
}

/// A bar with one part for each name, and its key. `text_of`: of a value.
template <class TextOf>
std::string bar(const ReportPage::Numbers& parts, const TextOf& text_of) {
  double sum = 0;
  for (const auto& [name, value] : parts) sum += value;
  std::string html = "<div class=\"bar\">", key = "<ul class=\"key\">\n";
  int colour = 0;
  for (const auto& [name, value] : parts) {
    const double percent = sum > 0 ? 100 * value / sum : 0;
    html +=
        fmt::format("<div class=\"c{}\" style=\"width:{:.2f}%\" title=\"{}\"></div>", colour, percent, escaped(name));
    key +=
        fmt::format("<li><i class=\"c{}\"></i>{} {} ({:.1f} %)</li>\n", colour, escaped(name), text_of(value), percent);
    colour = (colour + 1) % 4;
  }
  return html + "</div>\n" + key + "</ul>\n";
}

std::string memory_of(const ReportPage& page) {
  const double most = std::max({page.measured_bytes, page.predicted_bytes, 1.0});
  std::string html;
  int colour = 0;
  for (const auto& [name, bytes] : {std::pair("measured", page.measured_bytes), {"predicted", page.predicted_bytes}}) {
    html += fmt::format("<p>{} {}</p><div class=\"bar\"><div class=\"c{}\" style=\"width:{:.2f}%\"></div></div>\n",
                        name, bytes_text(static_cast<Index>(bytes)), colour, 100 * bytes / most);
    colour = 3;
  }
  return html;
}

std::string plan_of(const ReportPage& page) {
  std::string html =
      "<div class=\"scroll\"><table><thead><tr><th>layer</th><th>operation</th><th>grid</th><th>input of a rank</th>"
      "<th class=\"number\">flops</th><th class=\"number\">halo</th><th class=\"number\">messages</th>"
      "<th class=\"number\">memory</th></tr></thead><tbody>\n";
  for (const LayerSummary& layer : page.layers) {
    html += fmt::format(
        "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td>"
        "<td class=\"number\">{}</td><td class=\"number\">{}</td></tr>\n",
        escaped(layer.name), escaped(layer.operation), escaped(layer.grid),
        escaped(extents_text(layer.ghosted, page.spatial_rank)), number_text(layer.flops), bytes_text(layer.halo_bytes),
        layer.messages, bytes_text(layer.memory_bytes));
  }
  html += "</tbody></table></div>\n";
  if (!page.plan_picture.empty()) {
    html +=
        "<p>The same plan as a picture:</p>\n<img class=\"plan\" alt=\"plan of a step\" "
        "src=\"data:image/svg+xml;base64," +
        base64(page.plan_picture) + "\">\n";
  }
  return html;
}

std::string samples_of(const ReportPage& page) {
  const bool wide = page.samples.front().pictures.size() > 1;
  std::string html = fmt::format("<div class=\"samples{}\">\n", wide ? " wide" : "");
  for (const auto& sample : page.samples) {
    html += fmt::format("<div class=\"sample{}\"><div class=\"pictures\">", !sample.right   ? ""
                                                                            : *sample.right ? " right"
                                                                                            : " wrong");
    for (const auto& picture : sample.pictures) {
      const std::string name = wide ? escaped(picture.name) : "";
      html += fmt::format("<div><img alt=\"{}\" src=\"data:image/png;base64,{}\">{}</div>", escaped(picture.name),
                          base64(to_png(picture.width, picture.height, picture.pixels)), name);
    }
    html += fmt::format("</div>{}</div>\n", escaped(sample.caption));
  }
  return html + "</div>\n";
}

std::string table_of(const ReportPage::Texts& texts) {
  std::string html = "<table><tbody>\n";
  for (const auto& [name, value] : texts)
    html +=
        fmt::format("<tr><td class=\"name\">{}</td><td class=\"text\">{}</td></tr>\n", escaped(name), escaped(value));
  return html + "</tbody></table>\n";
}

template <class Entries>
Json object_of(const Entries& entries) {
  Json json = Json::object();
  for (const auto& [name, value] : entries) json[name] = value;
  return json;
}

/// Steps count from 1.
Json steps_of(const std::vector<double>& values) {
  Json json = Json::array();
  for (const std::size_t i : chosen_steps(values.size())) json.push_back({i + 1, values[i]});
  return json;
}

/// "<" is escaped: "</script>" in a text would end the element.
std::string data_of(const ReportPage& page) {
  Json json{{"version", version()}, {"losses", steps_of(page.losses)}, {"learning_rates", steps_of(page.rates)}};
  json["epochs"] = Json::array();
  for (const auto& epoch : page.epochs)
    json["epochs"].push_back({{"loss", epoch.loss}, {"metrics", object_of(epoch.metrics)}});
  json["tiles"] = object_of(page.tiles);
  json["seconds"] = object_of(page.seconds);
  json["memory"] = {{"measured", page.measured_bytes}, {"predicted", page.predicted_bytes}};
  json["configuration"] = object_of(page.configuration);
  std::string text;
  for (const char c : json.dump(-1, ' ', false, Json::error_handler_t::replace))
    text += c == '<' ? "\\u003c" : std::string(1, c);
  return text;
}

}  // namespace

std::string to_html(const ReportPage& page) {
  std::string body = fmt::format("<h1>{}</h1>\n<p>{}</p>\n", escaped(page.title), escaped(page.subtitle));
  body += tiles_of(page) + section("Training", charts_of(page));
  body += section("Time of the training steps on rank 0",
                  bar(page.seconds, [](double s) { return fmt::format("{:.2f} s", s); }));
  body += section("Memory of the largest rank", memory_of(page));
  if (!page.samples.empty()) body += section("Test samples and their predictions", samples_of(page));
  body += section("Plan of a step: each number is that of the rank with the largest one", plan_of(page));
  body += section("Configuration", table_of(page.configuration));
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{}</title>\n"
      "<style>{}</style>\n</head>\n<body>\n<main>\n{}</main>\n"
      "<script type=\"application/json\" id=\"aloni-data\">{}</script>\n<script>{}</script>\n</body>\n</html>\n",
      escaped(page.title), report_style, body, data_of(page), report_script);
}

}  // namespace aloni::tools

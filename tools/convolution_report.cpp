#include <aloni/tools/convolution_report.hpp>

#include <fmt/format.h>

#include <algorithm>

namespace aloni::tools {

using nn::local::ChoiceSource;

ConvolutionReport report_of(const std::vector<nn::ExplainedChoice>& choices, const std::string& machine) {
  const auto count = [&](ChoiceSource source) {
    return std::ranges::count(choices, source, &nn::ExplainedChoice::source);
  };
  ConvolutionReport report;
  std::string text;
  const auto add = [&](ChoiceSource source, const char* what) {
    if (const auto n = count(source); n > 0) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", n, what);
  };
  add(ChoiceSource::given, "with the given implementation");
  add(ChoiceSource::measured, "by measured times");
  add(ChoiceSource::near, "by those of near problems");
  add(ChoiceSource::rule, "by rules on shapes");
  report.summary = "convolutions " + (text.empty() ? "none" : text) + (machine.empty() ? "" : ", machine " + machine);
  for (const nn::ExplainedChoice& c : choices)
    report.table += fmt::format("{}: {}, {}\n    {}\n", c.layer, c.implementation, c.reason, c.convolution);
  return report;
}

}  // namespace aloni::tools

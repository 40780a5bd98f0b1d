#include <aloni/core/measured_implementations.hpp>

#include <array>
#include <charconv>

namespace aloni {

namespace {

/// The shortest text that is read as the same bits.
std::string exact_text(double value) {
  std::array<char, 32> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  return {digits.data(), end};
}

}  // namespace

std::string MeasuredImplementations::text() const {
  if (empty()) return {};
  std::string text = "workspace " + std::to_string(most_workspace_bytes()) + '\n';
  for (const auto& [problem, implementations] : times()) {
    for (const Index number : problem) text += std::to_string(number) + ' ';
    for (const ImplementationTime& t : implementations)
      text += '|' + t.implementation + ' ' + exact_text(t.seconds) + ' ' + exact_text(t.spread) + ' ' +
              std::to_string(t.runs) + ' ' + std::to_string(t.workspace_bytes);
    text += '\n';
  }
  return text;
}

}  // namespace aloni

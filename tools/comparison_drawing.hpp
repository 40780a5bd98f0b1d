#pragma once
// The predicted training step beside the measured one, as SVG: bars of the step, its phases, kinds of work and layers.
//
//   write_result_file("comparison.svg", to_svg("lenet5 on 2 ranks", comparison));
#include <aloni/tools/step_comparison.hpp>

#include <string>

namespace aloni::tools {

/// A complete SVG document (svg_page.hpp). All rows that take time, in the order of the comparison. Pure.
std::string to_svg(const std::string& title, const StepComparison& comparison);

}  // namespace aloni::tools

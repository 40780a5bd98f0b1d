#pragma once
// Pictures of simulated steps, as SVG. A sweep is drawn as curves over the swept quantity. A single step is drawn as
// bars of its phases and layers.
//
//   write_result_file("step.svg", to_svg(request, results));
#include <aloni/tools/simulation.hpp>

#include <string>
#include <vector>

namespace aloni::tools {

/// Combinations of the other quantities of a sweep that are drawn: one curve for each.
inline constexpr std::size_t most_drawn_combinations = 8;

/// A complete SVG document (svg_page.hpp). The horizontal axis of a sweep is the quantity with most values. One
/// combination of the others: curves of the step, of its kernels and of its exposed communication, and with a variation
/// the mean and the 95th percentile. Several: the step and the exposed communication of each. Hollow dots mark steps
/// that need more memory than a rank has.
/// @pre `results` are those of request.cases. Pure.
std::string to_svg(const SimulationRequest& request, const std::vector<SimulatedCase>& results);

}  // namespace aloni::tools

#pragma once
// Measured times of messages and collectives beside those of the cost model, as SVG: one chart for each operation.
//
//   write_result_file("times.svg", to_svg("2 ranks on 1 node of my machine", times));
#include <aloni/tools/collective_measurement.hpp>

#include <string>
#include <vector>

namespace aloni::tools {

/// A complete SVG document (svg_page.hpp). Both axes are logarithmic. Each method and memory has a colour: dots are
/// measured times, the line is the cost model. Hollow dots are sizes that were left out of the fits.
/// Without times the document says how to measure them. Times that are not positive are left out. Pure.
std::string to_svg(const std::string& subtitle, const std::vector<CommunicationTimes>& all);

}  // namespace aloni::tools

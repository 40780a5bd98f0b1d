#pragma once
// The implementations of the convolutions of a plan, for people.
//
//   const ConvolutionReport report = report_of(explain_convolutions(network, plan, machine), "my machine");
//   print(report.summary);                 // "convolutions 23: 20 by measured times, 2 by those of near problems, …"
#include <aloni/nn/plan/convolution_cases.hpp>

#include <string>
#include <vector>

namespace aloni::tools {

struct ConvolutionReport {
  std::string summary = {};  ///< one line, without its end
  /// For each convolution its layer, its implementation and the reason, then its problem.
  std::string table = {};
};

/// `machine`: name of the machine whose times counted; empty: there is none.
ConvolutionReport report_of(const std::vector<nn::ExplainedChoice>& choices, const std::string& machine);

}  // namespace aloni::tools

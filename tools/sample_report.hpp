#pragma once
// The pictures and captions of test samples, for the report of a run.
#include <aloni/nn/network_description.hpp>
#include <aloni/nn/sample_pictures.hpp>
#include <aloni/tools/report_page.hpp>

#include <vector>

namespace aloni::tools {

/// Of labels of samples: the input, and whether the predicted label is right. Of other losses: input, truth and
/// prediction. Pure.
std::vector<ReportPage::Sample> samples_of(const std::vector<nn::SampleResult>& results, nn::Loss loss);

}  // namespace aloni::tools

#include <aloni/nn/local/detail/padded_problem.hpp>

#include <algorithm>

namespace aloni::nn::local::detail {

PaddedProblem padded_problem(const ConvolutionProblem& p) {
  PaddedProblem q{.samples = p.samples,
                  .channels = p.channels,
                  .filters = p.filters,
                  .groups = p.groups,
                  .output = p.output,
                  .kernel = p.kernel,
                  .stride = p.stride,
                  .dilation = p.dilation};
  for (int s = 0; s < 3; ++s) {
    const Index end = (p.output[s] - 1) * p.stride[s] + (p.kernel[s] - 1) * p.dilation[s] + p.offset[s] + 1;
    const Index hi = std::min(p.input[s], end);
    q.first[s] = std::max<Index>(0, p.offset[s]);
    q.input[s] = std::max<Index>(0, hi - q.first[s]);
    q.padding_before[s] = std::max<Index>(0, -p.offset[s]);
    q.padding_after[s] = std::max<Index>(0, end - hi);
  }
  return q;
}

}  // namespace aloni::nn::local::detail

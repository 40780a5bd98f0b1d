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

bool PaddedProblem::has_empty_windows() const {
  for (std::size_t s = 0; s < 3; ++s)
    for (Index o = 0; o < output[s]; ++o) {
      bool reads = false;
      for (Index k = 0; k < kernel[s] && !reads; ++k) {
        const Index at = o * stride[s] + k * dilation[s] - padding_before[s];
        reads = at >= 0 && at < input[s];
      }
      if (!reads) return true;
    }
  return false;
}

}  // namespace aloni::nn::local::detail

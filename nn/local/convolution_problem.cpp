#include <aloni/nn/local/convolution_problem.hpp>

#include <aloni/core/error.hpp>
#include <aloni/nn/local/detail/triple.hpp>

#include <algorithm>

namespace aloni::nn::local {

using detail::triple;

namespace {

constexpr std::array<std::string_view, 6> backend_names{"automatic", "reference",      "direct",
                                                        "onednn",    "kokkos_kernels", "cudnn"};

}  // namespace

std::string_view name(ConvolutionBackend backend) { return backend_names[static_cast<int>(backend)]; }

std::string_view name(ConvolutionPass pass) {
  constexpr std::array<std::string_view, 3> names{"forward", "backward_data", "backward_filter"};
  return names[static_cast<int>(pass)];
}

std::optional<ConvolutionBackend> convolution_backend_named(std::string_view name) {
  const auto found = std::find(backend_names.begin(), backend_names.end(), name);
  if (found == backend_names.end()) return std::nullopt;
  return static_cast<ConvolutionBackend>(found - backend_names.begin());
}

double flops(const ConvolutionProblem& p) {
  double product = 2.0 * static_cast<double>(p.samples) * static_cast<double>(p.channels_per_group()) *
                   static_cast<double>(p.filters);
  for (int s = 0; s < 3; ++s) product *= static_cast<double>(p.output[s]) * static_cast<double>(p.kernel[s]);
  return product;
}

Index scratch_bytes(const ConvolutionProblem& p, const ConvolutionPasses& passes, int activation_bytes,
                    int filter_bytes) {
  Index input = p.samples * p.channels, output = p.samples * p.filters, filters = p.channels_per_group() * p.filters;
  bool contiguous = true, one_before = p.samples == 1;
  for (int s = 0; s < 3; ++s) {
    const Index end = (p.output[s] - 1) * p.stride[s] + (p.kernel[s] - 1) * p.dilation[s] + p.offset[s] + 1;
    const Index read = std::max<Index>(0, std::min(p.input[s], end) - std::max<Index>(0, p.offset[s]));
    contiguous = contiguous && (read == p.input[s] || one_before);
    one_before = one_before && read == 1;
    input *= read;
    output *= p.output[s];
    filters *= p.kernel[s];
  }
  return (passes.dense_input && contiguous ? 0 : input * activation_bytes) +
         (passes.dense_output ? 0 : output * activation_bytes) + (passes.backward_filter ? filters * filter_bytes : 0);
}

Index bytes_as_floats(const ConvolutionProblem& p) {
  const Index input = p.samples * p.channels * p.input[0] * p.input[1] * p.input[2];
  const Index output = p.samples * p.filters * p.output[0] * p.output[1] * p.output[2];
  return (input + output) * static_cast<Index>(sizeof(float));
}

std::string to_string(const ConvolutionProblem& p) {
  return std::to_string(p.samples) + "x" + triple(p.input) + "x" + std::to_string(p.channels) + " -> " +
         triple(p.output) + "x" + std::to_string(p.filters) +
         (p.groups == 1 ? "" : ", groups " + std::to_string(p.groups)) + ", kernel " + triple(p.kernel) + ", stride " +
         triple(p.stride) + ", dilation " + triple(p.dilation) + ", offset " + triple(p.offset);
}

void validate(const ConvolutionProblem& p) {
  auto check = [](bool fine, const char* argument, Index value, const char* expectation) {
    if (!fine)
      throw InvalidArgument("aloni::nn::local::ConvolutionProblem", argument, std::to_string(value), expectation);
  };
  check(p.samples >= 0, "samples", p.samples, "0 or more");
  check(p.channels >= 0, "channels", p.channels, "0 or more");
  check(p.filters >= 0, "filters", p.filters, "0 or more");
  check(p.groups >= 1, "groups", p.groups, "1 or more");
  check(p.channels % p.groups == 0, "groups", p.groups, "a divisor of channels");
  check(p.filters % p.groups == 0, "groups", p.groups, "a divisor of filters");
  for (int s = 0; s < 3; ++s) {
    check(p.input[s] >= 0, "input", p.input[s], "0 or more");
    check(p.output[s] >= 0, "output", p.output[s], "0 or more");
    check(p.kernel[s] >= 1, "kernel", p.kernel[s], "1 or more");
    check(p.stride[s] >= 1, "stride", p.stride[s], "1 or more");
    check(p.dilation[s] >= 1, "dilation", p.dilation[s], "1 or more");
  }
}

}  // namespace aloni::nn::local

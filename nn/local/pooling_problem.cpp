#include <aloni/nn/local/pooling_problem.hpp>

#include <aloni/core/error.hpp>
#include <aloni/nn/local/detail/triple.hpp>

#include <cstdint>
#include <limits>

namespace aloni::nn::local {

using detail::triple;

std::string to_string(const PoolingProblem& p) {
  return std::to_string(p.samples) + "x" + triple(p.input) + "x" + std::to_string(p.channels) + " -> " +
         triple(p.output) + ", window " + triple(p.window) + ", stride " + triple(p.stride) + ", offset " +
         triple(p.offset);
}

void validate(const PoolingProblem& p) {
  auto check = [](bool fine, const char* argument, Index value, const char* expectation) {
    if (!fine) throw InvalidArgument("aloni::nn::local::PoolingProblem", argument, std::to_string(value), expectation);
  };
  check(p.samples >= 0, "samples", p.samples, "0 or more");
  check(p.channels >= 0, "channels", p.channels, "0 or more");
  Index elements = 1;
  for (int s = 0; s < 3; ++s) {
    check(p.input[s] >= 0, "input", p.input[s], "0 or more");
    check(p.output[s] >= 0, "output", p.output[s], "0 or more");
    check(p.window[s] >= 1, "window", p.window[s], "1 or more");
    check(p.stride[s] >= 1, "stride", p.stride[s], "1 or more");
    check(p.window[s] <= std::numeric_limits<std::int32_t>::max() / elements, "window", p.window[s],
          "at most 2^31 - 1 elements in one window");
    elements *= p.window[s];
  }
}

}  // namespace aloni::nn::local

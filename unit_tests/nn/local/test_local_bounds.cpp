// No kernel reads or writes beside the tensors that it is given. The vector kernels reach over the ends of pixels on purpose, and
// sanitizers don't look into them: guard pages do.
#include <aloni/nn/local/convolution.hpp>
#include <aloni/nn/local/pooling.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

#include "guarded_memory.hpp"
#include "local_tensor.hpp"
#include "support/random_cases.hpp"

namespace aloni::test {
namespace test_local_bounds {

using namespace nn::local;
using Exec = Kokkos::DefaultExecutionSpace;

template <class T>
struct GuardedTensor {
  GuardedMemory<T> memory;
  Tensor<T, Exec> view;
  GuardedTensor(std::array<Index, 5> e, typename GuardedMemory<T>::Against against)
      : memory(e[0] * e[1] * e[2] * e[3] * e[4], against),
        view(dense_tensor<T, Exec>(memory.data(), e[0], e[1], e[2], e[3], e[4])) {}
};

template <class T>
void run_guarded(std::mt19937& random, typename GuardedMemory<T>::Against against) {
  const Exec exec = test_space();
  auto pick = [&](Index lo, Index hi) { return std::uniform_int_distribution<Index>(lo, hi)(random); };
  const Index kernel = pick(1, 5), stride = pick(1, 2), padding = pick(0, kernel / 2), size = pick(kernel, 12);
  const Index output = (size + 2 * padding - kernel) / stride + 1, groups = pick(0, 1) == 0 ? 1 : pick(1, 20);
  const Index channels = groups * pick(1, std::max<Index>(1, 20 / groups)),
              filters = groups * pick(1, std::max<Index>(1, 20 / groups));
  const ConvolutionProblem p{.samples = 2,
                             .channels = channels,
                             .filters = filters,
                             .groups = groups,
                             .input = {1, size, size},
                             .output = {1, output, output},
                             .kernel = {1, kernel, kernel},
                             .stride = {1, stride, stride},
                             .offset = {0, -padding, -padding}};
  SCOPED_TRACE(to_string(p));
  GuardedTensor<T> x({2, 1, size, size, channels}, against), y({2, 1, output, output, filters}, against),
      w({filters, 1, kernel, kernel, channels / groups}, against);
  GuardedMemory<T> bias_memory(filters, against);
  const Array<T, Exec> bias(bias_memory.data(), filters);
  const PoolingProblem q{.samples = 2,
                         .channels = channels,
                         .input = p.input,
                         .output = p.output,
                         .window = p.kernel,
                         .stride = p.stride,
                         .offset = p.offset};
  GuardedTensor<T> pooled({2, 1, output, output, channels}, against);
  GuardedTensor<std::int32_t> argmax({2, 1, output, output, channels},
                                     static_cast<GuardedMemory<std::int32_t>::Against>(against));
  for (auto backend : {ConvolutionBackend::direct, ConvolutionBackend::onednn, ConvolutionBackend::kokkos_kernels}) {
    if (unsupported_reason<T>(backend, p, ConvolutionPass::forward)) continue;
    SCOPED_TRACE(name(backend));
    const auto c =
        make_local_convolution<T>(backend, p, exec, {.forward = true, .backward_data = true, .backward_filter = true});
    c->forward(exec, x.view, w.view, bias, y.view);
    c->backward_data(exec, y.view, w.view, x.view);
    c->backward_filter(exec, x.view, y.view, w.view, bias);
  }
  max_pool_forward<T>(exec, q, x.view, pooled.view, argmax.view);
  max_pool_backward<T>(exec, q, pooled.view, argmax.view, x.view);
  average_pool_forward<T>(exec, q, AverageDivisor::in_domain, x.view, pooled.view);
  wait(exec);
}

TEST(LocalBounds, NothingBesideTheTensorsIsTouched) {
  if (!Kokkos::SpaceAccessibility<Exec, Kokkos::HostSpace>::accessible)
    GTEST_SKIP() << "guard pages are in host memory";
  const unsigned seed = test_seed();
  for (int i = 0; i < aloni::test::random_cases(150); ++i) {
    std::mt19937 random(seed + i);
    SCOPED_TRACE("seed " + std::to_string(seed + i));
    run_guarded<float>(random, i % 3 == 0 ? GuardedMemory<float>::Against::begin : GuardedMemory<float>::Against::end);
    run_guarded<double>(random,
                        i % 3 == 0 ? GuardedMemory<double>::Against::begin : GuardedMemory<double>::Against::end);
  }
}

}  // namespace test_local_bounds
}  // namespace aloni::test

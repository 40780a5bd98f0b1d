// Kernels of two streams may run at the same time, so they share neither objects, nor scratch memory, nor filters.
#include <aloni/core/config.hpp>
#include <aloni/nn/local/local_types.hpp>
#include <aloni/nn/run/convolution_kernels.hpp>
#include <aloni/nn/stream_plan.hpp>

#include <gtest/gtest.h>
#include <Kokkos_Core.hpp>

#include <cstddef>
#include <memory>

namespace aloni::nn {
namespace test_convolution_kernels {

using Exec = Kokkos::DefaultHostExecutionSpace;
using Kernels = detail::ConvolutionKernels<float, Exec>;
using local::ConvolutionPass;

/// A layer whose filters oneDNN wants in another order.
constexpr Index channels = 16;
ConvolutionCall call() {
  return {.problem = {.samples = 1,
                      .channels = channels,
                      .filters = channels,
                      .input = {1, 8, 8},
                      .output = {1, 8, 8},
                      .kernel = {1, 3, 3},
                      .offset = {0, -1, -1}},
          .backend = config::has_onednn ? local::ConvolutionBackend::onednn : local::ConvolutionBackend::reference};
}

struct Memory {
  using Flat = Kokkos::View<float*, Kokkos::HostSpace>;
  Flat x{"aloni::test::x", 8 * 8 * channels}, y{"aloni::test::y", 8 * 8 * channels};
  Flat w{"aloni::test::w", channels* channels * 9};
  static Kernels::View tensor(const Flat& memory) {
    return local::dense_tensor<float, Exec>(memory.data(), 1, 1, 8, 8, channels);
  }
};

TEST(ConvolutionKernels, AreSharedOnOneStreamOnly) {
  const Memory memory;
  Kernels kernels(Exec(), {std::make_shared<local::Scratch>(), nullptr, std::make_shared<local::Scratch>()});
  const auto on = [&](int stream, bool relu) {
    return kernels.of(call(), ConvolutionPass::forward, Memory::tensor(memory.x), Memory::tensor(memory.y),
                      memory.w.data(), stream, relu);
  };
  EXPECT_EQ(on(compute_stream, false), on(compute_stream, false));
  EXPECT_EQ(on(border_stream, false), on(border_stream, false));
  EXPECT_NE(on(compute_stream, false), on(border_stream, false));
}

TEST(ConvolutionKernels, HaveTheirOwnFiltersAndScratchMemoryOnEachStream) {
  if constexpr (!config::has_onednn) GTEST_SKIP() << "only oneDNN reorders filters, and this build has no oneDNN";
  const Memory memory;
  const auto first = std::make_shared<local::Scratch>(), second = std::make_shared<local::Scratch>();
  Kernels kernels(Exec(), {first, nullptr, second});
  const auto make = [&](int stream) {
    return kernels.of(call(), ConvolutionPass::backward_data, Memory::tensor(memory.x), Memory::tensor(memory.y),
                      memory.w.data(), stream);
  };
  const auto kernel = make(compute_stream);
  const std::size_t bytes_of_one = kernels.bytes(), scratch = first->bytes();
  EXPECT_GT(bytes_of_one, 0u);
  EXPECT_EQ(second->bytes(), 0u);
  const auto other = make(border_stream);
  EXPECT_EQ(kernels.bytes(), 2 * bytes_of_one);  // filters in oneDNN's order, twice
  EXPECT_EQ(first->bytes(), scratch);
  EXPECT_EQ(second->bytes(), scratch);
}

}  // namespace test_convolution_kernels
}  // namespace aloni::nn

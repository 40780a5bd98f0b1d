#include <aloni/core/error.hpp>
#include <aloni/core/host_random.hpp>
#include <aloni/tools/learn_kernels.hpp>
#include <support/transport.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

namespace aloni::tools {
namespace test_learn_kernels {

/// Products of matrices whose time is that of a roofline with a start-up time, which is no power law.
std::vector<KernelTime> products(int count) {
  std::vector<KernelTime> times;
  for (int i = 0; i < count; ++i) {
    const auto draw = [&](std::uint64_t stream) {
      return std::round(std::pow(1000.0, random::host_uniform(3, stream, static_cast<std::uint64_t>(i)))) + 7;
    };
    const double m = draw(0), k = draw(1), n = draw(2), flops = 2 * m * k * n, bytes = 4 * (m * k + k * n + m * n);
    KernelTime time{.call = {.kind = model::KernelKind::dense, .flops = flops, .bytes = bytes}};
    time.call.features = {0, m, k, n, flops, bytes};
    time.seconds = 2e-6 + std::max(flops / 100e9, bytes / 10e9);
    times.push_back(time);
  }
  return times;
}

TEST(LearnKernels, FindsTheTimesOfProblemsThatWereLeftOut) {
  const std::vector<KernelTime> times = products(400);
  const model::LearnedKernel learned =
      learn_kernel(aloni::test::make_communicator(), times, {.networks = 2, .most_epochs = 400});
  ASSERT_EQ(learned.networks.size(), 2u);
  EXPECT_EQ(learned.networks.back().layers.size(), 6u);
  EXPECT_EQ(learned.networks.back().layers.front().inputs, 6);
  EXPECT_NE(learned.networks.front(), learned.networks.back());
  EXPECT_GT(learned.relative_error, 0);
  EXPECT_LT(learned.relative_error, 0.12);
  // The reported error is that of predict(), by the definition of the paper.
  double error = 0;
  for (const KernelTime& time : times) error += std::abs(predict(learned, time.call) / time.seconds - 1);
  EXPECT_LT(error / static_cast<double>(times.size()), 0.1);
  EXPECT_TRUE(covers(learned, times.back().call));
}

TEST(LearnKernels, RefusesTimesThatTeachNothing) {
  const auto refusal = [](std::vector<KernelTime> times) -> std::string {
    try {
      learn_kernel(aloni::test::make_communicator(), times);
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_NE(refusal(products(24)).find("at least 25"), std::string::npos);
  std::vector<KernelTime> times = products(30);
  times[20].call.kind = model::KernelKind::copy;
  EXPECT_NE(refusal(times).find("one kind"), std::string::npos);
  times = products(30);
  times[7].seconds = 0;
  EXPECT_NE(refusal(times).find("more than 0"), std::string::npos);
}

}  // namespace test_learn_kernels
}  // namespace aloni::tools

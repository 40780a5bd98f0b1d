// The local kernels are good guests: they allocate in the first call at most, and never fence.
#include <aloni/nn/local/batch_norm.hpp>
#include <aloni/nn/local/convolution.hpp>
#include <aloni/nn/local/dense.hpp>
#include <aloni/nn/local/dropout.hpp>
#include <aloni/nn/local/group_norm.hpp>
#include <aloni/nn/local/layer_norm.hpp>
#include <aloni/nn/local/loss.hpp>
#include <aloni/nn/local/pointwise.hpp>
#include <aloni/nn/local/pointwise_layers.hpp>
#include <aloni/nn/local/pooling.hpp>
#include <aloni/nn/local/resampling.hpp>

#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <string>

#include "local_tensor.hpp"
#include "support/fence_guard.hpp"

namespace aloni::test {
namespace test_local_guest {

using namespace nn::local;
using Exec = Kokkos::DefaultExecutionSpace;

void expect_quiet(const std::function<void()>& kernels) {
  kernels();
  wait(test_space());
  aloni::testing::FenceGuard guard;
  guard.arm();
  kernels();
  guard.disarm();
  EXPECT_EQ(guard.report(), "");
  EXPECT_EQ(guard.fences(), 0);
  EXPECT_GT(guard.kernels(), 0);
}

template <class T>
void convolutions_are_quiet(Index groups) {
  const Exec exec = test_space();
  std::mt19937 random(1);
  const ConvolutionProblem p{.samples = 2,
                             .channels = 16,
                             .filters = 16,
                             .groups = groups,
                             .input = {1, 8, 8},
                             .output = {1, 8, 8},
                             .kernel = {1, 3, 3},
                             .offset = {0, -1, -1}};
  for (const Placement& placement : {Placement{}, Placement{.before = {0, 0, 1, 1, 0}}}) {
    LocalTensor<T> x({2, 1, 8, 8, 16}, placement), y({2, 1, 8, 8, 16}, placement), w({16, 1, 3, 3, 16 / groups});
    LocalArray<T> bias(16);
    x.fill_integers(random, 3);
    w.fill_integers(random, 3);
    for (auto backend : {ConvolutionBackend::automatic, ConvolutionBackend::reference, ConvolutionBackend::direct,
                         ConvolutionBackend::onednn, ConvolutionBackend::kokkos_kernels}) {
      if (unsupported_reason<T>(backend, p, ConvolutionPass::forward)) continue;
      SCOPED_TRACE(name(backend));
      const auto c = make_local_convolution<T>(backend, p, exec,
                                               {.forward = true, .backward_data = true, .backward_filter = true});
      expect_quiet([&] {
        pointwise_forward<T>(exec, nn::Relu{}, x, x.view());
        c->forward(exec, x, w, bias, y);
        c->backward_data(exec, y, w, x);
        c->backward_filter(exec, x, y, w, bias);
      });
    }
  }
}

TEST(LocalGuest, ConvolutionsNeitherFenceNorAllocate) {
  for (Index groups : {1, 2, 16}) {
    SCOPED_TRACE("groups " + std::to_string(groups));
    convolutions_are_quiet<float>(groups);
    convolutions_are_quiet<double>(groups);
  }
}

TEST(LocalGuest, OtherKernelsNeitherFenceNorAllocate) {
  using T = float;
  const Exec exec = test_space();
  const PoolingProblem pool{
      .samples = 2, .channels = 4, .input = {1, 8, 8}, .output = {1, 4, 4}, .window = {1, 2, 2}, .stride = {1, 2, 2}};
  const halo::RangeMap1D keep{halo::RangeRule::adaptive, 1, 1}, halve{halo::RangeRule::adaptive, 8, 4};
  const ResamplingProblem adaptive{
      .samples = 2, .channels = 4, .map = {keep, halve, halve}, .input = {1, 8, 8}, .output = {1, 4, 4}};
  LocalTensor<T> x({2, 1, 8, 8, 4}), y({2, 1, 4, 4, 4}), features({2, 1, 1, 1, 4}), logits({2, 1, 1, 1, 4});
  LocalTensor<std::int32_t> argmax({2, 1, 4, 4, 4}), pixel_labels({2, 1, 8, 8, 1});
  LocalArray<T> weights(16), bias(4), gradient(16), velocity(16);
  LocalArray<double> sums(8), mean(4), inv_std(4), result(2);
  LocalArray<int> labels(2);
  BatchNormReduction<T> reduction(exec, 2, 1, 8, 4);
  LocalGroupNorm<T> group_norm(exec, {2, 1, 8, 8, 4}, 2);
  LocalLayerNorm<T> layer_norm(exec, {2, 1, 8, 8, 4}, 1e-5);
  pixel_labels.fill([] { return 0; });
  expect_quiet([&] {
    max_pool_forward<T>(exec, pool, x, y.view(), argmax);
    max_pool_backward<T>(exec, pool, y, argmax, x.view());
    average_pool_forward<T>(exec, pool, AverageDivisor::window, x, y.view());
    average_pool_backward<T>(exec, pool, AverageDivisor::in_domain, y, x.view());
    adaptive_max_pool_forward<T>(exec, adaptive, x, y.view(), argmax);
    adaptive_max_pool_backward<T>(exec, adaptive, y, argmax, x.view());
    resample_forward<T>(exec, adaptive, x, y.view());
    resample_backward<T>(exec, adaptive, y, x.view());
    global_average_forward<T>(exec, 0.1, x, features.view());
    global_average_backward<T>(exec, 0.1, features, x.view());
    reduction.statistics(exec, x, sums);
    batch_norm_finish<Exec>(exec, 128, {}, sums, mean, inv_std, {}, {});
    batch_norm_forward<T>(exec, x, mean, inv_std, bias, bias, x.view());
    reduction.gradients(exec, x, x, mean, inv_std, sums);
    batch_norm_backward<T>(exec, 128, x, x, mean, inv_std, bias, sums, x.view());
    group_norm.statistics(exec, x, sums);
    group_norm.finish(exec, 128, 1e-5, sums);
    group_norm.forward(exec, x, bias, bias, x);
    group_norm.gradients(exec, x, x, bias, sums);
    group_norm.parameter_gradients(exec, bias, bias);
    group_norm.backward(exec, 128, x, x, bias, sums, x);
    layer_norm.forward(exec, x, bias, bias, x);
    layer_norm.parameter_gradients(exec, x, x, bias, bias);
    layer_norm.backward(exec, x, x, bias, x);
    dense_forward<T>(exec, features, weights, bias, logits.view());
    softmax_cross_entropy<T>(exec, logits, labels, 1.0, logits.view(), result);
    binary_cross_entropy_with_logits<T>(exec, x, x, 1.0, x.view(), result);
    mean_squared_error<T>(exec, x, x, 1.0, x.view(), result);
    pixel_cross_entropy<T>(exec, x, pixel_labels, 1.0, x.view(), result);
    dice_sums<T>(exec, x, x, mean);
    dice_gradient<T>(exec, x, x, mean, 1, x.view());
    dice_loss<Exec>(exec, 1.0, mean, result);
    pointwise_forward<T>(exec, nn::Gelu{}, x, x.view());
    pointwise_backward<T>(exec, nn::Sigmoid{}, x, x, x.view());
    dropout<T>(exec, {.rate = 0.5, .extents = {2, 1, 8, 8, 4}}, x, x.view());
    dense_backward_data<T>(exec, logits, weights, features.view());
    dense_backward_parameters<T>(exec, features, logits, gradient.view(), bias);
    sgd_step<T>(exec, {.momentum = 0.9}, gradient, weights.view(), velocity);
  });
}

}  // namespace test_local_guest
}  // namespace aloni::test

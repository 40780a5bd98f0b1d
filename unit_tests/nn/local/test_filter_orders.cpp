// Kernels that share reordered filters give the bits of kernels that do not share, and the memory of a reordered copy
// counts once.
#include <aloni/nn/local/convolution.hpp>
#include <aloni/nn/local/filter_orders.hpp>
#include <aloni/nn/run/convolution_kernels.hpp>

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "local_tensor.hpp"
#include "support/sanitizer.hpp"

namespace aloni::test {
namespace test_filter_orders {

using namespace nn::local;
using comm::bfloat16;
using nn::parameter_type_t;
using Exec = Kokkos::DefaultExecutionSpace;

/// A problem of whole vectors: oneDNN computes it in all passes and both types, from reordered filters.
ConvolutionProblem usual_problem(Index height = 6, Index width = 16) {
  return {.samples = 1,
          .channels = 64,
          .filters = 64,
          .input = {1, height, width},
          .output = {1, height, width},
          .kernel = {1, 3, 3},
          .offset = {0, -1, -1}};
}

/// Calls f if oneDNN computes with T.
template <class T, class F>
void with_onednn(const F& f) {
  if (!unsupported_reason<T>(ConvolutionBackend::onednn, usual_problem(), ConvolutionPass::forward)) return f(T());
  GTEST_SKIP() << "no oneDNN for this type";
}

template <class T>
constexpr std::size_t filter_bytes = sizeof(T) * 64 * 64 * 9;

constexpr ConvolutionPasses both{.forward = true, .backward_data = true};

template <class T>
std::unique_ptr<LocalConvolution<T>> make(const ConvolutionProblem& p, ConvolutionPasses passes,
                                          const std::shared_ptr<FilterOrders>& orders) {
  return make_local_convolution<T>(ConvolutionBackend::onednn, p, test_space(), passes, orders);
}

/// Problems of two heights, like an interior and a border, with their arguments.
template <class T>
struct Kernel {
  Kernel(Index height, const std::shared_ptr<FilterOrders>& orders, std::mt19937& random, Index width = 16)
      : problem(usual_problem(height, width)),
        given(make<T>(problem, both, orders)),
        reference(make_local_convolution<T>(ConvolutionBackend::reference, problem, test_space(), both)),
        x({1, 1, height, width, 64}),
        y({1, 1, height, width, 64}),
        expected({1, 1, height, width, 64}) {
    x.fill_integers(random, 3);
  }

  void expect_right(const LocalTensor<parameter_type_t<T>>& w, std::uint64_t version) {
    const Exec exec = test_space();
    given->set_filter_version(version);
    const auto expect_equal = [&](const char* what) {
      wait(exec);
      y.download();
      expected.download();
      EXPECT_EQ(differing_bits(expected, y), 0) << what << ", version " << version;
    };
    given->forward(exec, x, w, {}, y);
    reference->forward(exec, x, w, {}, expected);
    expect_equal("forward");
    given->backward_data(exec, x, w, y);
    reference->backward_data(exec, x, w, expected);
    expect_equal("backward-data");
  }

  ConvolutionProblem problem;
  std::unique_ptr<LocalConvolution<T>> given, reference;
  LocalTensor<T> x, y, expected;
};

template <class T>
void share_without_mixing(T) {
  std::mt19937 random(5);
  const auto orders = make_filter_orders();
  Kernel<T> interior(6, orders, random), border(1, orders, random);
  std::array<LocalTensor<parameter_type_t<T>>, 2> w{LocalTensor<parameter_type_t<T>>({64, 1, 3, 3, 64}),
                                                    LocalTensor<parameter_type_t<T>>({64, 1, 3, 3, 64})};
  const auto renew = [&](auto& filters) { filters.fill_integers(random, 3); };
  for (auto& filters : w) renew(filters);
  for (const std::uint64_t version : {1, 2}) {
    interior.expect_right(w[0], version);
    border.expect_right(w[0], version);
    border.expect_right(w[1], version);
    interior.expect_right(w[1], version);
    interior.expect_right(w[0], version);
    for (auto& filters : w) renew(filters);
  }
  // Version 0: the filters differ in each call.
  for (int i = 0; i < 2; ++i) {
    interior.expect_right(w[0], 0);
    renew(w[0]);
    border.expect_right(w[0], 0);
    renew(w[0]);
  }
  border.expect_right(w[0], 2);
}

TEST(FilterOrders, SharingKernelsNoticeOtherFiltersAndNewVersions) {
  with_onednn<float>([](auto type) { share_without_mixing(type); });
}
TEST(FilterOrders, SharingKernelsOfBfloat16NoticeOtherFiltersAndNewVersions) {
  with_onednn<bfloat16>([](auto type) { share_without_mixing(type); });
}

/// As above, but filters of two layers and of both passes take turns in one place.
template <class T>
void share_one_place(T) {
  std::mt19937 random(6);
  const auto scratch = std::make_shared<Scratch>();
  scratch->share_filters();
  using Weights = LocalTensor<parameter_type_t<T>>;
  const std::array<std::shared_ptr<FilterOrders>, 2> orders{make_filter_orders(scratch), make_filter_orders(scratch)};
  Kernel<T> interior(6, orders[0], random), border(1, orders[0], random), other(4, orders[1], random);
  std::array<Weights, 2> w{Weights({64, 1, 3, 3, 64}), Weights({64, 1, 3, 3, 64})};
  for (const std::uint64_t version : {1, 2, 0}) {
    for (auto& filters : w) filters.fill_integers(random, 3);
    for (int i = 0; i < 2; ++i) {
      interior.expect_right(w[0], version);
      other.expect_right(w[1], version);
      border.expect_right(w[0], version);
      border.expect_right(w[0], version);
      other.expect_right(w[1], version);
    }
  }
  EXPECT_EQ(orders[0]->bytes() + orders[1]->bytes(), 0);
  EXPECT_EQ(scratch->shared_filters()->memory.bytes(), filter_bytes<T>);
  EXPECT_GE(scratch->bytes(), filter_bytes<T>);
}

TEST(FilterOrders, TakeTurnsInMemoryThatAllStoresShare) {
  with_onednn<float>([](auto type) { share_one_place(type); });
}
TEST(FilterOrders, OfBfloat16TakeTurnsInMemoryThatAllStoresShare) {
  with_onednn<bfloat16>([](auto type) { share_one_place(type); });
}
TEST(FilterOrders, FlippedOnesAreRightInMemoryThatAllStoresShare) {
  if (sanitized) GTEST_SKIP() << "the reference of a large problem takes long there";
  with_onednn<float>([](float) {
    std::mt19937 random(8);
    const auto scratch = std::make_shared<Scratch>();
    scratch->share_filters();
    Kernel<float> large(32, make_filter_orders(scratch), random, 128), small(6, make_filter_orders(scratch), random);
    LocalTensor<float> w({64, 1, 3, 3, 64});
    for (const std::uint64_t version : {1, 2, 2}) {
      w.fill_integers(random, 3);
      if (version == 2) w.fill([] { return 1; });
      large.expect_right(w, version);
      small.expect_right(w, version);
    }
  });
}

/// The gradient of the filters in the order of its kernel lies where the filters lay: they are reordered again.
template <class T>
void share_place_with_gradients(T) {
  std::mt19937 random(9);
  const auto scratch = std::make_shared<Scratch>();
  scratch->share_filters();
  const auto orders = make_filter_orders(scratch);
  Kernel<T> kernel(6, orders, random);
  LocalTensor<parameter_type_t<T>> w({64, 1, 3, 3, 64});
  w.fill_integers(random, 3);
  const ConvolutionProblem p = usual_problem();
  const ConvolutionPasses passes{.backward_filter = true};
  const auto given = make<T>(p, passes, orders);
  const auto reference = make_local_convolution<T>(ConvolutionBackend::reference, p, test_space(), passes);
  LocalTensor<T> dy({1, 1, 6, 16, 64});
  dy.fill_integers(random, 3);
  LocalTensor<parameter_type_t<T>> dw({64, 1, 3, 3, 64}), expected({64, 1, 3, 3, 64});
  for (int i = 0; i < 2; ++i) {
    kernel.expect_right(w, 1);
    kernel.given->forward(test_space(), kernel.x, w, {}, kernel.y);  // its order lies there last
    given->backward_filter(test_space(), kernel.x, dy, dw, {});
    reference->backward_filter(test_space(), kernel.x, dy, expected, {});
    wait(test_space());
    dw.download();
    expected.download();
    EXPECT_EQ(differing_bits(expected, dw), 0);
  }
  EXPECT_EQ(scratch->shared_filters()->memory.bytes(), filter_bytes<float>);
}

TEST(FilterOrders, TakeTurnsWithGradientsInMemoryThatAllStoresShare) {
  with_onednn<float>([](auto type) { share_place_with_gradients(type); });
}
TEST(FilterOrders, OfBfloat16TakeTurnsWithGradientsInMemoryThatAllStoresShare) {
  with_onednn<bfloat16>([](auto type) { share_place_with_gradients(type); });
}

template <class T>
void count_once(T) {
  for (const ConvolutionPasses passes :
       {ConvolutionPasses{.forward = true}, ConvolutionPasses{.backward_data = true}}) {
    const std::size_t alone = make<T>(usual_problem(), passes, nullptr)->workspace_bytes();
    const auto orders = make_filter_orders();
    EXPECT_EQ(orders->bytes(), 0);
    const auto one = make<T>(usual_problem(), passes, orders);
    EXPECT_EQ(orders->bytes(), filter_bytes<T>);
    const auto other = make<T>(usual_problem(), passes, orders);
    EXPECT_EQ(orders->bytes(), filter_bytes<T>);
    for (const auto* kernel : {&one, &other})
      EXPECT_EQ((*kernel)->workspace_bytes(), alone - filter_bytes<T> - orders->scratch()->bytes());
  }
}

TEST(FilterOrders, BytesCountOnceForAllKernels) {
  with_onednn<float>([](auto type) { count_once(type); });
}
TEST(FilterOrders, BytesOfBfloat16CountOnceForAllKernels) {
  with_onednn<bfloat16>([](auto type) { count_once(type); });
}

/// oneDNN may compute backward-data of many pixels as a forward pass with flipped filters, but not backward-data of few
/// pixels.
void share_turned_filters(float) {
  std::mt19937 random(7);
  const auto orders = make_filter_orders();
  Kernel<float> interior(32, orders, random, 128);
  EXPECT_EQ(orders->bytes(), 2 * filter_bytes<float>);
  Kernel<float> border(1, orders, random, 128);
  EXPECT_EQ(orders->bytes(), 2 * filter_bytes<float>);
  LocalTensor<float> w({64, 1, 3, 3, 64});
  w.fill_integers(random, 3);
  interior.expect_right(w, 1);
  border.expect_right(w, 1);
}

TEST(FilterOrders, BordersUseTheFlippedFiltersOfTheirInterior) {
  with_onednn<float>([](auto type) { share_turned_filters(type); });
}

void share_in_a_layer(float) {
  nn::detail::ConvolutionKernels<float, Exec> kernels(test_space(), {std::make_shared<Scratch>()});
  const nn::ConvolutionCall call{.problem = usual_problem(), .backend = ConvolutionBackend::onednn};
  const LocalTensor<float> dense({1, 1, 6, 16, 64}), ghosted({1, 1, 6, 16, 64}, {.before = {0, 0, 1, 1, 0}});
  const std::array<float, 2> places{};  // addresses of filters; no kernel reads them
  std::size_t own = 0;
  const auto bytes_with = [&](const LocalTensor<float>& x, const float& filters) {
    own += kernels.of(call, ConvolutionPass::forward, x, dense, &filters, 0)->workspace_bytes();
    return kernels.bytes() - own;
  };
  EXPECT_EQ(bytes_with(dense, places[0]), filter_bytes<float>);
  EXPECT_EQ(bytes_with(ghosted, places[0]), filter_bytes<float>);
  EXPECT_EQ(bytes_with(dense, places[1]), 2 * filter_bytes<float>);
}

TEST(FilterOrders, KernelsOfALayerWithTheSameFiltersShare) {
  with_onednn<float>([](auto type) { share_in_a_layer(type); });
}

}  // namespace test_filter_orders
}  // namespace aloni::test

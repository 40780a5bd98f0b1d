#include <aloni/core/error.hpp>
#include <aloni/core/random.hpp>
#include <aloni/nn/local/dropout.hpp>
#include <aloni/nn/local/pointwise.hpp>
#include <aloni/nn/local/pointwise_layers.hpp>

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "local_tensor.hpp"

namespace aloni::test {
namespace test_local_pointwise {

using namespace nn::local;
using Exec = Kokkos::DefaultExecutionSpace;

template <class T>
class LocalPointwise : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(LocalPointwise, Types);

const std::array<Placement, 4> placements{Placement{}, Placement{.before = {0, 0, 1, 2, 0}, .after = {0, 0, 0, 1, 0}},
                                          Placement{.before = {1, 0, 0, 0, 1}, .after = {0, 1, 0, 0, 0}},
                                          Placement{.channels_first = true}};

TYPED_TEST(LocalPointwise, AgreesWithPlainLoopsInAnyPlacement) {
  using T = TypeParam;
  const Exec exec = test_space();
  std::mt19937 random(test_seed());
  // Beyond one block of 4096 elements, and an odd number of them.
  for (const std::array<Index, 5>& extents :
       {std::array<Index, 5>{3, 2, 5, 7, 3}, {5, 1, 29, 31, 3}, {0, 1, 2, 2, 1}}) {
    for (const auto& at_in : placements) {
      for (const auto& at_out : placements) {
        LocalTensor<T> a(extents, at_in), b(extents, at_in), r(extents, at_out), g(extents, at_out), c(extents, at_out),
            s(extents, at_out), f(extents, at_out);
        a.fill_integers(random, 3);
        b.fill_integers(random, 3);
        pointwise_forward<T>(exec, nn::Relu{}, a, r.view());
        pointwise_backward<T>(exec, nn::Relu{}, a, b, g.view());
        copy<T>(exec, a, c.view());
        add<T>(exec, a, b, s.view());
        fill<T>(exec, T(7), f.view());
        wait(exec);
        for (auto* t : {&r, &g, &c, &s, &f}) t->download();
        Index wrong = 0;
        a.for_each([&](auto... i) {
          wrong += r(i...) != std::max(a(i...), T(0));
          wrong += g(i...) != (a(i...) > 0 ? b(i...) : T(0));
          wrong += c(i...) != a(i...);
          wrong += s(i...) != a(i...) + b(i...);
          wrong += f(i...) != T(7);
        });
        EXPECT_EQ(wrong, 0);
        for (auto* t : {&r, &g, &c, &s, &f}) EXPECT_EQ(t->damaged(), 0);
      }
    }
  }
}

TYPED_TEST(LocalPointwise, WorksInPlaceAndKeepsNaN) {
  using T = TypeParam;
  const Exec exec = test_space();
  LocalTensor<T> x({1, 1, 1, 2, 2}), dy({1, 1, 1, 2, 2});
  const std::array<T, 4> values{T(-1), T(2), std::numeric_limits<T>::quiet_NaN(), T(0)};
  x.fill([&, i = 0]() mutable { return values[i++]; });
  dy.fill([] { return 5; });
  pointwise_forward<T>(exec, nn::Relu{}, x, x.view());
  pointwise_backward<T>(exec, nn::Relu{}, x, dy, dy.view());
  wait(exec);
  x.download();
  dy.download();
  EXPECT_EQ(x(0, 0, 0, 0, 0), T(0));
  EXPECT_EQ(x(0, 0, 0, 0, 1), T(2));
  EXPECT_TRUE(std::isnan(x(0, 0, 0, 1, 0)));
  EXPECT_EQ(dy(0, 0, 0, 0, 1), T(5));
  EXPECT_EQ(dy(0, 0, 0, 1, 1), T(0)) << "the slope at zero is zero";
}

/// A pointwise layer with known values and slopes, computed with Python's math in double at -3, -1, -0.5, 0, 0.5, 1, 3.
struct Known {
  nn::Operation layer;
  bool from_output;  ///< the gradient reads y, not x
  std::array<double, 7> values, slopes;
};
const std::array<double, 7> known_points{-3, -1, -0.5, 0, 0.5, 1, 3};
const std::vector<Known>& known_values() {
  static const std::vector<Known> all{
      {nn::Relu{}, true, {0, 0, 0, 0, 0.5, 1, 3}, {0, 0, 0, 0, 1, 1, 1}},
      {nn::LeakyRelu{0.25}, true, {-0.75, -0.25, -0.125, 0, 0.5, 1, 3}, {0.25, 0.25, 0.25, 0.25, 1, 1, 1}},
      {nn::Sigmoid{},
       true,
       {0.0474258731775668, 0.268941421369995, 0.377540668798145, 0.5, 0.622459331201855, 0.731058578630005,
        0.952574126822433},
       {0.0451766597309121, 0.196611933241482, 0.235003712201594, 0.25, 0.235003712201594, 0.196611933241482,
        0.045176659730912}},
      {nn::Tanh{},
       true,
       {-0.99505475368673, -0.761594155955765, -0.46211715726001, 0, 0.46211715726001, 0.761594155955765,
        0.99505475368673},
       {0.00986603716544021, 0.419974341614026, 0.786447732965927, 1, 0.786447732965927, 0.419974341614026,
        0.00986603716544021}},
      {nn::Silu{},
       false,
       {-0.1422776195327, -0.268941421369995, -0.188770334399073, 0, 0.311229665600927, 0.731058578630005,
        2.8577223804673},
       {-0.0881041060151696, 0.0723294881285133, 0.260038812697348, 0.5, 0.739961187302652, 0.927670511871487,
        1.08810410601517}},
      {nn::Gelu{},
       false,
       {-0.00404969409489029, -0.158655253931457, -0.154268769362993, 0, 0.345731230637007, 0.841344746068543,
        2.99595030590511},
       {-0.0119456472041839, -0.0833154705876863, 0.132504875343837, 0.5, 0.867495124656163, 1.08331547058769,
        1.01194564720418}}};
  return all;
}

TYPED_TEST(LocalPointwise, LayersHaveTheirKnownValuesAndSlopes) {
  using T = TypeParam;
  const Exec exec = test_space();
  const double tolerance = 8 * std::max(static_cast<double>(std::numeric_limits<T>::epsilon()), 1e-15);
  for (const Known& k : known_values()) {
    SCOPED_TRACE(kind(k.layer));
    LocalTensor<T> x({1, 1, 1, 1, 7}), y({1, 1, 1, 1, 7}), dy({1, 1, 1, 1, 7}), dx({1, 1, 1, 1, 7});
    x.fill([&, i = 0]() mutable { return known_points[i++]; });
    dy.fill([] { return 2; });
    pointwise_forward<T>(exec, k.layer, x, y.view());
    pointwise_backward<T>(exec, k.layer, k.from_output ? y : x, dy, dx.view());
    wait(exec);
    y.download();
    dx.download();
    for (Index i = 0; i < 7; ++i) {
      EXPECT_NEAR(static_cast<double>(y(0, 0, 0, 0, i)), k.values[i], tolerance) << i;
      EXPECT_NEAR(static_cast<double>(dx(0, 0, 0, 0, i)), 2 * k.slopes[i], 2 * tolerance) << i;
    }
  }
}

TYPED_TEST(LocalPointwise, LayersAreFiniteForLargeInputsAndInPlace) {
  using T = TypeParam;
  const Exec exec = test_space();
  for (const Known& k : known_values()) {
    SCOPED_TRACE(kind(k.layer));
    LocalTensor<T> x({1, 1, 1, 1, 2}), dx({1, 1, 1, 1, 2});
    x.fill([&, sign = -1]() mutable { return 1e4 * std::exchange(sign, 1); });
    dx.fill([] { return 1; });
    if (!k.from_output) pointwise_backward<T>(exec, k.layer, x, dx, dx.view());
    pointwise_forward<T>(exec, k.layer, x, x.view());
    if (k.from_output) pointwise_backward<T>(exec, k.layer, x, dx, dx.view());
    wait(exec);
    x.download();
    dx.download();
    for (Index i = 0; i < 2; ++i) {
      EXPECT_TRUE(std::isfinite(x(0, 0, 0, 0, i))) << i;
      EXPECT_TRUE(std::isfinite(dx(0, 0, 0, 0, i))) << i;
    }
  }
}

TYPED_TEST(LocalPointwise, DropoutDependsOnTheGlobalIndexOnly) {
  using T = TypeParam;
  const Exec exec = test_space();
  const std::array<Index, 5> whole{3, 2, 4, 5, 3}, first{1, 0, 2, 1, 1}, part{2, 2, 2, 3, 2};
  const DropoutMask mask{.seed = 7, .stream = dropout_stream(2, 5), .rate = 0.4, .extents = whole};
  LocalTensor<T> x(whole), y(whole);
  x.fill([] { return 3; });
  dropout<T>(exec, mask, x, y.view());
  wait(exec);
  y.download();
  for (const auto& at : placements) {
    LocalTensor<T> z(part, at);
    z.fill([] { return 3; });
    DropoutMask of_part = mask;
    of_part.first = first;
    dropout<T>(exec, of_part, z, z.view());
    wait(exec);
    z.download();
    z.for_each([&](Index n, Index d, Index h, Index w, Index c) {
      EXPECT_EQ(z(n, d, h, w, c), y(n + first[0], d + first[1], h + first[2], w + first[3], c + first[4]));
    });
    EXPECT_EQ(z.damaged(), 0);
  }
  Index index = 0;
  y.for_each([&](auto... i) {
    const bool dropped = random::uniform<float>(7, dropout_stream(2, 5), static_cast<std::uint64_t>(index++)) < 0.4F;
    EXPECT_EQ(y(i...), dropped ? T(0) : T(3) * static_cast<T>(1 / 0.6));
  });
}

TYPED_TEST(LocalPointwise, SgdFollowsItsFormulaOverTwoSteps) {
  using T = TypeParam;
  const Exec exec = test_space();
  for (Index size : {1, 7, 5001}) {
    std::mt19937 random(test_seed());
    std::uniform_real_distribution<double> reals(-1, 1);
    LocalArray<T> w(size), g(size), v(size);
    w.fill([&] { return reals(random); });
    g.fill([&] { return reals(random); });
    const SgdParameters p{.learning_rate = 0.1, .momentum = 0.9, .weight_decay = 0.01};
    std::vector<double> expected(size), velocity(size, 0);
    for (Index i = 0; i < size; ++i) expected[i] = static_cast<double>(w(i));
    for (int step = 0; step < 2; ++step) {
      sgd_step<T>(exec, p, g, w.view(), v);
      for (Index i = 0; i < size; ++i) {
        velocity[i] = 0.9 * velocity[i] + (static_cast<double>(g(i)) + 0.01 * expected[i]);
        expected[i] -= 0.1 * velocity[i];
      }
    }
    wait(exec);
    w.download();
    for (Index i = 0; i < size; ++i)
      ASSERT_NEAR(static_cast<double>(w(i)), expected[i], 8 * static_cast<double>(std::numeric_limits<T>::epsilon()));

    LocalArray<T> plain(size, T(1));
    sgd_step<T>(exec, {.learning_rate = 0.5}, g, plain.view(), {});
    scale<T>(exec, T(4), plain.view());
    wait(exec);
    plain.download();
    for (Index i = 0; i < size; ++i) ASSERT_EQ(plain(i), T(4) * (T(1) - T(0.5) * g(i)));
  }
}

TYPED_TEST(LocalPointwise, AdamFollowsItsAlgorithmOverSeveralSteps) {
  using T = TypeParam;
  const Exec exec = test_space();
  for (const nn::WeightDecay decay : {nn::WeightDecay::l2, nn::WeightDecay::decoupled}) {
    for (Index size : {1, 7, 5001}) {
      std::mt19937 random(test_seed());
      std::uniform_real_distribution<double> reals(-1, 1);
      LocalArray<T> w(size), g(size), m(size), v(size);
      w.fill([&] { return reals(random); });
      std::vector<double> expected(size), first(size, 0), second(size, 0);
      for (Index i = 0; i < size; ++i) expected[i] = static_cast<double>(w(i));
      const nn::AdamOptions options{
          .learning_rate = 0.02, .beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-4, .weight_decay = 0.05, .decay = decay};
      for (int t = 1; t <= 5; ++t) {
        g.fill([&] { return reals(random); });
        adam_step<T>(exec, options, t, g, w.view(), m, v);
        wait(exec);
        for (Index i = 0; i < size; ++i) {
          double gradient = static_cast<double>(g(i));
          if (decay == nn::WeightDecay::l2) gradient += 0.05 * expected[i];
          first[i] = 0.8 * first[i] + (1 - 0.8) * gradient;
          second[i] = 0.95 * second[i] + (1 - 0.95) * gradient * gradient;
          const double first_hat = first[i] / (1 - std::pow(0.8, t)), second_hat = second[i] / (1 - std::pow(0.95, t));
          const double decayed = decay == nn::WeightDecay::decoupled ? 0.02 * 0.05 * expected[i] : 0;
          expected[i] -= 0.02 * first_hat / (std::sqrt(second_hat) + 1e-4) + decayed;
        }
      }
      w.download();
      for (Index i = 0; i < size; ++i)
        ASSERT_NEAR(static_cast<double>(w(i)), expected[i],
                    16 * static_cast<double>(std::numeric_limits<T>::epsilon()));
    }
  }
}

/// w = 1, g = 0.5, then g = -0.25, with beta1 = beta2 = 0.5 and a learning rate of 0.1.
/// Step 1: m = 0.25, v = 0.125; corrected 0.5 and 0.25: w = 1 - 0.1 (0.5 / 0.5) = 0.9.
/// Step 2: m = 0, v = 0.09375: w = 0.9. Then g = 1: m = 0.5, v = 0.546875; corrected by 7/8: 4/7 and 0.625.
TYPED_TEST(LocalPointwise, AdamComputesAKnownCase) {
  using T = TypeParam;
  const Exec exec = test_space();
  LocalArray<T> w(1, T(1)), g(1), m(1), v(1);
  const nn::AdamOptions options{.learning_rate = 0.1, .beta1 = 0.5, .beta2 = 0.5, .epsilon = 1e-30};
  const auto step = [&](std::int64_t t, double gradient) {
    g.fill([&] { return gradient; });
    adam_step<T>(exec, options, t, g, w.view(), m, v);
    wait(exec);
    w.download();
    return static_cast<double>(w(0));
  };
  const double tolerance = 4 * static_cast<double>(std::numeric_limits<T>::epsilon());
  EXPECT_NEAR(step(1, 0.5), 0.9, tolerance);
  EXPECT_NEAR(step(2, -0.25), 0.9, tolerance);
  EXPECT_NEAR(step(3, 1), 0.9 - 0.1 * (4.0 / 7) / std::sqrt(0.625), tolerance);
}

TEST(LocalPointwiseArguments, RefusesLayersThatAreNotPointwise) {
  LocalTensor<float> a({1, 1, 2, 2, 1});
  EXPECT_THROW(pointwise_forward<float>(test_space(), nn::Flatten{}, a, a.view()), InvalidArgument);
  EXPECT_THROW(pointwise_backward<float>(test_space(), nn::Dropout{}, a, a, a.view()), InvalidArgument);
  EXPECT_THROW(dropout<float>(test_space(), {.rate = 1}, a, a.view()), InvalidArgument);
}

TEST(LocalPointwiseArguments, RefusesDifferentExtents) {
  LocalTensor<float> a({1, 1, 2, 2, 1}), b({1, 1, 2, 3, 1});
  EXPECT_THROW(pointwise_forward<float>(test_space(), nn::Relu{}, a, b.view()), InvalidArgument);
  LocalArray<float> w(3), g(4);
  EXPECT_THROW(sgd_step<float>(test_space(), {}, g, w.view(), {}), InvalidArgument);
  EXPECT_THROW(sgd_step<float>(test_space(), {.momentum = 0.9}, w, w.view(), {}), InvalidArgument)
      << "needs a velocity";
  EXPECT_THROW(adam_step<float>(test_space(), {}, 1, w, w.view(), w, g), InvalidArgument);
  EXPECT_THROW(adam_step<float>(test_space(), {}, 1, w, w.view(), g, w), InvalidArgument);
  EXPECT_THROW(adam_step<float>(test_space(), {}, 1, g, w.view(), w, w), InvalidArgument);
}

}  // namespace test_local_pointwise
}  // namespace aloni::test

#include <aloni/core/error.hpp>
#include <aloni/nn/local/pointwise.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <random>

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
        relu_forward<T>(exec, a, r.view());
        relu_backward<T>(exec, a, b, g.view());
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
  relu_forward<T>(exec, x, x.view());
  relu_backward<T>(exec, x, dy, dy.view());
  wait(exec);
  x.download();
  dy.download();
  EXPECT_EQ(x(0, 0, 0, 0, 0), T(0));
  EXPECT_EQ(x(0, 0, 0, 0, 1), T(2));
  EXPECT_TRUE(std::isnan(x(0, 0, 0, 1, 0)));
  EXPECT_EQ(dy(0, 0, 0, 0, 1), T(5));
  EXPECT_EQ(dy(0, 0, 0, 1, 1), T(0)) << "the slope at zero is zero";
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

TEST(LocalPointwiseArguments, RefusesDifferentExtents) {
  LocalTensor<float> a({1, 1, 2, 2, 1}), b({1, 1, 2, 3, 1});
  EXPECT_THROW(relu_forward<float>(test_space(), a, b.view()), InvalidArgument);
  LocalArray<float> w(3), g(4);
  EXPECT_THROW(sgd_step<float>(test_space(), {}, g, w.view(), {}), InvalidArgument);
  EXPECT_THROW(sgd_step<float>(test_space(), {.momentum = 0.9}, w, w.view(), {}), InvalidArgument)
      << "needs a velocity";
}

}  // namespace test_local_pointwise
}  // namespace aloni::test

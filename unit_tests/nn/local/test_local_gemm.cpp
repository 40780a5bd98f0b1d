// Matrix products and the dense layer on them, against plain loops.
#include <aloni/core/error.hpp>
#include <aloni/nn/local/dense.hpp>
#include <aloni/nn/local/detail/gemm_backends.hpp>
#include <aloni/nn/local/gemm.hpp>

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "local_tensor.hpp"
#include "support/random_cases.hpp"

namespace aloni::test {
namespace test_local_gemm {

using namespace nn::local;
using Exec = Kokkos::DefaultExecutionSpace;

template <class T>
class LocalGemm : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(LocalGemm, Types);

template <class T>
MatrixRef<T> matrix(LocalArray<T>& a, Index rows, Index columns, Index stride) {
  return {a.view().data(), rows, columns, stride};
}

TYPED_TEST(LocalGemm, AgreesWithPlainLoopsForEveryTransposeStrideAndFactor) {
  using T = TypeParam;
  const Exec exec = test_space();
  const unsigned seed = test_seed();
  for (int i = 0; i < aloni::test::random_cases(200); ++i) {
    std::mt19937 random(seed + i);
    auto pick = [&](Index lo, Index hi) { return std::uniform_int_distribution<Index>(lo, hi)(random); };
    const Index m = pick(0, 5) == 0 ? 1 : pick(1, 90), n = pick(0, 5) == 0 ? 1 : pick(1, 150), k = pick(0, 300);
    const auto op_a = pick(0, 1) == 1 ? Transpose::yes : Transpose::no,
               op_b = pick(0, 1) == 1 ? Transpose::yes : Transpose::no;
    const Index ar = op_a == Transpose::no ? m : k, ac = op_a == Transpose::no ? k : m;
    const Index br = op_b == Transpose::no ? k : n, bc = op_b == Transpose::no ? n : k;
    const Index as = ac + pick(0, 3), bs = bc + pick(0, 3), cs = n + pick(0, 3);
    const T alpha = static_cast<T>(pick(-1, 2)), beta = static_cast<T>(pick(-1, 1));
    SCOPED_TRACE("seed " + std::to_string(seed + i) + ": " + std::to_string(m) + "x" + std::to_string(n) + "x" +
                 std::to_string(k));
    auto integer = [&] { return static_cast<int>(random() % 7) - 3; };
    LocalArray<T> a(ar * as), b(br * bs), c0(m * cs);
    a.fill(integer);
    b.fill(integer);
    c0.fill(integer);
    auto compare = [&](const char* which, auto&& run) {
      LocalArray<T> c(m * cs);
      for (Index j = 0; j < m * cs; ++j) {
        // With beta = 0, c must not be read.
        c(j) = beta == T(0) && j % cs < n ? std::numeric_limits<T>::quiet_NaN() : c0(j);
      }
      c.upload();
      run(matrix(c, m, n, cs));
      wait(exec);
      c.download();
      Index wrong = 0;
      for (Index r = 0; r < m; ++r)
        for (Index j = 0; j < cs; ++j) {
          T expected = c0(r * cs + j);
          if (j < n) {
            T sum = 0;
            for (Index l = 0; l < k; ++l)
              sum += (op_a == Transpose::no ? a(r * as + l) : a(l * as + r)) *
                     (op_b == Transpose::no ? b(l * bs + j) : b(j * bs + l));
            expected = alpha * sum + (beta == T(0) ? T(0) : beta * expected);
          }
          wrong += !(c(r * cs + j) == expected);
        }
      ASSERT_EQ(wrong, 0) << which;
    };
    compare("gemm", [&](MatrixRef<T> c) {
      gemm<T>(exec, op_a, op_b, alpha, {a.view().data(), ar, ac, as}, {b.view().data(), br, bc, bs}, beta, c);
    });
    compare("blocked", [&](MatrixRef<T> c) {
      detail::blocked_gemm<T>(
          exec, {op_a, op_b, alpha, beta, {a.view().data(), ar, ac, as}, {b.view().data(), br, bc, bs}, c, k});
    });
  }
}

TYPED_TEST(LocalGemm, RefusesShapesThatDoNotFit) {
  using T = TypeParam;
  LocalArray<T> a(6), b(6), c(4);
  EXPECT_THROW(gemm<T>(test_space(), Transpose::no, Transpose::no, 1, {a.view().data(), 2, 3, 3},
                       {b.view().data(), 2, 3, 3}, 0, matrix(c, 2, 2, 2)),
               InvalidArgument);
  EXPECT_THROW(gemm<T>(test_space(), Transpose::no, Transpose::no, 1, {a.view().data(), 2, 3, 2},
                       {b.view().data(), 3, 2, 2}, 0, matrix(c, 2, 2, 2)),
               InvalidArgument);
}

template <class T>
struct DenseCase {
  LocalTensor<T> x, dy;
  LocalArray<T> w, bias;
};

template <class T>
DenseCase<T> dense_case(std::mt19937& random, Index samples, Index in, Index out, const Placement& placement) {
  DenseCase<T> c{LocalTensor<T>({samples, 1, 1, 1, in}, placement), LocalTensor<T>({samples, 1, 1, 1, out}, placement),
                 LocalArray<T>(in * out), LocalArray<T>(out)};
  auto integer = [&] { return static_cast<int>(random() % 7) - 3; };
  c.x.fill(integer);
  c.dy.fill(integer);
  c.w.fill(integer);
  c.bias.fill(integer);
  return c;
}

TYPED_TEST(LocalGemm, DenseLayerIsExactOnIntegersInAllPasses) {
  using T = TypeParam;
  const Exec exec = test_space();
  const unsigned seed = test_seed();
  for (int i = 0; i < aloni::test::random_cases(60); ++i) {
    std::mt19937 random(seed + i);
    auto pick = [&](Index lo, Index hi) { return std::uniform_int_distribution<Index>(lo, hi)(random); };
    const Index samples = pick(i == 0 ? 0 : 1, i == 0 ? 0 : 40), in = pick(1, 200), out = pick(1, 130);
    Placement placement;
    placement.after[4] = pick(0, 2);
    SCOPED_TRACE("seed " + std::to_string(seed + i));
    const auto c = dense_case<T>(random, samples, in, out, placement);
    LocalTensor<T> y({samples, 1, 1, 1, out}, placement), dx({samples, 1, 1, 1, in}, placement);
    LocalArray<T> dw(in * out), db(out, T(7));
    dense_forward<T>(exec, c.x, c.w, c.bias, y.view());
    dense_backward_data<T>(exec, c.dy, c.w, dx.view());
    dense_backward_parameters<T>(exec, c.x, c.dy, dw.view(), db);
    wait(exec);
    y.download();
    dx.download();
    dw.download();
    db.download();
    Index wrong = 0;
    for (Index n = 0; n < samples; ++n) {
      for (Index f = 0; f < out; ++f) {
        T sum = c.bias(f);
        for (Index j = 0; j < in; ++j) sum += c.x(n, 0, 0, 0, j) * c.w(f * in + j);
        wrong += y(n, 0, 0, 0, f) != sum;
      }
      for (Index j = 0; j < in; ++j) {
        T sum = 0;
        for (Index f = 0; f < out; ++f) sum += c.dy(n, 0, 0, 0, f) * c.w(f * in + j);
        wrong += dx(n, 0, 0, 0, j) != sum;
      }
    }
    for (Index f = 0; f < out; ++f) {
      T bias_sum = 0;
      for (Index n = 0; n < samples; ++n) bias_sum += c.dy(n, 0, 0, 0, f);
      wrong += db(f) != bias_sum;
      for (Index j = 0; j < in; ++j) {
        T sum = 0;
        for (Index n = 0; n < samples; ++n) sum += c.dy(n, 0, 0, 0, f) * c.x(n, 0, 0, 0, j);
        wrong += dw(f * in + j) != sum;
      }
    }
    ASSERT_EQ(wrong, 0);
    ASSERT_EQ(y.damaged() + dx.damaged(), 0);
  }
}

TEST(LocalDense, GradientsAreFiniteDifferences) {
  const Exec exec = test_space();
  std::mt19937 random(test_seed());
  std::uniform_real_distribution<double> reals(-1, 1);
  auto real = [&] { return reals(random); };
  const Index samples = 3, in = 5, out = 4;
  auto c = dense_case<double>(random, samples, in, out, {});
  c.x.fill(real);
  c.dy.fill(real);
  c.w.fill(real);
  LocalTensor<double> y({samples, 1, 1, 1, out}), dx({samples, 1, 1, 1, in});
  LocalArray<double> dw(in * out), db(out);
  dense_backward_data<double>(exec, c.dy, c.w, dx.view());
  dense_backward_parameters<double>(exec, c.x, c.dy, dw.view(), db);
  wait(exec);
  dx.download();
  dw.download();
  db.download();
  auto loss = [&] {
    dense_forward<double>(exec, c.x, c.w, c.bias, y.view());
    wait(exec);
    y.download();
    double sum = 0;
    y.for_each([&](auto... i) { sum += y(i...) * c.dy(i...); });
    return sum;
  };
  auto slope = [&](double& value, auto& owner) {
    const double before = value;
    value = before + 0.5;
    owner.upload();
    const double above = loss();
    value = before - 0.5;
    owner.upload();
    const double below = loss();
    value = before;
    owner.upload();
    return above - below;
  };
  dx.for_each([&](auto... i) { EXPECT_NEAR(slope(c.x(i...), c.x), dx(i...), 1e-12); });
  for (Index i = 0; i < in * out; ++i) EXPECT_NEAR(slope(c.w(i), c.w), dw(i), 1e-12);
  for (Index i = 0; i < out; ++i) EXPECT_NEAR(slope(c.bias(i), c.bias), db(i), 1e-12);
}

}  // namespace test_local_gemm
}  // namespace aloni::test

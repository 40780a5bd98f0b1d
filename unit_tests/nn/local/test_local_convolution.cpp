// Every implementation of the local convolution against the reference, and the reference against results worked out by
// hand.
#include <aloni/core/error.hpp>
#include <aloni/nn/local/convolution.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "local_tensor.hpp"
#include "support/random_cases.hpp"

namespace aloni::test {
namespace test_local_convolution {

using namespace nn::local;
using comm::bfloat16;
using nn::parameter_type_t;
using Exec = Kokkos::DefaultExecutionSpace;

/// The second run of this program has three threads per rank (ctest: THREADED). A quarter of the problems is enough
/// there.
bool is_short_run() { return Exec().concurrency() > 1 && !aloni::test::nightly(); }

int random_problems(int cases) {
  const int all = aloni::test::random_cases(cases);
  return is_short_run() ? (all + 7) / 8 : all;
}

/// All results of one implementation.
template <class T>
struct Results {
  LocalTensor<T> y, dx;
  LocalTensor<parameter_type_t<T>> dw;
  LocalArray<parameter_type_t<T>> db;
};

template <class T>
struct Data {
  LocalTensor<T> x, dy;
  LocalTensor<parameter_type_t<T>> w;
  LocalArray<parameter_type_t<T>> bias;
};

/// Filters lie behind other parameters: with an odd number of elements of a filter, their address has the alignment of
/// an element only.
constexpr Placement behind_another_filter{.before = {1, 0, 0, 0, 0}};

constexpr ConvolutionPasses all_passes{.forward = true, .backward_data = true, .backward_filter = true};

template <class T>
Data<T> make_data(const ConvolutionProblem& p, std::mt19937& random, bool integers, const Placement& at_x = {},
                  const Placement& at_y = {}) {
  Data<T> d{LocalTensor<T>(input_extents(p), at_x), LocalTensor<T>(output_extents(p), at_y),
            LocalTensor<parameter_type_t<T>>(filter_extents(p), behind_another_filter),
            LocalArray<parameter_type_t<T>>(p.filters)};
  const auto fill = [&](auto& t) { integers ? t.fill_integers(random, 3) : t.fill_reals(random); };
  fill(d.x);
  fill(d.dy);
  fill(d.w);
  d.bias.fill([&] { return static_cast<int>(random() % 9) - 4; });
  return d;
}

template <class T>
Results<T> run_all(ConvolutionBackend backend, const ConvolutionProblem& p, const Data<T>& data,
                   const Placement& at_x = {}, const Placement& at_y = {}, bool with_bias = true) {
  using Parameter = parameter_type_t<T>;
  const Exec exec = test_space();
  Results<T> r{LocalTensor<T>(output_extents(p), at_y), LocalTensor<T>(input_extents(p), at_x),
               LocalTensor<Parameter>(filter_extents(p), behind_another_filter),
               LocalArray<Parameter>(with_bias ? p.filters : 0, 55)};
  const auto convolution = make_local_convolution<T>(backend, p, exec, all_passes);
  // First with other data: results must not depend on the workspace of an earlier call.
  LocalTensor<T> x(input_extents(p), at_x), dy(output_extents(p), at_y);
  LocalTensor<Parameter> w(filter_extents(p));
  for (auto* other : {&x, &dy}) other->fill([] { return 5; });
  w.fill([] { return 5; });
  const auto bias = with_bias ? data.bias.view() : nn::local::Array<Parameter, Exec>{};
  convolution->forward(exec, x, w, bias, r.y);
  convolution->backward_data(exec, dy, w, r.dx);
  convolution->backward_filter(exec, x, dy, r.dw, r.db);
  convolution->forward(exec, data.x, data.w, bias, r.y);
  convolution->backward_data(exec, data.dy, data.w, r.dx);
  convolution->backward_filter(exec, data.x, data.dy, r.dw, r.db);
  wait(exec);
  r.y.download();
  r.dx.download();
  r.dw.download();
  r.db.download();
  return r;
}

template <class T>
std::vector<ConvolutionBackend> backends_to_compare() {
  std::vector<ConvolutionBackend> found;
  for (auto b : {ConvolutionBackend::automatic, ConvolutionBackend::direct, ConvolutionBackend::onednn,
                 ConvolutionBackend::kokkos_kernels}) {
    if (!unsupported_reason<T>(b, ConvolutionProblem{}, ConvolutionPass::forward)) found.push_back(b);
  }
  return found;
}

template <class T>
void expect_same_bits(const ConvolutionProblem& p, const Results<T>& expected, const Results<T>& result) {
  EXPECT_EQ(differing_bits(expected.y, result.y), 0) << "forward";
  EXPECT_EQ(differing_bits(expected.dx, result.dx), 0) << "backward-data";
  EXPECT_EQ(differing_bits(expected.dw, result.dw), 0) << "backward-filter";
  for (Index f = 0; f < result.db.size(); ++f)
    EXPECT_EQ(expected.db(f), result.db(f)) << "bias gradient " << f << to_string(p);
  EXPECT_EQ(result.y.damaged(), 0) << "forward wrote beside its output";
  EXPECT_EQ(result.dx.damaged(), 0) << "backward-data wrote beside its output";
}

template <class T>
void compare_all(const ConvolutionProblem& p, std::mt19937& random, const Placement& at_x, const Placement& at_y,
                 bool with_bias = true) {
  const auto data = make_data<T>(p, random, true, at_x, at_y);
  const auto expected = run_all(ConvolutionBackend::reference, p, data, at_x, at_y, with_bias);
  for (auto backend : backends_to_compare<T>()) {
    SCOPED_TRACE(std::string(name(backend)) + (sizeof(T) == 2 ? " bfloat16" : sizeof(T) == 4 ? " float" : " double"));
    expect_same_bits(p, expected, run_all(backend, p, data, at_x, at_y, with_bias));
  }
}

/// A random problem of at most `most` multiplications, edges in every direction.
ConvolutionProblem random_problem(std::mt19937& random, double most, bool grouped = false) {
  auto pick = [&](Index lo, Index hi) { return std::uniform_int_distribution<Index>(lo, hi)(random); };
  constexpr std::array<Index, 12> widths{1, 2, 3, 5, 6, 7, 8, 16, 17, 24, 32, 40};
  for (;;) {
    ConvolutionProblem p{.samples = pick(1, 3), .channels = widths[pick(0, 11)], .filters = widths[pick(0, 11)]};
    if (grouped) {
      // Two of three problems are depthwise, with a depth multiplier of 1 or a few.
      constexpr std::array<Index, 8> counts{1, 2, 3, 4, 8, 16, 17, 40}, sizes{1, 1, 1, 2, 3, 5, 16, 32};
      p.groups = counts[pick(0, 7)];
      const bool depthwise = pick(0, 2) > 0;
      p.channels = p.groups * (depthwise ? 1 : sizes[pick(0, 7)]);
      p.filters = p.groups * (depthwise ? pick(1, 3) : sizes[pick(0, 7)]);
    }
    const int rank = static_cast<int>(pick(1, 3));
    for (int s = 3 - rank; s < 3; ++s) {
      p.kernel[s] = pick(1, 7);
      p.stride[s] = pick(0, 2) > 0 ? 1 : pick(2, 3);
      p.dilation[s] = pick(0, 2) > 0 ? 1 : pick(2, 3);
      p.output[s] = pick(0, 3) > 0 ? pick(1, 12) : 1;
      const Index reach = (p.kernel[s] - 1) * p.dilation[s];
      p.offset[s] = pick(0, 4) > 0 ? -pick(0, reach) : pick(-reach - 2, 3);
      const Index end = (p.output[s] - 1) * p.stride[s] + reach + p.offset[s] + 1;
      p.input[s] =
          std::max<Index>(pick(0, 9) > 0 ? 1 : 0, end - (pick(0, 4) > 0 ? pick(0, reach) : pick(-3, reach + 2)));
    }
    if (flops(p) <= most) return p;
  }
}

Placement random_placement(std::mt19937& random) {
  Placement placement;
  if (random() % 2 == 0) return placement;
  for (int i = 0; i < 5; ++i) {
    if (random() % 2 == 0) placement.before[i] = static_cast<Index>(random() % 3);
    if (random() % 2 == 0) placement.after[i] = static_cast<Index>(random() % 3);
  }
  if (random() % 2 == 0) placement.before[4] = placement.after[4] = 0;  // ghosted in space only, as usual
  placement.channels_first = random() % 8 == 0;
  return placement;
}

TEST(LocalConvolutionReference, OneDimensionAgreesWithResultsByHand) {
  // x = 1 2 3 4, kernel 10 1 (cross-correlation), one zero before: y = 0·10+1, 1·10+2, 2·10+3, 3·10+4, plus bias 100
  const ConvolutionProblem p{.samples = 1,
                             .channels = 1,
                             .filters = 1,
                             .input = {1, 1, 4},
                             .output = {1, 1, 4},
                             .kernel = {1, 1, 2},
                             .offset = {0, 0, -1}};
  std::mt19937 random(1);
  auto data = make_data<double>(p, random, true);
  int next = 1;
  data.x.fill([&] { return next++; });
  next = 0;
  data.w.fill([&] { return next++ == 0 ? 10 : 1; });
  data.bias.fill([] { return 100; });
  next = 1;
  data.dy.fill([&] { return next++; });  // dy = 1 2 3 4
  const auto r = run_all(ConvolutionBackend::reference, p, data);
  const std::array<double, 4> y{101, 112, 123, 134}, dx{1 + 20, 2 + 30, 3 + 40, 4};
  for (Index i = 0; i < 4; ++i) {
    EXPECT_EQ(r.y(0, 0, 0, i, 0), y[i]) << i;
    EXPECT_EQ(r.dx(0, 0, 0, i, 0), dx[i]) << i;  // x_i meets w_1 in y_i and w_0 in y_(i+1)
  }
  EXPECT_EQ(r.dw(0, 0, 0, 0, 0), 2 * 1 + 3 * 2 + 4 * 3);  // Σ dy_o x_(o-1)
  EXPECT_EQ(r.dw(0, 0, 0, 1, 0), 1 + 4 + 9 + 16);
  EXPECT_EQ(r.db(0), 10);
}

TEST(LocalConvolutionReference, StrideDilationAndCropAgreeWithResultsByHand) {
  // i = 2 o + 3 k + 1 over x_i = 10^i (i < 6): y_0 = x_1 w_0 + x_4 w_1, y_1 = x_3 w_0 + x_6 w_1 with x_6 outside
  const ConvolutionProblem p{.samples = 1,
                             .channels = 1,
                             .filters = 1,
                             .input = {1, 1, 6},
                             .output = {1, 1, 2},
                             .kernel = {1, 1, 2},
                             .stride = {1, 1, 2},
                             .dilation = {1, 1, 3},
                             .offset = {0, 0, 1}};
  std::mt19937 random(1);
  auto data = make_data<double>(p, random, true);
  double power = 0.1;
  data.x.fill([&] { return power *= 10; });
  double w = 1;
  data.w.fill([&] { return ++w; });  // 2 3
  double dy = 4;
  data.dy.fill([&] { return ++dy; });  // 5 6
  const auto r = run_all(ConvolutionBackend::reference, p, data, {}, {}, false);
  EXPECT_EQ(r.y(0, 0, 0, 0, 0), 2 * 10 + 3 * 10000);
  EXPECT_EQ(r.y(0, 0, 0, 1, 0), 2 * 1000);
  const std::array<double, 6> dx{0, 10, 0, 12, 15, 0};
  for (Index i = 0; i < 6; ++i) EXPECT_EQ(r.dx(0, 0, 0, i, 0), dx[i]) << i;
  EXPECT_EQ(r.dw(0, 0, 0, 0, 0), 5 * 10 + 6 * 1000);
  EXPECT_EQ(r.dw(0, 0, 0, 1, 0), 5 * 10000);
}

TEST(LocalConvolutionReference, TwoDimensionsAgreeWithResultsByHand) {
  // Kernel 2×2, 2 channels, 2 filters, x(h, w, c) = h + 10 w + 100 c on 2×2, no padding: one output pixel.
  const ConvolutionProblem p{
      .samples = 1, .channels = 2, .filters = 2, .input = {1, 2, 2}, .output = {1, 1, 1}, .kernel = {1, 2, 2}};
  std::mt19937 random(1);
  auto data = make_data<double>(p, random, true);
  data.x.for_each([&](Index n, Index d, Index h, Index w, Index c) {
    data.x(n, d, h, w, c) = static_cast<double>(h + 10 * w + 100 * c);
  });
  data.x.upload();
  data.w.for_each([&](Index f, Index kd, Index kh, Index kw, Index c) {
    data.w(f, kd, kh, kw, c) = f == 0 ? 1.0 : static_cast<double>(kh == 1 && kw == 0 && c == 1);
  });
  data.w.upload();
  const auto r = run_all(ConvolutionBackend::reference, p, data, {}, {}, false);
  EXPECT_EQ(r.y(0, 0, 0, 0, 0), (0 + 1 + 10 + 11) + (100 + 101 + 110 + 111));
  EXPECT_EQ(r.y(0, 0, 0, 0, 1), 101);  // x(1, 0, 1)
}

TEST(LocalConvolutionReference, GroupsAgreeWithTheDefinition) {
  // Every pair of a filter and a channel, of an output and an input pixel: those that meet add their products.
  const unsigned seed = test_seed();
  for (int i = 0; i < random_problems(60); ++i) {
    std::mt19937 random(seed + 6000 + i);
    const auto p = random_problem(random, 1e4, true);
    SCOPED_TRACE("seed " + std::to_string(seed + 6000 + i) + ": " + to_string(p));
    const auto data = make_data<double>(p, random, true);
    const auto result = run_all(ConvolutionBackend::reference, p, data);
    Results<double> expected{LocalTensor<double>(output_extents(p)), LocalTensor<double>(input_extents(p)),
                             LocalTensor<double>(filter_extents(p)), LocalArray<double>(p.filters)};
    for (auto* zero : {&expected.y, &expected.dx, &expected.dw}) zero->fill([] { return 0; });
    const Index channels = p.channels / p.groups, filters = p.filters / p.groups;
    expected.y.for_each([&](Index n, Index od, Index oh, Index ow, Index f) {
      expected.y(n, od, oh, ow, f) += data.bias(f);
      expected.db(f) += data.dy(n, od, oh, ow, f);
      data.x.for_each([&](Index m, Index id, Index ih, Index iw, Index c) {
        if (m != n || c / channels != f / filters) return;
        const std::array<Index, 3> o{od, oh, ow}, in{id, ih, iw};
        std::array<Index, 3> k{};
        for (int s = 0; s < 3; ++s) {
          const Index reach = in[s] - p.offset[s] - o[s] * p.stride[s];
          if (reach < 0 || reach % p.dilation[s] != 0 || reach / p.dilation[s] >= p.kernel[s]) return;
          k[s] = reach / p.dilation[s];
        }
        const Index own = c % channels;
        expected.y(n, od, oh, ow, f) += data.x(n, id, ih, iw, c) * data.w(f, k[0], k[1], k[2], own);
        expected.dx(n, id, ih, iw, c) += data.dy(n, od, oh, ow, f) * data.w(f, k[0], k[1], k[2], own);
        expected.dw(f, k[0], k[1], k[2], own) += data.dy(n, od, oh, ow, f) * data.x(n, id, ih, iw, c);
      });
    });
    expect_same_bits(p, expected, result);
    if (HasFailure()) break;
  }
}

TEST(LocalConvolutionReference, GroupsAreConvolutionsOfTheirOwn) {
  // Groups 2 of 1 channel and 2 filters on a single pixel: filters 0 and 1 see channel 0, filters 2 and 3 see channel
  // 1.
  const ConvolutionProblem p{.samples = 1, .channels = 2, .filters = 4, .groups = 2};
  std::mt19937 random(1);
  auto data = make_data<double>(p, random, true);
  double next = 1;
  data.x.fill([&] { return next *= 10; });  // 10 100
  next = 1;
  data.w.fill([&] { return ++next; });  // 2 3 4 5
  next = 0;
  data.dy.fill([&] { return ++next; });  // 1 2 3 4
  const auto r = run_all(ConvolutionBackend::reference, p, data, {}, {}, false);
  const std::array<double, 4> y{20, 30, 400, 500}, dw{10, 20, 300, 400};
  for (Index f = 0; f < 4; ++f) {
    EXPECT_EQ(r.y(0, 0, 0, 0, f), y[f]) << f;
    EXPECT_EQ(r.dw(f, 0, 0, 0, 0), dw[f]) << f;
  }
  EXPECT_EQ(r.dx(0, 0, 0, 0, 0), 1 * 2 + 2 * 3);
  EXPECT_EQ(r.dx(0, 0, 0, 0, 1), 3 * 4 + 4 * 5);
}

TEST(LocalConvolution, AllBackendsHaveTheBitsOfTheReferenceWithGroups) {
  const unsigned seed = test_seed();
  for (int i = 0; i < random_problems(200); ++i) {
    std::mt19937 random(seed + 5000 + i);
    const auto p = random_problem(random, 5e5, true);
    const auto at_x = random_placement(random), at_y = random_placement(random);
    SCOPED_TRACE("seed " + std::to_string(seed + 5000 + i) + ": " + to_string(p));
    compare_all<float>(p, random, at_x, at_y, i % 3 != 0);
    compare_all<bfloat16>(p, random, at_x, at_y, i % 3 != 0);
    compare_all<double>(p, random, at_x, at_y, i % 3 != 0);
    if (HasFailure()) break;
  }
}

TEST(LocalConvolution, AllBackendsHaveTheBitsOfTheReference) {
  const unsigned seed = test_seed();
  for (int i = 0; i < random_problems(200); ++i) {
    std::mt19937 random(seed + i);
    const auto p = random_problem(random, 1e6);
    const auto at_x = random_placement(random), at_y = random_placement(random);
    SCOPED_TRACE("seed " + std::to_string(seed + i) + ": " + to_string(p));
    compare_all<float>(p, random, at_x, at_y, i % 3 != 0);
    compare_all<bfloat16>(p, random, at_x, at_y, i % 3 != 0);
    compare_all<double>(p, random, at_x, at_y, i % 3 != 0);
    if (HasFailure()) break;
  }
}

TEST(LocalConvolution, ReluGivesTheLargerOfTheResultAndZero) {
  std::mt19937 random(11);
  int with_nan = 0;
  for (int i = 0; i < share_of(60); ++i) {
    const ConvolutionProblem p = random_problem(random, 2e5, i % 3 == 0);
    auto data = make_data<float>(p, random, true);
    SCOPED_TRACE(to_string(p));
    auto plain = run_all(ConvolutionBackend::reference, p, data);
    for (auto backend : backends_to_compare<float>()) {
      SCOPED_TRACE(name(backend));
      const Exec exec = test_space();
      const auto convolution = make_local_convolution<float>(
          backend, p, exec, {.forward = true, .relu = true, .dense_input = true, .dense_output = true});
      LocalTensor<float> y(output_extents(p));
      convolution->forward(exec, data.x, data.w, data.bias.view(), y);
      wait(exec);
      y.download();
      Index wrong = 0;
      y.for_each([&](auto... at) { wrong += y(at...) != std::max(std::as_const(plain.y)(at...), 0.0F); });
      EXPECT_EQ(wrong, 0);
      // A NaN in x makes some of y NaN and stays a NaN, except in oneDNN.
      if (convolution->implementation(ConvolutionPass::forward).find("onednn") != std::string::npos) continue;
      if (p.samples * p.input[0] * p.input[1] * p.input[2] * p.channels == 0) continue;
      LocalTensor<float> x(input_extents(p)), expected(output_extents(p));
      x.fill([] { return std::numeric_limits<float>::quiet_NaN(); });
      make_local_convolution<float>(ConvolutionBackend::reference, p, exec, {.forward = true})
          ->forward(exec, x, data.w, data.bias.view(), expected);
      convolution->forward(exec, x, data.w, data.bias.view(), y);
      wait(exec);
      y.download();
      expected.download();
      y.for_each([&](auto... at) {
        if (!std::isnan(expected(at...))) return;
        ++with_nan;
        wrong += !std::isnan(y(at...));
      });
      EXPECT_EQ(wrong, 0) << "NaN";
    }
  }
  EXPECT_GT(with_nan, 0);
}

TEST(LocalConvolution, PaddedAndThinBoxesAgreeWithTheReference) {
  // oneDNN 2.6 is known for wrong results in three dimensions and in padded columns: every padding of every side, with
  // outputs as thin as one row.
  std::mt19937 random(test_seed());
  for (Index channels : {1, 3, 16, 17, 32}) {
    if ((aloni::test::sanitized || is_short_run()) && channels >= 16) break;
    if (channels == 32 && !aloni::test::nightly()) break;
    for (int s = 0; s < 3; ++s) {
      for (Index before = 0; before <= 3; ++before) {
        for (Index after = 0; after <= 3; ++after) {
          for (Index output : {1, 2, 5}) {
            ConvolutionProblem p{.samples = 2, .channels = channels, .filters = channels == 3 ? 16 : channels};
            p.input = {1, 4, 5};
            p.output = {1, 2, 3};
            p.kernel = {1, 3, 3};
            p.kernel[s] = 4;
            p.output[s] = output;
            p.offset[s] = -before;
            p.input[s] = std::max<Index>(1, output + 3 - before - after);
            if (s == 0) p.kernel[2] = 2, p.input[2] = 4;
            SCOPED_TRACE(to_string(p));
            compare_all<float>(p, random, {}, {});
            compare_all<bfloat16>(p, random, {}, {});
            if (HasFailure()) return;
          }
        }
      }
    }
  }
}

TEST(LocalConvolution, PartsOfSplitLayersAgreeWithTheReference) {
  // The problems of ranks of a split layer: boxes with ghosts, whose backward-data is padded by more than half a kernel
  // on one side.
  const unsigned seed = test_seed();
  for (int i = 0; i < aloni::test::share_of(80); ++i) {
    std::mt19937 random(seed + 3000 + i);
    auto pick = [&](Index lo, Index hi) { return std::uniform_int_distribution<Index>(lo, hi)(random); };
    ConvolutionProblem p{.samples = 1, .channels = 16 * pick(1, 3), .filters = 16 * pick(1, 4)};
    const int split = static_cast<int>(pick(1, 2));
    const bool upper = pick(0, 1) == 1, of_output = pick(0, 1) == 1;
    for (int s = 1; s < 3; ++s) {
      p.kernel[s] = pick(1, 5), p.stride[s] = pick(1, 2), p.dilation[s] = pick(1, 3);
      const Index reach = (p.kernel[s] - 1) * p.dilation[s], padding = reach / 2;
      p.output[s] = s == 2 ? pick(8, 40) : pick(4, 10);
      p.offset[s] = -padding;
      p.input[s] = (p.output[s] - 1) * p.stride[s] + reach + 1 - 2 * padding;
      if (s != split) continue;
      const Index size = of_output ? p.output[s] : p.input[s], half = size / 2;
      const Index lower = upper ? half : 0, end = upper ? size : half;  // the written part
      Index first, last;                                                // its inputs
      if (of_output) {
        first = std::max<Index>(0, lower * p.stride[s] - padding);
        last = std::min(p.input[s], (end - 1) * p.stride[s] - padding + reach + 1);
        p.output[s] = end - lower, p.input[s] = last - first;
        p.offset[s] = local_offset(lower, first, p.stride[s], padding);
      } else {
        first = std::max<Index>(0, (lower + padding - reach + p.stride[s] - 1) / p.stride[s]);
        last = std::min(p.output[s], (end - 1 + padding) / p.stride[s] + 1);
        p.input[s] = end - lower, p.output[s] = last - first;
        p.offset[s] = local_offset(first, lower, p.stride[s], padding);
      }
    }
    if (p.input[split] < 1 || p.output[split] < 1 || flops(p) > 4e6) continue;
    SCOPED_TRACE("seed " + std::to_string(seed + 3000 + i) + ": " + to_string(p));
    compare_all<float>(p, random, {}, {});
    compare_all<bfloat16>(p, random, {}, {});
    if (HasFailure()) break;
  }
}

TEST(LocalConvolution, ShapesThatOnednn26ComputesWrongAgreeWithTheReference) {
  // Found by comparison with plain loops. onednn_primitives.cpp lists the cases.
  std::mt19937 random(test_seed());
  auto row = [](Index samples, Index channels, Index filters, Index input, Index output, Index kernel, Index stride,
                Index dilation, Index padding) {
    return ConvolutionProblem{.samples = samples,
                              .channels = channels,
                              .filters = filters,
                              .input = {1, 1, input},
                              .output = {1, 1, output},
                              .kernel = {1, 1, kernel},
                              .stride = {1, 1, stride},
                              .dilation = {1, 1, dilation},
                              .offset = {0, 0, -padding}};
  };
  for (const auto& p :
       {row(2, 12, 64, 7, 7, 6, 1, 1, 1), row(3, 48, 64, 7, 7, 7, 1, 1, 2), row(4, 17, 64, 11, 11, 7, 1, 1, 0),
        row(4, 24, 128, 9, 9, 7, 1, 1, 1), row(3, 65, 48, 50, 34, 7, 2, 4, 21), row(3, 32, 24, 123, 32, 7, 4, 4, 16),
        row(3, 32, 32, 112, 31, 7, 4, 4, 15), row(2, 6, 64, 7, 7, 5, 1, 2, 4), row(1, 17, 64, 11, 11, 7, 1, 2, 6),
        row(1, 9, 64, 13, 9, 6, 1, 2, 1), row(1, 16, 64, 105, 29, 5, 4, 4, 16)}) {
    SCOPED_TRACE(to_string(p));
    compare_all<float>(p, random, {}, {});
    compare_all<bfloat16>(p, random, {}, {});
  }
}

TEST(LocalConvolution, VolumesThatOnednn26ComputesWrongAgreeWithTheReference) {
  // Gradients of filters over padded depth, with strides or padding of more than half a kernel.
  std::mt19937 random(test_seed());
  const std::array<ConvolutionProblem, 3> problems{ConvolutionProblem{.samples = 3,
                                                                      .channels = 3,
                                                                      .filters = 6,
                                                                      .input = {7, 8, 38},
                                                                      .output = {4, 8, 37},
                                                                      .kernel = {7, 1, 2},
                                                                      .stride = {2, 1, 1},
                                                                      .offset = {-3, 0, 0}},
                                                   ConvolutionProblem{.samples = 1,
                                                                      .channels = 64,
                                                                      .filters = 48,
                                                                      .input = {5, 8, 1},
                                                                      .output = {3, 7, 1},
                                                                      .kernel = {7, 3, 1},
                                                                      .stride = {2, 1, 1},
                                                                      .offset = {-3, 0, 0}},
                                                   ConvolutionProblem{.samples = 1,
                                                                      .channels = 24,
                                                                      .filters = 48,
                                                                      .groups = 24,
                                                                      .input = {3, 6, 16},
                                                                      .output = {3, 6, 16},
                                                                      .kernel = {6, 3, 7},
                                                                      .offset = {-4, -1, -3}}};
  for (const auto& p : problems) {
    SCOPED_TRACE(to_string(p));
    compare_all<float>(p, random, {}, {});
    compare_all<bfloat16>(p, random, {}, {});
  }
}

TEST(LocalConvolution, WorkInSeveralPiecesAddsUp) {
  // Several tiles of windows, several blocks of rows, several blocks of filters and pixels.
  std::mt19937 random(test_seed());
  const ConvolutionProblem p{.samples = aloni::test::sanitized ? 1 : 3,
                             .channels = 16,
                             .filters = 40,
                             .input = {1, 40, 37},
                             .output = {1, 38, 36},
                             .kernel = {1, 3, 4},
                             .offset = {0, 0, -1}};
  const Placement ghosted{.before = {0, 0, 1, 2, 0}, .after = {0, 0, 1, 1, 0}};
  compare_all<float>(p, random, {}, {});
  compare_all<bfloat16>(p, random, ghosted, ghosted);
  if (!aloni::test::sanitized) compare_all<double>(p, random, ghosted, ghosted);
  ConvolutionProblem q = p;
  std::swap(q.channels, q.filters);
  compare_all<float>(q, random, ghosted, ghosted);
}

TEST(LocalConvolution, BackwardDataOfStrideOneAgreesForEveryPadding) {
  // Boxes of dx no larger than those of dy, which the GEMM implementation computes as a forward pass of flipped
  // filters.
  const unsigned seed = test_seed();
  int flipped = 0;
  for (int i = 0; i < random_problems(120); ++i) {
    std::mt19937 random(seed + 11000 + i);
    auto pick = [&](Index lo, Index hi) { return std::uniform_int_distribution<Index>(lo, hi)(random); };
    const Index groups = std::max<Index>(1, pick(-2, 3)), channels = pick(1, 20);
    ConvolutionProblem p{.samples = pick(1, 3),
                         .channels = groups * channels,
                         .filters = groups * pick(1, 2 * channels),
                         .groups = groups};
    for (int s = 0; s < 3; ++s) {
      p.kernel[s] = pick(1, 4), p.dilation[s] = pick(1, 3), p.output[s] = pick(1, 7);
      p.offset[s] = pick(-(p.kernel[s] - 1) * p.dilation[s] - 2, 3);
      p.input[s] = std::max<Index>(1, p.output[s] - pick(0, 2));
    }
    if (flops(p) > 1e6) continue;
    SCOPED_TRACE("seed " + std::to_string(seed + 11000 + i) + ": " + to_string(p));
    compare_all<float>(p, random, random_placement(random), random_placement(random));
    if (unsupported_reason<double>(ConvolutionBackend::kokkos_kernels, p, ConvolutionPass::backward_data)) continue;
    compare_all<double>(p, random, {}, {});
    const auto gemm = make_local_convolution<double>(ConvolutionBackend::kokkos_kernels, p, test_space(), all_passes);
    if (gemm->implementation(ConvolutionPass::backward_data).find("flipped") != std::string::npos) ++flipped;
    EXPECT_LE(gemm->workspace_bytes(), workspace_limit);
    if (HasFailure()) break;
  }
  if (!unsupported_reason<double>(ConvolutionBackend::kokkos_kernels, {}, ConvolutionPass::backward_data)) {
    EXPECT_GT(flipped, 0);
  }
}

TEST(LocalConvolution, BackwardDataOfStrideOneAgreesForManyPixels) {
  // oneDNN computes these as a forward pass with flipped filters if only the forward pass has a newer kernel.
  if (unsupported_reason<float>(ConvolutionBackend::onednn, {}, ConvolutionPass::backward_data)) GTEST_SKIP();
  const Exec exec = test_space();
  const unsigned seed = test_seed();
  int flipped = 0;
  bool newer_kernels = false;
  for (int i = 0; i < random_problems(100); ++i) {
    std::mt19937 random(seed + 17000 + i);
    auto pick = [&](Index lo, Index hi) { return std::uniform_int_distribution<Index>(lo, hi)(random); };
    const bool volume = pick(0, 2) == 0;
    ConvolutionProblem p{
        .samples = pick(1, 2), .channels = 16 * pick(1, 2), .filters = pick(0, 1) == 0 ? 16 * pick(1, 3) : pick(1, 36)};
    for (int s = volume ? 0 : 1; s < 3; ++s) {
      p.kernel[s] = pick(1, volume ? 3 : 5), p.dilation[s] = pick(1, 2);
      p.input[s] = volume ? pick(16, 19) : pick(64, 70);
      const Index reach = (p.kernel[s] - 1) * p.dilation[s], least = reach - p.kernel[s] / 2 * p.dilation[s];
      p.offset[s] = -pick(least, reach);
      p.output[s] = p.input[s] - reach - p.offset[s] + pick(least, reach);
    }
    SCOPED_TRACE("seed " + std::to_string(seed + 17000 + i) + ": " + to_string(p));
    const Placement at_x = random_placement(random), at_y = random_placement(random);
    const auto data = make_data<float>(p, random, true, at_x, at_y);
    const auto run = [&](ConvolutionBackend backend) {
      LocalTensor<float> dx(input_extents(p), at_x);
      const auto convolution = make_local_convolution<float>(backend, p, exec, {.backward_data = true});
      const std::string implementation = convolution->implementation(ConvolutionPass::backward_data);
      if (implementation.find("flipped") != std::string::npos) ++flipped;
      convolution->backward_data(exec, data.dy, data.w, dx);
      const auto forward = make_local_convolution<float>(backend, p, exec, {.forward = true});
      if (forward->implementation(ConvolutionPass::forward).find("brgconv") != std::string::npos) newer_kernels = true;
      wait(exec);
      dx.download();
      return dx;
    };
    const auto dx = run(ConvolutionBackend::onednn);
    EXPECT_EQ(differing_bits(run(ConvolutionBackend::direct), dx), 0);
    EXPECT_EQ(dx.damaged(), 0) << "wrote beside its output";
    if (HasFailure()) break;
  }
  EXPECT_TRUE(flipped > 0 || !newer_kernels);
}

template <class T>
void see_new_versions() {
  const unsigned seed = test_seed();
  const Exec exec = test_space();
  for (int i = 0; i < random_problems(40); ++i) {
    std::mt19937 random(seed + 4000 + i);
    // Whole vectors, so that `automatic` takes oneDNN for some passes.
    auto p = random_problem(random, 1e5, i % 4 == 3);
    if (i % 4 != 3) p.channels = 16, p.filters = 32;
    SCOPED_TRACE("seed " + std::to_string(seed + 4000 + i) + ": " + to_string(p));
    const std::array<Data<T>, 3> data{make_data<T>(p, random, true), make_data<T>(p, random, true),
                                      make_data<T>(p, random, true)};
    std::vector<Results<T>> expected;
    for (const auto& d : data) expected.push_back(run_all(ConvolutionBackend::reference, p, d));
    for (auto backend : backends_to_compare<T>()) {
      SCOPED_TRACE(name(backend));
      const auto convolution = make_local_convolution<T>(backend, p, exec, all_passes);
      struct Call {
        int data;  // index of the x, dy and filters
        std::uint64_t version;
      };
      for (const Call& c : {Call{0, 0}, Call{1, 0}, Call{0, 1}, Call{0, 1}, Call{1, 2}, Call{2, 0}, Call{1, 2},
                            Call{0, 1}, Call{2, 7}, Call{2, 7}}) {
        convolution->set_filter_version(c.version);
        const auto& d = data[c.data];
        LocalTensor<T> y(output_extents(p)), dx(input_extents(p));
        convolution->forward(exec, d.x, data[c.data].w, d.bias.view(), y);
        convolution->backward_data(exec, d.dy, data[c.data].w, dx);
        wait(exec);
        y.download();
        dx.download();
        EXPECT_EQ(differing_bits(expected[c.data].y, y), 0) << "forward, version " << c.version;
        EXPECT_EQ(differing_bits(expected[c.data].dx, dx), 0) << "backward-data, version " << c.version;
      }
    }
    if (testing::Test::HasFailure()) break;
  }
}

TEST(LocalConvolution, NewFilterVersionsTakeEffect) { see_new_versions<float>(); }
TEST(LocalConvolution, NewFilterVersionsTakeEffectInBfloat16) { see_new_versions<bfloat16>(); }

TEST(LocalConvolution, RealNumbersAreCloseToTheReference) {
  const unsigned seed = test_seed();
  for (int i = 0; i < random_problems(30); ++i) {
    std::mt19937 random(seed + 7000 + i);
    const auto p = random_problem(random, 1e6);
    SCOPED_TRACE("seed " + std::to_string(seed + 7000 + i) + ": " + to_string(p));
    const auto data = make_data<double>(p, random, false);
    const auto expected = run_all(ConvolutionBackend::reference, p, data);
    for (auto backend : backends_to_compare<double>()) {
      const auto r = run_all(backend, p, data);
      auto close = [&](const LocalTensor<double>& a, const LocalTensor<double>& b) {
        double worst = 0;
        a.for_each([&](auto... j) { worst = std::max(worst, std::abs(a(j...) - b(j...))); });
        return worst;
      };
      EXPECT_LT(close(expected.y, r.y), 1e-11) << name(backend);
      EXPECT_LT(close(expected.dx, r.dx), 1e-11) << name(backend);
      EXPECT_LT(close(expected.dw, r.dw), 1e-11) << name(backend);
    }
  }
}

template <class T>
void expect_rounded(const LocalTensor<T>& expected, const LocalTensor<T>& result, double summands, const char* what) {
  // Sums of products in [-1, 1] in float, then one rounding.
  const double sum_error = std::max(summands, 1.0) * std::numeric_limits<float>::epsilon();
  double worst = 0;
  expected.for_each([&](auto... i) {
    const auto a = static_cast<double>(expected(i...)), b = static_cast<double>(result(i...));
    const double allowed = sum_error * std::max(summands, 1.0) + (sizeof(T) == 2 ? std::ldexp(std::abs(a), -7) : 0);
    worst = std::max(worst, std::abs(a - b) / allowed);
  });
  EXPECT_LE(worst, 1.0) << what;
}

TEST(LocalConvolution, RealNumbersOfBfloat16AreRoundedOnce) {
  const unsigned seed = test_seed();
  for (int i = 0; i < random_problems(30); ++i) {
    std::mt19937 random(seed + 10000 + i);
    const auto p = random_problem(random, 1e6, i % 3 == 2);
    SCOPED_TRACE("seed " + std::to_string(seed + 10000 + i) + ": " + to_string(p));
    const auto data = make_data<bfloat16>(p, random, false);
    const auto expected = run_all(ConvolutionBackend::reference, p, data);
    for (auto backend : backends_to_compare<bfloat16>()) {
      const auto r = run_all(backend, p, data);
      const double window = static_cast<double>(p.kernel[0] * p.kernel[1] * p.kernel[2]);
      expect_rounded(expected.y, r.y, window * static_cast<double>(p.channels_per_group()), "forward");
      expect_rounded(expected.dx, r.dx, window * static_cast<double>(p.filters_per_group()), "backward-data");
      expect_rounded(expected.dw, r.dw, static_cast<double>(p.samples * p.output[0] * p.output[1] * p.output[2]),
                     "backward-filter");
    }
  }
}

TEST(LocalConvolution, ReluOfBfloat16GivesTheLargerOfTheResultAndZero) {
  std::mt19937 random(12);
  for (int i = 0; i < random_problems(40); ++i) {
    const ConvolutionProblem p = random_problem(random, 2e5, i % 3 == 0);
    SCOPED_TRACE(to_string(p));
    const auto data = make_data<bfloat16>(p, random, true);
    const auto plain = run_all(ConvolutionBackend::reference, p, data);
    std::vector<ConvolutionBackend> backends = backends_to_compare<bfloat16>();
    backends.push_back(ConvolutionBackend::reference);
    for (auto backend : backends) {
      SCOPED_TRACE(name(backend));
      const Exec exec = test_space();
      const auto convolution = make_local_convolution<bfloat16>(
          backend, p, exec, {.forward = true, .relu = true, .dense_input = true, .dense_output = true});
      LocalTensor<bfloat16> y(output_extents(p));
      convolution->forward(exec, data.x, data.w, data.bias.view(), y);
      wait(exec);
      y.download();
      Index wrong = 0;
      y.for_each([&](auto... at) { wrong += y(at...) != std::max(plain.y(at...), bfloat16(0)); });
      EXPECT_EQ(wrong, 0);
    }
  }
}

TEST(LocalConvolution, RefusalOfBfloat16NamesAlternatives) {
  const auto of_direct = unsupported_reason<bfloat16>(ConvolutionBackend::direct, {}, ConvolutionPass::forward);
  ASSERT_TRUE(of_direct);
  EXPECT_NE(of_direct->find("automatic, or float"), std::string::npos) << *of_direct;
  EXPECT_EQ(unsupported_reason<bfloat16>(ConvolutionBackend::reference, {}, ConvolutionPass::forward), std::nullopt);
  EXPECT_EQ(unsupported_reason<bfloat16>(ConvolutionBackend::kokkos_kernels, {}, ConvolutionPass::forward),
            unsupported_reason<float>(ConvolutionBackend::kokkos_kernels, {}, ConvolutionPass::forward));
  if constexpr (!std::is_same_v<Exec, Kokkos::DefaultHostExecutionSpace>) return;  // a device needs no oneDNN
  const auto reason = unsupported_reason<bfloat16>(ConvolutionBackend::automatic, {}, ConvolutionPass::forward);
  EXPECT_EQ(reason, unsupported_reason<bfloat16>(ConvolutionBackend::onednn, {}, ConvolutionPass::forward));
  if (!reason) GTEST_SKIP() << "this processor has kernels for bfloat16";
  EXPECT_NE(reason->find("oneDNN"), std::string::npos) << *reason;
  EXPECT_NE(reason->find("use float"), std::string::npos) << *reason;
  EXPECT_THROW(
      (void)make_local_convolution<bfloat16>(ConvolutionBackend::automatic, {}, test_space(), {.forward = true}),
      Unsupported);
}

TEST(LocalConvolution, GradientsAreTheFiniteDifferencesOfTheForward) {
  const unsigned seed = test_seed();
  const Index every = is_short_run() ? 49 : 7;
  for (unsigned i = 0; i < 4; ++i) {
    std::mt19937 random(seed + 8000 + i);
    const auto p = random_problem(random, 2e4, i % 2 == 1);
    SCOPED_TRACE("seed " + std::to_string(seed + 8000 + i) + ": " + to_string(p));
    auto data = make_data<double>(p, random, false);
    for (auto backend : backends_to_compare<double>()) {
      SCOPED_TRACE(name(backend));
      const auto r = run_all(backend, p, data);
      // loss = Σ y dy
      auto loss = [&] {
        const auto q = run_all(backend, p, data);
        double sum = 0;
        q.y.for_each([&](auto... j) { sum += q.y(j...) * data.dy(j...); });
        return sum;
      };
      constexpr double step = 0.5;  // the loss is linear in each of x and w: no error from the step's size
      auto check = [&](LocalTensor<double>& values, const LocalTensor<double>& gradient) {
        Index number = 0;
        values.for_each([&](auto... j) {
          if (number++ % every != 0) return;
          const double before = values(j...);
          values(j...) = before + step;
          values.upload();
          const double above = loss();
          values(j...) = before - step;
          values.upload();
          const double below = loss();
          values(j...) = before;
          values.upload();
          EXPECT_NEAR((above - below) / (2 * step), gradient(j...), 1e-9);
        });
      };
      check(data.x, r.dx);
      check(data.w, r.dw);
    }
  }
}

TEST(LocalConvolution, BackwardPassesAreAdjointToTheForward) {
  // ⟨conv(x, w), dy⟩ = ⟨x, dx⟩ = ⟨w, dw⟩ without bias
  const unsigned seed = test_seed();
  for (int i = 0; i < random_problems(40); ++i) {
    std::mt19937 random(seed + 9000 + i);
    const auto p = random_problem(random, 1e6, i % 2 == 1);
    SCOPED_TRACE("seed " + std::to_string(seed + 9000 + i) + ": " + to_string(p));
    const auto data = make_data<double>(p, random, false);
    for (auto backend : backends_to_compare<double>()) {
      const auto r = run_all(backend, p, data, {}, {}, false);
      auto dot = [](const LocalTensor<double>& a, const LocalTensor<double>& b) {
        double sum = 0;
        a.for_each([&](auto... j) { sum += a(j...) * b(j...); });
        return sum;
      };
      const double forward = dot(r.y, data.dy);
      EXPECT_NEAR(forward, dot(data.x, r.dx), 1e-9) << name(backend);
      EXPECT_NEAR(forward, dot(data.w, r.dw), 1e-9) << name(backend);
    }
  }
}

TEST(LocalConvolution, EmptyBoxesGiveZerosOrNothing) {
  std::mt19937 random(1);
  const ConvolutionProblem whole{
      .samples = 2, .channels = 3, .filters = 4, .input = {1, 5, 5}, .output = {1, 3, 3}, .kernel = {1, 3, 3}};
  const ConvolutionProblem depthwise{.samples = 2,
                                     .channels = 4,
                                     .filters = 4,
                                     .groups = 4,
                                     .input = {1, 5, 5},
                                     .output = {1, 3, 3},
                                     .kernel = {1, 3, 3}};
  for (int kind = 0; kind < 12; ++kind) {
    ConvolutionProblem p = kind < 6 ? whole : depthwise;
    if (kind % 6 == 0) p.samples = 0;
    if (kind % 6 == 1) p.output = {1, 0, 3};
    if (kind % 6 == 2) p.input = {1, 0, 5};
    if (kind % 6 == 3) p.channels = 0;
    if (kind % 6 == 4) p.offset = {0, 50, 0};  // reads only outside
    if (kind % 6 == 5) p.filters = 0;
    SCOPED_TRACE(to_string(p));
    compare_all<float>(p, random, {}, {});
    compare_all<bfloat16>(p, random, {}, {});
    compare_all<double>(p, random, {}, {});
  }
}

TEST(LocalConvolution, RefusesWrongExtentsNamingThem) {
  const Exec exec = test_space();
  const ConvolutionProblem p{
      .samples = 1, .channels = 2, .filters = 3, .input = {1, 4, 4}, .output = {1, 2, 2}, .kernel = {1, 3, 3}};
  const auto convolution = make_local_convolution<float>(ConvolutionBackend::automatic, p, exec, {.forward = true});
  LocalTensor<float> x({1, 1, 4, 4, 2}), w({3, 1, 3, 3, 2}), y({1, 1, 2, 3, 3});
  try {
    convolution->forward(exec, x, w, {}, y);
    FAIL() << "no error";
  } catch (const InvalidArgument& e) {
    EXPECT_EQ(e.argument(), "y");
    EXPECT_EQ(e.value(), "1x1x2x3x3");
    EXPECT_NE(std::string(e.what()).find("1x1x2x2x3"), std::string::npos) << e.what();
  }
  LocalTensor<float> dx({1, 1, 4, 4, 2}), dy({1, 1, 2, 2, 3});
  EXPECT_THROW(convolution->backward_data(exec, dy, w, dx), InvalidArgument) << "a pass that was not asked for";
  EXPECT_THROW((LocalTensor<float>({1, 1, 4, 4, 2}), validate(ConvolutionProblem{.samples = -1})), InvalidArgument);
}

TEST(LocalConvolution, GroupsAreCheckedCountedAndNamed) {
  ConvolutionProblem p{.samples = 1, .channels = 6, .filters = 12, .kernel = {1, 3, 3}};
  const ConvolutionProblem plain = p;
  const double all = flops(p);
  EXPECT_EQ(to_string(p).find("groups"), std::string::npos) << to_string(p);
  p.groups = 3;
  EXPECT_FALSE(p == plain);
  EXPECT_EQ(flops(p), all / 3);
  EXPECT_NE(to_string(p).find("x12, groups 3, kernel"), std::string::npos) << to_string(p);
  EXPECT_NO_THROW(validate(p));
  for (Index groups : {0, -1, 4, 12}) {  // 4 doesn't divide the channels, 12 is too many
    p.groups = groups;
    try {
      validate(p);
      ADD_FAILURE() << "no error with groups " << groups;
    } catch (const InvalidArgument& e) {
      EXPECT_EQ(e.argument(), "groups");
      EXPECT_EQ(e.value(), std::to_string(groups));
    }
  }
  p.groups = 3, p.filters = 7;
  EXPECT_THROW(validate(p), InvalidArgument);
  // The filters' tensor has the channels of one group.
  const Exec exec = test_space();
  const ConvolutionProblem q{.samples = 1, .channels = 4, .filters = 2, .groups = 2};
  const auto convolution = make_local_convolution<float>(ConvolutionBackend::automatic, q, exec, {.forward = true});
  LocalTensor<float> x({1, 1, 1, 1, 4}), y({1, 1, 1, 1, 2}), wrong({2, 1, 1, 1, 4}), right({2, 1, 1, 1, 2});
  EXPECT_THROW(convolution->forward(exec, x, wrong, {}, y), InvalidArgument);
  EXPECT_NO_THROW(convolution->forward(exec, x, right, {}, y));
  wait(exec);
}

TEST(LocalConvolution, SaysWhyABackendCannotRun) {
  EXPECT_EQ(unsupported_reason<float>(ConvolutionBackend::automatic, {}, ConvolutionPass::forward), std::nullopt);
  EXPECT_NE(unsupported_reason<double>(ConvolutionBackend::onednn, {}, ConvolutionPass::forward), std::nullopt);
  EXPECT_THROW((void)make_local_convolution<double>(ConvolutionBackend::onednn, {}, test_space(), {.forward = true}),
               Unsupported);
  for (auto b : {ConvolutionBackend::automatic, ConvolutionBackend::reference, ConvolutionBackend::direct,
                 ConvolutionBackend::onednn, ConvolutionBackend::kokkos_kernels, ConvolutionBackend::cudnn}) {
    EXPECT_EQ(convolution_backend_named(name(b)), b);
  }
  EXPECT_EQ(convolution_backend_named("winograd"), std::nullopt);
  using Host = Kokkos::DefaultHostExecutionSpace;
  EXPECT_NE((unsupported_reason<float, Host>(ConvolutionBackend::cudnn, {}, ConvolutionPass::forward)), std::nullopt);
  EXPECT_THROW((void)(make_local_convolution<float, Host>(ConvolutionBackend::cudnn, {}, Host(), {.forward = true})),
               Unsupported);
}

}  // namespace test_local_convolution
}  // namespace aloni::test

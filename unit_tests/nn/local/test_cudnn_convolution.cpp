// The local convolution by plans of cuDNN, with graphs that are computed on the host: strides, alignments, fused and
// separate bias and ReLU, and the copies of bfloat16. What cuDNN itself makes of the graphs needs a device.
#include <aloni/core/error.hpp>
#include <aloni/nn/local/detail/cudnn_convolution.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "local_tensor.hpp"

// The graphs are computed in the memory of the host.
#if !defined(KOKKOS_ENABLE_CUDA) && !defined(KOKKOS_ENABLE_HIP) && !defined(KOKKOS_ENABLE_SYCL)

namespace aloni::test {
namespace test_cudnn_convolution {

using namespace nn::local;
using namespace nn::local::detail;
using comm::bfloat16;
using nn::parameter_type_t;
using Exec = Kokkos::DefaultExecutionSpace;

/// Computes a graph: sums in double, the rest in the type of the parameters, one rounding.
template <class T>
class GraphOnHost {
 public:
  using Parameter = parameter_type_t<T>;

  GraphOnHost(const CudnnGraph& graph, const CudnnOperands& operands)
      : g_(graph),
        p_(graph.problem),
        x_(static_cast<T*>(operands.input)),
        y_(static_cast<T*>(operands.output)),
        w_(static_cast<T*>(operands.filters)),
        bias_(static_cast<const Parameter*>(operands.bias)) {}

  void run() {
    switch (g_.pass) {
      case ConvolutionPass::forward:
        return forward();
      case ConvolutionPass::backward_data:
        return backward_data();
      case ConvolutionPass::backward_filter:
        return backward_filter();
    }
  }

 private:
  struct Tap {
    Index x, y, w;  // elements of the three tensors
    Index filter, channel;
  };

  /// f for each product of the convolution.
  template <class F>
  void for_each_tap(const F& f) const {
    const Index channels = p_.channels / p_.groups, filters = p_.filters / p_.groups;
    for_box({p_.samples, p_.output[0], p_.output[1], p_.output[2], p_.filters}, [&](const std::array<Index, 5>& o) {
      for_box({1, p_.kernel[0], p_.kernel[1], p_.kernel[2], channels}, [&](const std::array<Index, 5>& k) {
        std::array<Index, 5> i{o[0], 0, 0, 0, o[4] / filters * channels + k[4]};
        for (std::size_t d = 0; d < 3; ++d) {
          i[d + 1] = o[d + 1] * p_.stride[d] + k[d + 1] * p_.dilation[d] - p_.padding_before[d];
          if (i[d + 1] < 0 || i[d + 1] >= p_.input[d]) return;
        }
        const Index tap = (k[1] * p_.kernel[1] + k[2]) * p_.kernel[2] + k[3];
        const Index taps = p_.kernel[0] * p_.kernel[1] * p_.kernel[2];
        f(Tap{at(g_.input_strides, i), at(g_.output_strides, o), (o[4] * taps + tap) * channels + k[4], o[4], i[4]});
      });
    });
  }
  template <class F>
  static void for_box(const std::array<Index, 5>& n, const F& f) {
    std::array<Index, 5> i{};
    for (i[0] = 0; i[0] < n[0]; ++i[0])
      for (i[1] = 0; i[1] < n[1]; ++i[1])
        for (i[2] = 0; i[2] < n[2]; ++i[2])
          for (i[3] = 0; i[3] < n[3]; ++i[3])
            for (i[4] = 0; i[4] < n[4]; ++i[4]) f(i);
  }
  static Index at(const CudnnStrides& strides, const std::array<Index, 5>& i) {
    Index sum = 0;
    for (std::size_t d = 0; d < 5; ++d) sum += strides[d] * i[d];
    return sum;
  }
  static double real(T value) { return static_cast<double>(value); }

  /// Sums of products by the element of one tensor, and the elements without a product.
  template <class F>
  std::map<Index, double> sums(const CudnnStrides& strides, const std::array<Index, 5>& extents, const F& add) const {
    std::map<Index, double> sums;
    for_box(extents, [&](const std::array<Index, 5>& i) { sums[at(strides, i)] = 0; });
    for_each_tap([&](const Tap& tap) { add(sums, tap); });
    return sums;
  }
  void forward() {
    const std::array<Index, 5> extents{p_.samples, p_.output[0], p_.output[1], p_.output[2], p_.filters};
    const auto result =
        sums(g_.output_strides, extents, [&](auto& all, const Tap& t) { all[t.y] += real(x_[t.x]) * real(w_[t.w]); });
    for_box(extents, [&](const std::array<Index, 5>& o) {
      const Index y = at(g_.output_strides, o);
      auto value = static_cast<Parameter>(result.at(y));
      if (g_.bias) value += bias_[o[4]];
      if (g_.relu) value = std::max(value, Parameter(0));
      y_[y] = static_cast<T>(value);
    });
  }
  void backward_data() {
    for (const auto& [x, sum] : sums(g_.input_strides, {p_.samples, p_.input[0], p_.input[1], p_.input[2], p_.channels},
                                     [&](auto&all, const Tap&t) { all[t.x] += real(y_[t.y]) * real(w_[t.w]); }))
      x_[x] = static_cast<T>(static_cast<Parameter>(sum));
  }
  void backward_filter() {
    const Index channels = p_.channels / p_.groups;
    for (const auto& [w, sum] :
         sums(dense_strides(p_.kernel, channels), {p_.filters, p_.kernel[0], p_.kernel[1], p_.kernel[2], channels},
              [&](auto&all, const Tap&t) { all[t.w] += real(y_[t.y]) * real(x_[t.x]); }))
      w_[w] = static_cast<T>(static_cast<Parameter>(sum));
  }

  const CudnnGraph& g_;
  const nn::local::detail::PaddedProblem& p_;
  T *x_, *y_, *w_;
  const Parameter* bias_;
};

struct HostPlan {
  CudnnGraph graph;
  Index bytes = 0;
  std::int64_t number = 7;
  std::int64_t engine() const { return number; }
  Index workspace_bytes() const { return bytes; }
};

template <class T>
struct HostEngines {
  using Plan = HostPlan;

  std::function<bool(const CudnnGraph&)> refuses = [](const CudnnGraph&) { return false; };
  Index bytes = 64;  ///< workspace of each plan
  int engines = 1;   ///< for each graph, with the numbers from 7 on
  std::function<bool(const Plan&)> refuses_pointers = [](const Plan&) { return false; };
  std::vector<std::pair<CudnnGraph, CudnnPlanOptions>> asked = {};
  int runs = 0;

  std::vector<Plan> plans(const CudnnGraph& graph, const CudnnPlanOptions& options) {
    asked.emplace_back(graph, options);
    if (refuses(graph) || bytes > options.most_workspace_bytes || options.first >= engines) return {};
    return {{graph, bytes, 7 + options.first}};
  }
  bool run(const Plan& plan, const CudnnOperands& operands, const Exec& exec) {
    if (refuses_pointers(plan)) return false;
    exec.fence("aloni::test: the operands of a graph");
    const CudnnGraph& g = plan.graph;
    EXPECT_EQ(g.type, nn::element_type<T>);
    for (const auto& [pointer, alignment] :
         {std::pair{operands.input, g.input_alignment}, std::pair{operands.output, g.output_alignment},
          std::pair{operands.filters, g.filters_alignment}, std::pair{operands.bias, g.bias_alignment}})
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(pointer) % static_cast<std::uintptr_t>(alignment), 0u);
    EXPECT_EQ(operands.bias != nullptr, g.bias);
    std::memset(operands.workspace, 0xff, static_cast<std::size_t>(plan.bytes));
    GraphOnHost<T>(g, operands).run();
    ++runs;
    return true;
  }
};

template <class T>
using Tested = CudnnConvolution<T, Exec, HostEngines<T>>;

/// Sums of values up to 1 stay below 256, so bfloat16 is exact even if it is rounded twice.
std::vector<ConvolutionProblem> problems() {
  const ConvolutionProblem usual{.samples = 2,
                                 .channels = 6,
                                 .filters = 4,
                                 .input = {1, 5, 6},
                                 .output = {1, 5, 6},
                                 .kernel = {1, 3, 3},
                                 .offset = {0, -1, -1}};
  std::vector<ConvolutionProblem> all(11, usual);
  all[1].stride = {1, 2, 2}, all[1].output = {1, 3, 3};
  all[2].input = {1, 8, 8}, all[2].stride = {1, 2, 2}, all[2].kernel = {1, 1, 1};  // rows that no output reads
  all[2].output = {1, 3, 3}, all[2].offset = {0, 1, 1};
  all[3].groups = 2, all[3].dilation = {1, 2, 1}, all[3].offset = {0, -2, -1};
  all[4].groups = 6, all[4].filters = 12;
  all[5].input = all[5].output = {3, 4, 3}, all[5].kernel = {3, 3, 1}, all[5].offset = {-1, -1, 0};
  all[6].input = {1, 7, 6}, all[6].offset = {0, 0, -1};  // ghost rows on both sides
  all[7].offset = {0, 20, 0};                            // no output reads an input
  all[8].samples = 0;
  all[9].input = {1, 10, 8}, all[9].kernel = {1, 1, 1}, all[9].stride = {1, 4, 3};  // a window behind the last row
  all[9].output = {1, 4, 3}, all[9].offset = {0, 0, 1};
  all[10].kernel = {1, 1, 2}, all[10].stride = {1, 3, 3}, all[10].offset = {0, -2, -3};  // and before the first one
  all[10].output = {1, 3, 3};
  return all;
}

constexpr Placement ghosted{.before = {0, 0, 1, 2, 0}, .after = {0, 0, 1, 0, 0}};
constexpr Placement behind_another_filter{.before = {1, 0, 0, 0, 0}};

template <class T>
struct Data {
  using Parameter = parameter_type_t<T>;
  LocalTensor<T> x, y, dy, dx;
  LocalTensor<Parameter> w, dw;
  LocalArray<Parameter> bias, db;

  Data(const ConvolutionProblem& p, std::mt19937& random, const Placement& at)
      : x(input_extents(p), at),
        y(output_extents(p), at),
        dy(output_extents(p), at),
        dx(input_extents(p), at),
        w(filter_extents(p), behind_another_filter),
        dw(filter_extents(p), behind_another_filter),
        bias(p.filters),
        db(p.filters, 55) {
    x.fill_integers(random, 1);
    dy.fill_integers(random, 1);
    w.fill_integers(random, 1);
    bias.fill([&] { return static_cast<int>(random() % 9) - 4; });
  }
  Data(const Data&) = delete;

  void run(LocalConvolution<T, Exec>& convolution, bool with_bias = true) {
    const Exec exec = test_space();
    convolution.forward(exec, x, w, with_bias ? bias.view() : nn::local::Array<Parameter, Exec>{}, y);
    convolution.backward_data(exec, dy, w, dx);
    convolution.backward_filter(exec, x, dy, dw, with_bias ? db.view() : nn::local::Array<Parameter, Exec>{});
    wait(exec);
    y.download(), dx.download(), dw.download(), db.download();
  }
};

/// Results of the reference for the same arguments.
template <class T>
struct Expected {
  LocalTensor<T> y, dx;
  LocalTensor<parameter_type_t<T>> dw;
  LocalArray<parameter_type_t<T>> db;
};
template <class T>
Expected<T> reference(const ConvolutionProblem& p, const Data<T>& data, bool with_bias, bool relu) {
  using Parameter = parameter_type_t<T>;
  const Exec exec = test_space();
  Expected<T> r{LocalTensor<T>(output_extents(p)), LocalTensor<T>(input_extents(p)),
                LocalTensor<Parameter>(filter_extents(p)), LocalArray<Parameter>(p.filters, 55)};
  const auto convolution =
      make_local_convolution<T>(ConvolutionBackend::reference, p, exec,
                                {.forward = true, .backward_data = true, .backward_filter = true, .relu = relu});
  const auto none = nn::local::Array<Parameter, Exec>{};
  convolution->forward(exec, data.x, data.w, with_bias ? data.bias.view() : none, r.y);
  convolution->backward_data(exec, data.dy, data.w, r.dx);
  convolution->backward_filter(exec, data.x, data.dy, r.dw, with_bias ? r.db.view() : none);
  wait(exec);
  r.y.download(), r.dx.download(), r.dw.download(), r.db.download();
  return r;
}

constexpr ConvolutionPasses all_passes(bool relu) {
  return {.forward = true, .backward_data = true, .backward_filter = true, .relu = relu};
}

template <class T>
void compare_with_reference(bool fused) {
  std::mt19937 random(test_seed());
  for (const ConvolutionProblem& p : problems()) {
    for (const Placement& at : {Placement{}, ghosted}) {
      for (const bool with_bias : {false, true}) {
        for (const bool relu : {false, true}) {
          SCOPED_TRACE(to_string(p) + (with_bias ? ", bias" : "") + (relu ? ", relu" : ""));
          const auto engines = std::make_shared<HostEngines<T>>();
          if (!fused) engines->refuses = [](const CudnnGraph& g) { return g.bias || g.relu; };
          Tested<T> convolution(p, test_space(), all_passes(relu), engines);
          EXPECT_FALSE(convolution.is_incomplete());
          Data<T> data(p, random, at);
          data.run(convolution, with_bias);
          const Expected<T> expected = reference(p, data, with_bias, relu);
          EXPECT_EQ(differing_bits(expected.y, data.y), 0) << "forward";
          EXPECT_EQ(differing_bits(expected.dx, data.dx), 0) << "backward-data";
          Index wrong = 0;  // of the gradient of the filters, which is rounded to T
          data.dw.for_each([&](auto... i) {
            wrong += data.dw(i...) != static_cast<parameter_type_t<T>>(static_cast<T>(expected.dw(i...)));
          });
          EXPECT_EQ(wrong, 0) << "backward-filter";
          for (Index f = 0; f < p.filters; ++f) EXPECT_EQ(data.db(f), expected.db(f)) << "bias gradient " << f;
          EXPECT_EQ(data.y.damaged() + data.dx.damaged(), 0) << "wrote beside its result";
        }
      }
    }
    if (testing::Test::HasFailure()) return;
  }
}

TEST(CudnnConvolution, FusedGraphsGiveTheBitsOfTheReference) {
  compare_with_reference<float>(true);
  compare_with_reference<double>(true);
  compare_with_reference<bfloat16>(true);
  compare_with_reference<comm::float16>(true);
}
TEST(CudnnConvolution, BiasAndReluFollowWhereNoEngineFusesThem) {
  compare_with_reference<float>(false);
  compare_with_reference<bfloat16>(false);
  compare_with_reference<comm::float16>(false);
}

TEST(CudnnConvolution, FusedResultsOfBfloat16AreRoundedOnce) {
  const ConvolutionProblem p{.samples = 1, .channels = 2, .filters = 1};
  const auto engines = std::make_shared<HostEngines<bfloat16>>();
  Tested<bfloat16> convolution(p, test_space(), {.forward = true}, engines);
  std::mt19937 random(1);
  Data<bfloat16> data(p, random, {});
  data.x.fill([value = 256.0F]() mutable { return std::exchange(value, 1.0F); });
  data.w.fill([] { return 1; });
  data.bias.fill([] { return 2; });
  const Exec exec = test_space();
  convolution.forward(exec, data.x, data.w, data.bias.view(), data.y);
  wait(exec);
  data.y.download();
  EXPECT_EQ(static_cast<float>(data.y(0, 0, 0, 0, 0)), 260.0F);  // 257 + 2; rounded twice it is 258
}

TEST(CudnnConvolution, ConvertsFiltersOnceForEachVersion) {
  std::mt19937 random(2);
  const ConvolutionProblem p = problems().front();
  Tested<bfloat16> convolution(p, test_space(), all_passes(false), std::make_shared<HostEngines<bfloat16>>());
  Data<bfloat16> data(p, random, {}), other(p, random, {});
  const Expected<bfloat16> before = reference(p, data, true, false);
  convolution.set_filter_version(1);
  data.run(convolution);
  EXPECT_EQ(differing_bits(before.y, data.y), 0);
  data.w.for_each([&](auto... i) { data.w(i...) = other.w(i...); });
  data.w.upload();
  const Expected<bfloat16> after = reference(p, data, true, false);
  ASSERT_GT(differing_bits(before.y, after.y), 0);
  data.run(convolution);  // of the same version: the copy is kept
  EXPECT_EQ(differing_bits(before.y, data.y), 0);
  EXPECT_EQ(differing_bits(before.dx, data.dx), 0);
  convolution.set_filter_version(2);
  data.run(convolution);
  EXPECT_EQ(differing_bits(after.y, data.y), 0);
  EXPECT_EQ(differing_bits(after.dx, data.dx), 0);
}

TEST(CudnnConvolution, KernelsOfOneStoreShareTheCopyOfTheFilters) {
  std::mt19937 random(5);
  const ConvolutionProblem p = problems().front();
  const auto engines = std::make_shared<HostEngines<bfloat16>>();
  const auto orders = make_filter_orders();
  ConvolutionPasses forward{.forward = true, .dense_input = true, .dense_output = true};
  ConvolutionPasses backward{.backward_data = true, .dense_input = true, .dense_output = true};
  Tested<bfloat16> one(p, test_space(), forward, engines, orders), two(p, test_space(), backward, engines, orders);
  EXPECT_EQ(one.workspace_bytes() + two.workspace_bytes(), 2 * 64u);
  EXPECT_EQ(orders->copy->bytes(), 2 * 4 * 9 * 6u);
  Data<bfloat16> data(p, random, {}), other(p, random, {});
  for (const std::uint64_t version : {0, 1, 2}) {
    one.set_filter_version(version), two.set_filter_version(version);
    data.w.for_each([&](auto... i) { data.w(i...) = static_cast<float>(random() % 3); });
    data.w.upload();
    const Expected<bfloat16> expected = reference(p, data, true, false);
    const Exec exec = test_space();
    one.forward(exec, data.x, data.w, data.bias.view(), data.y);
    two.backward_data(exec, data.dy, data.w, data.dx);
    wait(exec);
    data.y.download(), data.dx.download();
    EXPECT_EQ(differing_bits(expected.y, data.y), 0) << version;
    EXPECT_EQ(differing_bits(expected.dx, data.dx), 0) << version;
  }
  // Filters at another address, with the same version.
  const Expected<bfloat16> expected = reference(p, other, true, false);
  one.forward(test_space(), other.x, other.w, other.bias.view(), other.y);
  wait(test_space());
  other.y.download();
  EXPECT_EQ(differing_bits(expected.y, other.y), 0);
}

TEST(CudnnConvolution, PlansOncePerGraph) {
  std::mt19937 random(3);
  const ConvolutionProblem p = problems().front();
  const auto engines = std::make_shared<HostEngines<float>>();
  Tested<float> convolution(p, test_space(), all_passes(true), engines);
  Data<float> data(p, random, ghosted);
  data.run(convolution);
  const std::size_t asked = engines->asked.size();
  data.run(convolution);
  EXPECT_EQ(engines->asked.size(), asked);
  EXPECT_EQ(engines->runs, 6);
  EXPECT_EQ(convolution.implementation(ConvolutionPass::forward), "cudnn engine 7");
}

/// cuDNN proposes engines that then refuse pointers, although the graph names their alignment.
TEST(CudnnConvolution, TheNextEngineTakesThePlaceOfOneThatRefusesItsPointers) {
  std::mt19937 random(8);
  const ConvolutionProblem p = problems().front();
  const auto is_fused = [](const HostPlan& plan) { return plan.graph.bias || plan.graph.relu; };
  const std::vector<std::function<bool(const HostPlan&)>> cases{
      [](const HostPlan& plan) { return plan.number == 7; }, is_fused,
      [is_fused](const HostPlan& plan) { return is_fused(plan) || plan.number < 9; }};
  for (const auto& refuses_pointers : cases) {
    const auto engines = std::make_shared<HostEngines<float>>();
    engines->engines = 3;
    engines->refuses_pointers = refuses_pointers;
    Tested<float> convolution(p, test_space(), all_passes(true), engines);
    Data<float> data(p, random, ghosted);
    data.run(convolution);
    const Expected<float> expected = reference(p, data, true, true);
    EXPECT_EQ(differing_bits(expected.y, data.y), 0);
    EXPECT_EQ(differing_bits(expected.dx, data.dx), 0);
    const std::size_t asked = engines->asked.size();
    data.run(convolution);
    EXPECT_EQ(engines->asked.size(), asked) << "the choice is kept";
    EXPECT_EQ(engines->runs, 6);
  }
  // The last ones to be tried are those whose results may differ from run to run.
  for (const bool served : {true, false}) {
    const auto engines = std::make_shared<HostEngines<float>>();
    engines->refuses = [&](const CudnnGraph&) {
      engines->engines = engines->asked.back().second.repeatable ? 2 : 3;  // the third one is number 9
      return false;
    };
    engines->refuses_pointers = [&](const HostPlan& plan) { return plan.number < 9 || !served; };
    Tested<float> convolution(p, test_space(), {.forward = true}, engines);
    Data<float> data(p, random, {});
    const auto run = [&] { convolution.forward(test_space(), data.x, data.w, data.bias.view(), data.y); };
    if (served) {
      EXPECT_NO_THROW(run());
      EXPECT_EQ(convolution.implementation(ConvolutionPass::forward), "cudnn engine 9");
    } else {
      EXPECT_THROW(run(), Unsupported);
    }
  }
  const auto engines = std::make_shared<HostEngines<float>>();
  engines->refuses_pointers = [](const HostPlan&) { return true; };
  Tested<float> convolution(p, test_space(), {.forward = true}, engines);
  Data<float> data(p, random, {});
  EXPECT_THROW(convolution.forward(test_space(), data.x, data.w, data.bias.view(), data.y), Unsupported);
}

TEST(PaddedProblem, KnowsWindowsThatReadThePaddingOnly) {
  using nn::local::detail::padded_problem;
  const auto has_empty_windows = [](Index input, Index output, Index kernel, Index stride, Index dilation,
                                    Index offset) {
    const ConvolutionProblem p{.samples = 1,
                               .channels = 1,
                               .filters = 1,
                               .input = {1, input, 1},
                               .output = {1, output, 1},
                               .kernel = {1, kernel, 1},
                               .stride = {1, stride, 1},
                               .dilation = {1, dilation, 1},
                               .offset = {0, offset, 0}};
    return padded_problem(p).has_empty_windows();
  };
  EXPECT_FALSE(has_empty_windows(8, 8, 3, 1, 1, -1));
  EXPECT_FALSE(has_empty_windows(8, 4, 1, 2, 1, 0));
  EXPECT_FALSE(has_empty_windows(4, 8, 3, 1, 2, -4));  // each window reaches the input with one value
  EXPECT_TRUE(has_empty_windows(8, 9, 1, 1, 1, -1));   // the first one lies before the input
  EXPECT_TRUE(has_empty_windows(8, 5, 1, 2, 1, 0));    // the last one behind it
  EXPECT_TRUE(has_empty_windows(1, 1, 2, 1, 2, -1));   // the values of the window are on both sides of the input
}

TEST(CudnnConvolution, APassWithoutAnEngineIsIncomplete) {
  const auto engines = std::make_shared<HostEngines<float>>();
  engines->refuses = [](const CudnnGraph& g) { return g.pass == ConvolutionPass::backward_data; };
  const ConvolutionProblem p = problems().front();
  EXPECT_FALSE(Tested<float>(p, test_space(), {.forward = true}, engines).is_incomplete());
  EXPECT_TRUE(Tested<float>(p, test_space(), {.backward_data = true}, engines).is_incomplete());
}

TEST(CudnnConvolution, ATensorThatNoEngineTakesIsRefusedWithAnAlternative) {
  const auto engines = std::make_shared<HostEngines<float>>();
  const ConvolutionProblem p = problems().front();
  const CudnnStrides dense = dense_graph(p, ConvolutionPass::forward, nn::ElementType::float32).input_strides;
  engines->refuses = [dense](const CudnnGraph& g) { return g.input_strides != dense; };
  Tested<float> convolution(p, test_space(), {.forward = true}, engines);
  std::mt19937 random(4);
  Data<float> data(p, random, ghosted);
  try {
    convolution.forward(test_space(), data.x, data.w, data.bias.view(), data.y);
    ADD_FAILURE() << "no error";
  } catch (const Unsupported& e) {
    EXPECT_NE(std::string(e.what()).find("kokkos_kernels"), std::string::npos) << e.what();
  }
}

TEST(CudnnConvolution, Tf32IsAskedForOnlyIfThePassesSaySo) {
  for (const bool tf32 : {false, true}) {
    const auto engines = std::make_shared<HostEngines<float>>();
    const Tested<float> convolution(problems().front(), test_space(), {.forward = true, .tf32 = tf32}, engines);
    ASSERT_FALSE(engines->asked.empty());
    for (const auto& [graph, options] : engines->asked) EXPECT_EQ(options.reduced_precision, tf32);
  }
}

TEST(CudnnConvolution, TheCopiesOfBfloat16CountAsWorkspace) {
  const ConvolutionProblem p = problems().front();
  const auto bytes = [&](ConvolutionPasses passes) {
    passes.dense_input = passes.dense_output = true;
    return Tested<bfloat16>(p, test_space(), passes, std::make_shared<HostEngines<bfloat16>>()).workspace_bytes();
  };
  const std::size_t copy = 2 * 4 * 9 * 6;
  EXPECT_EQ(bytes({.forward = true}), 64 + copy);
  EXPECT_EQ(bytes({.forward = true, .backward_data = true}), 64 + copy);
  EXPECT_EQ(bytes({.backward_filter = true}), 64 + copy);
}

}  // namespace test_cudnn_convolution
}  // namespace aloni::test

#else

TEST(CudnnConvolution, ComputesGraphsOnTheHost) { GTEST_SKIP() << "a build for a device"; }

#endif

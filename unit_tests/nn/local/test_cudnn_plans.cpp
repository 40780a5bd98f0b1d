#include <aloni/core/error.hpp>
#include <aloni/nn/local/convolution_choice.hpp>
#include <aloni/nn/local/cudnn_engines.hpp>
#include <aloni/nn/local/detail/cudnn_plans.hpp>
#include <aloni/nn/local/detail/cudnn_refusal.hpp>
#include <aloni/nn/models.hpp>
#include <aloni/nn/network_plan.hpp>
#include <aloni/nn/plan/plan_step.hpp>
#include <aloni/nn/plan/representatives.hpp>
#include <aloni/nn/strategy.hpp>
#include <support/random_cases.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

// cuDNN makes plans for a device that is described, so these tests run on machines without one. They prove that it has
// an engine for each graph that the backend makes, and nothing about results.

namespace aloni::nn::local::detail {
namespace test_cudnn_plans {

using views::Box;

CudnnDevice device(const std::string& name) {
  std::ifstream file(std::string(ALONI_TEST_DEVICES) + "/" + name + ".json");
  std::stringstream text;
  text << file.rdbuf();
  return CudnnDevice::described(text.str());
}
/// Compute capabilities 8.0 and 9.0.
const std::array<std::string, 2> device_names{"a100", "h100"};

ConvolutionProblem usual_problem() {
  return {.samples = 8,
          .channels = 64,
          .filters = 64,
          .input = {1, 56, 56},
          .output = {1, 56, 56},
          .kernel = {1, 3, 3},
          .offset = {0, -1, -1}};
}
constexpr std::array all_passes{ConvolutionPass::forward, ConvolutionPass::backward_data,
                                ConvolutionPass::backward_filter};

class CudnnPlans : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto reason = cudnn_refusal()) GTEST_SKIP() << *reason;
  }
};

// A convolution of stride 2 with a kernel of 1 reads every second row of an even number.
TEST_F(CudnnPlans, AreOfTheWholeInputWhereTheRestIsLessThanAStride) {
  ConvolutionProblem p{
      .samples = 2, .channels = 8, .filters = 8, .input = {1, 56, 57}, .output = {1, 28, 28}, .stride = {1, 2, 2}};
  EXPECT_EQ(padded_problem(p).input, (std::array<Index, 3>{1, 55, 55}));
  EXPECT_EQ(cudnn_problem(p).input, (std::array<Index, 3>{1, 56, 55})) << "two columns are not less than a stride";
  p.input = {1, 54, 55};  // the last row of windows lies in the padding
  EXPECT_EQ(cudnn_problem(p), padded_problem(p));
}

TEST_F(CudnnPlans, EveryPassHasEnginesInEveryType) {
  for (const std::string& name : device_names) {
    for (const ElementType type :
         {ElementType::float32, ElementType::float64, ElementType::bfloat16, ElementType::float16}) {
      for (const ConvolutionPass pass : all_passes) {
        const auto plans = cudnn_plans(dense_graph(usual_problem(), pass, type), device(name));
        ASSERT_FALSE(plans.empty()) << name << " " << static_cast<int>(type) << " " << local::name(pass);
        EXPECT_GE(plans.front().engine(), 0);
        EXPECT_GE(plans.front().workspace_bytes(), 0);
        EXPECT_NE(plans.front().json().find('{'), std::string::npos);
      }
    }
  }
}

TEST_F(CudnnPlans, ReducedPrecisionIsAChoice) {
  const CudnnGraph graph = dense_graph(usual_problem(), ConvolutionPass::forward, ElementType::float32);
  const auto exact = cudnn_plans(graph, device("h100"), {.most = 100});
  for (const CudnnPlan& plan : exact) EXPECT_FALSE(plan.reduces_precision());
  const auto all = cudnn_plans(graph, device("h100"), {.most = 100, .reduced_precision = true});
  EXPECT_GT(all.size(), exact.size());
}

TEST_F(CudnnPlans, TheWorkspaceStaysWithinItsLimit) {
  const CudnnGraph graph = dense_graph(usual_problem(), ConvolutionPass::forward, ElementType::float32);
  bool exceeds = false;
  for (const CudnnPlan& plan : cudnn_plans(graph, device("h100"), {.most = 100}))
    exceeds = exceeds || plan.workspace_bytes() > 1024;
  EXPECT_TRUE(exceeds) << "no plan for which a limit matters";
  for (const CudnnPlan& plan : cudnn_plans(graph, device("h100"), {.most = 100, .most_workspace_bytes = 1024}))
    EXPECT_LE(plan.workspace_bytes(), 1024);
}

/// Measured times name engines: a plan of one engine is that engine's, and each listed engine has one.
TEST_F(CudnnPlans, AnEngineCanBeAskedFor) {
  for (const std::string& name : device_names) {
    for (const ConvolutionPass pass : all_passes) {
      const ConvolutionCase c{usual_problem(), pass, ElementType::float32};
      const std::vector<ConvolutionEngine> engines = engines_of(c, device(name), Index{1} << 30);
      ASSERT_GT(engines.size(), 1u) << name;
      std::set<std::int64_t> different;
      for (const ConvolutionEngine& e : engines) {
        EXPECT_TRUE(different.insert(e.engine).second);
        const auto plans =
            cudnn_plans(dense_graph(c.problem, pass, c.type), device(name), {.most = 1, .engine = e.engine});
        ASSERT_EQ(plans.size(), 1u);
        EXPECT_EQ(plans.front().engine(), e.engine);
        EXPECT_EQ(plans.front().workspace_bytes(), e.workspace_bytes);
      }
      EXPECT_TRUE(cudnn_plans(dense_graph(c.problem, pass, c.type), device(name), {.engine = 99'999}).empty());
      for (const ConvolutionEngine& e : engines_of(c, device(name), 1024)) EXPECT_LE(e.workspace_bytes, 1024);
    }
  }
  ConvolutionCase empty{usual_problem(), ConvolutionPass::forward, ElementType::float32};
  empty.problem.samples = 0;
  EXPECT_TRUE(engines_of(empty, device("a100"), Index{1} << 30).empty());
}

TEST_F(CudnnPlans, TheBiasAndTheReluOfFloatAreFused) {
  for (const std::string& name : device_names) {
    CudnnGraph graph = dense_graph(usual_problem(), ConvolutionPass::forward, ElementType::float32);
    graph.bias = true;
    EXPECT_FALSE(cudnn_plans(graph, device(name)).empty()) << name;
    graph.relu = true;
    EXPECT_FALSE(cudnn_plans(graph, device(name)).empty()) << name << ", with ReLU";
  }
}

TEST_F(CudnnPlans, FiltersWithTheAlignmentOfAnElementHaveFewerEngines) {
  const ConvolutionProblem problem = usual_problem();
  for (const std::string& name : device_names) {
    CudnnGraph graph = dense_graph(problem, ConvolutionPass::forward, ElementType::bfloat16);
    const auto aligned = cudnn_plans(graph, device(name), {.most = 100});
    graph.filters_alignment = 2;
    const auto unaligned = cudnn_plans(graph, device(name), {.most = 100});
    EXPECT_LT(unaligned.size(), aligned.size()) << name;
    EXPECT_FALSE(unaligned.empty()) << name;
  }
}

TEST_F(CudnnPlans, ADescriptionWithoutAllPropertiesIsRefused) {
  EXPECT_THROW(CudnnDevice::described("{\"deviceVer\": 900}"), Error);
}

/// The graphs of the convolutions of training steps, by a text that tells them apart.
class Graphs {
 public:
  void add(const NetworkDescription& net, const std::string& split, int ranks, Index samples,
           ElementType activations = ElementType::float32) {
    MachineDescription machine{.on_host = false};
    machine.cudnn = true;
    machine.nodes.assign(static_cast<std::size_t>(ranks), 0);
    const NetworkPlan layers =
        plan_network(net, resolve(Strategy::uniform(LayerSplit::parse(split)), net, ranks), ranks, samples);
    for (const int rank : find_representatives(net, layers, machine).ranks) {
      const StepPlan plan = plan_step(net, layers, rank, StepKind::training, machine, {.activations = activations});
      for (const PlanNode& node : plan.nodes) {
        if (const auto* convolution = std::get_if<ConvolutionWork>(&node.work)) add(plan, *convolution);
        if (const auto* gradient = std::get_if<FilterGradientWork>(&node.work)) add(plan, *gradient);
      }
    }
  }
  const std::map<std::string, CudnnGraph>& all() const { return all_; }

 private:
  void add(const StepPlan& plan, const ConvolutionWork& w) {
    for (const ConvolutionCall& call : w.calls) {
      if (!call.computes) continue;
      if (w.gathers) {
        add(plan, call, ConvolutionPass::forward, w.source, call.source, w.target, call.target, w.bias != no_buffer,
            w.relu);
      } else {
        add(plan, call, ConvolutionPass::backward_data, w.target, call.target, w.source, call.source, false, false);
      }
    }
  }
  void add(const StepPlan& plan, const FilterGradientWork& w) {
    for (const ConvolutionCall& call : w.calls) {
      if (!call.computes) continue;
      const BufferId input = w.transposed ? w.dy : w.x, output = w.transposed ? w.x : w.dy;
      const Box& in = w.transposed ? call.target : call.source;
      const Box& out = w.transposed ? call.source : call.target;
      add(plan, call, ConvolutionPass::backward_filter, input, in, output, out, false, false);
    }
  }
  void add(const StepPlan& plan, const ConvolutionCall& call, ConvolutionPass pass, BufferId input, const Box& in,
           BufferId output, const Box& out, bool bias, bool relu) {
    ASSERT_EQ(call.backend, ConvolutionBackend::cudnn) << to_string(call.problem);
    const auto type_of = [&](BufferId b) { return plan.buffers[static_cast<std::size_t>(b)].type; };
    // Partial sums are float, from a copy of the source in float.
    const bool copies = type_of(input) != type_of(output);
    const ElementType type = copies ? ElementType::float32 : type_of(input);
    // Parameters lie one behind the other: any of them may have the alignment of an element only. For bfloat16 the
    // filters are copied.
    CudnnGraph graph{.problem = cudnn_problem(call.problem),
                     .pass = pass,
                     .type = type,
                     .bias = bias,
                     .relu = relu,
                     .filters_alignment = is_16_bit(type) ? 16 : 4,
                     .bias_alignment = 4};
    const PaddedProblem& p = graph.problem;
    if (p.samples == 0 || p.reads_nothing()) return;
    std::tie(graph.input_strides, graph.input_alignment) = layout_of(plan, input, in, p.first);
    std::tie(graph.output_strides, graph.output_alignment) = layout_of(plan, output, out, {0, 0, 0});
    if (copies && pass == ConvolutionPass::forward)
      graph.input_strides = dense_strides(call.problem.input, p.channels), graph.input_alignment = 4;
    if (copies && pass == ConvolutionPass::backward_data)
      graph.output_strides = dense_strides(call.problem.output, p.filters), graph.output_alignment = 4;
    std::string text =
        std::string(nn::name(type)) + " " + to_string(call.problem) + " " + std::string(local::name(pass));
    for (const auto* strides : {&graph.input_strides, &graph.output_strides})
      for (const Index stride : *strides) text += " " + std::to_string(stride);
    text += " " + std::to_string(graph.input_alignment) + " " + std::to_string(graph.output_alignment);
    text += bias ? " bias" : "";
    text += relu ? " relu" : "";
    all_.emplace(text, graph);
  }
  /// Strides of a box of a buffer, and the alignment of `first` in it.
  static std::pair<CudnnStrides, Index> layout_of(const StepPlan& plan, BufferId b, const Box& box,
                                                  const std::array<Index, 3>& first) {
    const Box& whole = plan.buffers[static_cast<std::size_t>(b)].box;
    const auto extent = [&](std::size_t i) { return whole.hi[i] - whole.lo[i]; };
    const CudnnStrides strides = dense_strides({extent(1), extent(2), extent(3)}, extent(4));
    Index offset = 0;
    for (std::size_t i = 0; i < 5; ++i)
      offset += (box.lo[i] - whole.lo[i] + (i > 0 && i < 4 ? first[i - 1] : 0)) * strides[i];
    Index alignment = 16;
    const Index bytes = bytes_of(plan.buffers[static_cast<std::size_t>(b)].type);
    while (offset * bytes % alignment != 0) alignment /= 2;
    return {strides, alignment};
  }

  std::map<std::string, CudnnGraph> all_;
};

void expect_engines(const Graphs& graphs, const char* what) {
  for (const std::string& name : device_names) {
    const CudnnDevice described = device(name);
    std::map<std::pair<ConvolutionPass, std::int64_t>, int> engines;
    Index largest = 0;
    int unfused = 0;
    for (const auto& [text, graph] : graphs.all()) {
      auto plans = cudnn_plans(graph, described, {.most = 1});
      if (plans.empty() && (graph.bias || graph.relu)) {
        ++unfused;
        CudnnGraph plain = graph;
        plain.bias = plain.relu = false;
        plans = cudnn_plans(plain, described, {.most = 1});
      }
      ASSERT_FALSE(plans.empty()) << name << ": no engine for " << text;
      ++engines[{graph.pass, plans.front().engine()}];
      largest = std::max(largest, plans.front().workspace_bytes());
    }
    std::printf("%s on %s: %zu graphs, %d not fused, workspace up to %.1f MiB; engine × graphs:", what, name.c_str(),
                graphs.all().size(), unfused, static_cast<double>(largest) / (1 << 20));
    for (const ConvolutionPass pass : all_passes) {
      std::printf(" %s", std::string(local::name(pass)).c_str());
      for (const auto& [key, count] : engines)
        if (key.first == pass) std::printf(" %lldx%d", static_cast<long long>(key.second), count);
    }
    std::printf("\n");
  }
}

TEST_F(CudnnPlans, HasAnEngineForEachConvolutionOfResnet50) {
  Graphs graphs;
  graphs.add(make_model("resnet50"), "h2w2", 4, 32);
  EXPECT_GT(graphs.all().size(), 100u);
  expect_engines(graphs, "ResNet-50, h2w2");
}

TEST_F(CudnnPlans, HasAnEngineForEachConvolutionOfResnet50InBfloat16) {
  Graphs graphs;
  graphs.add(make_model("resnet50"), "h2w2", 4, 32, ElementType::bfloat16);
  EXPECT_GT(graphs.all().size(), 100u);
  expect_engines(graphs, "ResNet-50, h2w2, bfloat16");
}

TEST_F(CudnnPlans, HasAnEngineForEachConvolutionOfResnet50InFloat16) {
  Graphs graphs;
  graphs.add(make_model("resnet50"), "h2w2", 4, 32, ElementType::float16);
  expect_engines(graphs, "ResNet-50, h2w2, float16");
}

TEST_F(CudnnPlans, HasAnEngineForEachConvolutionOfMesh1kInBfloat16) {
  Graphs graphs;
  graphs.add(make_model("mesh1k"), "h2w2", 4, 2, ElementType::bfloat16);
  expect_engines(graphs, "mesh 1K, h2w2, bfloat16");
}

TEST_F(CudnnPlans, HasAnEngineForEachConvolutionOfMesh2k) {
  Graphs graphs;
  graphs.add(make_model("mesh2k"), "h2w2", 4, 2);
  expect_engines(graphs, "mesh 2K, h2w2");
}

TEST_F(CudnnPlans, HasAnEngineForEachConvolutionOfAVolume) {
  Graphs graphs;
  graphs.add(make_model("unet3d"), "d2h2", 4, 2);
  expect_engines(graphs, "3-D U-Net, d2h2");
}

TEST_F(CudnnPlans, HasAnEngineForEachConvolutionOfTheZoo) {
  if (!aloni::test::nightly()) GTEST_SKIP() << "runs at night: ALONI_NIGHTLY=1";
  for (const char* model : {"cosmoflow", "densenet121", "lenet5", "mesh1k", "resnet18", "unet2d", "vgg16"}) {
    for (const char* split : {"n4", "h2w2", "c4", "f4"}) {
      for (const ElementType type : {ElementType::float32, ElementType::bfloat16, ElementType::float16}) {
        Graphs graphs;
        graphs.add(make_model(model), split, 4, 8, type);
        expect_engines(graphs, (std::string(model) + ", " + split + ", " + nn::name(type)).c_str());
      }
    }
  }
}

}  // namespace test_cudnn_plans
}  // namespace aloni::nn::local::detail

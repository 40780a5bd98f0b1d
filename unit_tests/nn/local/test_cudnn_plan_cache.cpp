// Plans of cuDNN in files, for devices that are described: they come back as they were, and nothing else does.
#include <aloni/core/error.hpp>
#include <aloni/core/text_file.hpp>
#include <aloni/nn/local/detail/cudnn_plan_cache.hpp>
#include <aloni/nn/local/detail/cudnn_refusal.hpp>
#include <support/failing_files.hpp>
#include <support/temporary_folder.hpp>

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

namespace aloni::nn::local::detail {
namespace test_cudnn_plan_cache {

CudnnDevice device(const std::string& name) {
  const std::string folder = ALONI_TEST_DEVICES "/";
  std::ifstream file(folder + name + ".json");
  std::stringstream text;
  text << file.rdbuf();
  return CudnnDevice::described(text.str());
}

CudnnGraph graph(Index width = 56) {
  const ConvolutionProblem problem{.samples = 8,
                                   .channels = 64,
                                   .filters = 64,
                                   .input = {1, 56, width},
                                   .output = {1, 56, width},
                                   .kernel = {1, 3, 3},
                                   .offset = {0, -1, -1}};
  return dense_graph(problem, ConvolutionPass::forward, ElementType::bfloat16);
}
constexpr CudnnPlanOptions one{.most = 1};

class CudnnPlanFiles : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto reason = cudnn_refusal()) GTEST_SKIP() << *reason;
  }
  std::string folder() const { return folder_.path("deep/plans"); }

  aloni::test::TemporaryFolder folder_;
};

void expect_equal(const CudnnPlan& a, const CudnnPlan& b) {
  EXPECT_EQ(a.engine(), b.engine());
  EXPECT_EQ(a.workspace_bytes(), b.workspace_bytes());
  EXPECT_EQ(a.reduces_precision(), b.reduces_precision());
  EXPECT_EQ(a.json(), b.json());
}

TEST_F(CudnnPlanFiles, APlanComesBackAsItWasInAnotherProcess) {
  for (const char* name : {"a100", "h100"}) {
    CudnnPlanCache first(folder(), device(name));
    ASSERT_FALSE(first.find(graph(), one));
    const std::vector<CudnnPlan> made = first.plans(graph(), one);
    ASSERT_EQ(made.size(), 1u);
    const CudnnPlanCache second(folder(), device(name));  // knows the files only
    std::string reason;
    const auto kept = second.find(graph(), one, &reason);
    ASSERT_TRUE(kept) << reason;
    expect_equal(*kept, made.front());
  }
}

TEST_F(CudnnPlanFiles, OtherGraphsOptionsAndDevicesHaveOtherFiles) {
  CudnnPlanCache cache(folder(), device("h100"));
  (void)cache.plans(graph(), one);
  EXPECT_FALSE(cache.find(graph(28), one));
  EXPECT_FALSE(cache.find(graph(), {.most = 1, .first = 1}));
  EXPECT_FALSE(cache.find(graph(), {.most = 1, .most_workspace_bytes = 1024}));
  EXPECT_FALSE(cache.find(graph(), {.most = 1, .reduced_precision = true}));
  CudnnGraph unaligned = graph();
  unaligned.filters_alignment = 2;
  EXPECT_FALSE(cache.find(unaligned, one));
  CudnnGraph fused = graph();
  fused.bias = true;
  EXPECT_FALSE(cache.find(fused, one));
  EXPECT_FALSE(CudnnPlanCache(folder(), device("a100")).find(graph(), one));
  EXPECT_TRUE(cache.find(graph(), one));
}

TEST_F(CudnnPlanFiles, ADamagedFileIsReplaced) {
  CudnnPlanCache cache(folder(), device("h100"));
  const CudnnPlan made = cache.plans(graph(), one).front();
  const std::string path = cache.path_of(graph(), one), whole = read_text_file("test", path, "a plan");
  const auto write = [&](const std::string& text) { std::ofstream(path, std::ios::binary) << text; };
  const auto expect_refused = [&](const std::string& text, const std::string& why) {
    write(text);
    std::string reason;
    EXPECT_FALSE(cache.find(graph(), one, &reason));
    EXPECT_NE(reason.find(why), std::string::npos) << reason;
    EXPECT_NE(reason.find(path), std::string::npos) << reason;
  };
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{10}, whole.size() / 2, whole.size() - 1})
    expect_refused(whole.substr(0, bytes), "damaged");
  for (const std::size_t at : {std::size_t{3}, std::size_t{20}, whole.size() / 2, whole.size() - 2}) {
    std::string flipped = whole;
    flipped[at] = static_cast<char>(flipped[at] ^ 4);
    expect_refused(flipped, "damaged");
  }
  expect_equal(cache.plans(graph(), one).front(), made);
  EXPECT_EQ(read_text_file("test", path, "a plan"), whole);
}

TEST_F(CudnnPlanFiles, AFileOfAnotherConvolutionIsRefused) {
  CudnnPlanCache cache(folder(), device("h100"));
  (void)cache.plans(graph(28), one);
  std::filesystem::copy_file(cache.path_of(graph(28), one), cache.path_of(graph(), one));
  std::string reason;
  EXPECT_FALSE(cache.find(graph(), one, &reason));
  EXPECT_NE(reason.find("another convolution"), std::string::npos) << reason;
}

TEST_F(CudnnPlanFiles, TextThatIsNoPlanIsRefusedByCudnn) {
  for (const char* text : {"", "{}", "no plan", "{\"version\": 1}"})
    EXPECT_FALSE(CudnnPlan::from_json(text, device("h100"), 0, false)) << text;
}

TEST_F(CudnnPlanFiles, WithoutAFolderNothingIsKept) {
  CudnnPlanCache cache("", device("h100"));
  EXPECT_EQ(cache.path_of(graph(), one), "");
  EXPECT_EQ(cache.plans(graph(), one).size(), 1u);
  EXPECT_FALSE(cache.find(graph(), one));
}

TEST_F(CudnnPlanFiles, AFailureOfAnyCallEndsTheKeepingAndNotTheWork) {
  aloni::test::FailingFiles none;
  CudnnPlanCache whole(folder(), device("h100"), none);
  const CudnnPlan made = whole.plans(graph(), one).front();
  const int calls = none.calls();
  ASSERT_GT(calls, 5);
  for (int call = 1; call <= calls; ++call) {
    SCOPED_TRACE("call " + std::to_string(call));
    aloni::test::FailingFiles files;
    files.fail_at(call);
    CudnnPlanCache cache(folder() + std::to_string(call), device("h100"), files);
    expect_equal(cache.plans(graph(), one).front(), made);
    const int until_then = files.calls();
    EXPECT_EQ(cache.plans(graph(28), one).size(), 1u);
    EXPECT_EQ(files.calls(), until_then) << "keeps on after a failure";
    if (const auto kept = cache.find(graph(), one)) expect_equal(*kept, made);
  }
}

}  // namespace test_cudnn_plan_cache
}  // namespace aloni::nn::local::detail

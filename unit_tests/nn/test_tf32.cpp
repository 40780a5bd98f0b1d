// TF32 is a choice of the user, for convolutions of float by cuDNN. Everything else refuses it or ignores it.
#include "support/transport.hpp"

#include <aloni/core/error.hpp>
#include <aloni/nn/models.hpp>
#include <aloni/nn/network.hpp>
#include <aloni/nn/plan/plan_step.hpp>
#include <aloni/nn/plan/verify.hpp>
#include <aloni/nn/trainer.hpp>

#include <gtest/gtest.h>

#include <string>
#include <variant>
#include <vector>

namespace aloni::nn::test {
namespace test_tf32 {

using local::ConvolutionBackend;

struct Planned {
  NetworkDescription net = lenet5(views::make_extents(1, {28, 28}, 1), 10);
  NetworkPlan layers = plan_network(net, resolve(Strategy::uniform({}), net, 1), 1, 4);

  StepPlan plan(bool cudnn, const StepOptions& options) const {
    MachineDescription machine{.on_host = false};
    machine.cudnn = cudnn;
    return plan_step(net, layers, 0, StepKind::training, machine, options);
  }
};

/// f for each call of a convolution, with its node.
template <class F>
void for_each_call(StepPlan& plan, const F& f) {
  for (PlanNode& node : plan.nodes) {
    if (auto* work = std::get_if<ConvolutionWork>(&node.work))
      for (ConvolutionCall& call : work->calls) f(node, call);
    if (auto* work = std::get_if<FilterGradientWork>(&node.work))
      for (ConvolutionCall& call : work->calls) f(node, call);
  }
}

TEST(Tf32, IsPlannedForConvolutionsOfFloatByCudnn) {
  const Planned planned;
  const auto calls_in_tf32 = [&](bool cudnn, const StepOptions& options) {
    std::vector<StepPlan> plans{planned.plan(cudnn, options)};
    EXPECT_FALSE(verify(planned.layers, plans));
    int calls = 0, in_tf32 = 0;
    for_each_call(plans.front(), [&](const PlanNode& node, const ConvolutionCall& call) {
      ++calls;
      in_tf32 += call.tf32 ? 1 : 0;
      if (call.tf32) {
        EXPECT_EQ(implementations(node.work), "cudnn in TF32");
      }
    });
    EXPECT_GT(calls, 3);
    return in_tf32 == calls ? std::string("all") : std::to_string(in_tf32);
  };
  EXPECT_EQ(calls_in_tf32(true, {.tf32 = true}), "all");
  EXPECT_EQ(calls_in_tf32(true, {}), "0");
  EXPECT_EQ(calls_in_tf32(false, {.tf32 = true}), "0");
  EXPECT_EQ(calls_in_tf32(true, {.activations = ElementType::float64, .tf32 = true}), "0");
  EXPECT_EQ(calls_in_tf32(true, {.activations = ElementType::bfloat16, .tf32 = true}), "0");
  EXPECT_EQ(calls_in_tf32(true, {.backend = ConvolutionBackend::kokkos_kernels, .tf32 = true}), "0");
}

TEST(Tf32, OfAnotherImplementationIsRefusedByVerify) {
  const Planned planned;
  std::vector<StepPlan> plans{planned.plan(true, {.tf32 = true})};
  bool changed = false;
  for_each_call(plans.front(), [&](const PlanNode&, ConvolutionCall& call) {
    if (!changed) call.backend = ConvolutionBackend::kokkos_kernels;
    changed = true;
  });
  const auto fault = verify(planned.layers, plans);
  ASSERT_TRUE(fault);
  EXPECT_NE(to_string(*fault).find("TF32"), std::string::npos) << to_string(*fault);
}

template <class T>
void expect_refusal(const comm::Communicator& comm, ConvolutionBackend backend, const std::string& alternative) {
  using Exec = execution_space_t<T>;
  const Queue<Exec> queue;
  const NetworkDescription net = lenet5(views::make_extents(1, {28, 28}, 1), 10);
  Parameters<parameter_type_t<T>, Exec> parameters(comm, queue, net, 1);
  try {
    const Network<T, Exec> network(comm, queue, net, Strategy::uniform({}), 4, parameters,
                                   {.backend = backend, .tf32 = true});
    ADD_FAILURE() << "no error";
  } catch (const Unsupported& e) {
    EXPECT_NE(std::string(e.what()).find("options.tf32"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find(alternative), std::string::npos) << e.what();
  }
}

TEST(Tf32, ANetworkThatCannotMultiplyInItIsRefusedOnAllRanks) {
  const auto comm = aloni::test::make_communicator();
  expect_refusal<double>(comm, ConvolutionBackend::automatic, "products of float");
  expect_refusal<float>(comm, ConvolutionBackend::reference, "automatic");
  if (local::unsupported_reason<float>(ConvolutionBackend::cudnn, {}, local::ConvolutionPass::forward))
    expect_refusal<float>(comm, ConvolutionBackend::automatic, "needs cuDNN");
  comm.barrier();  // the communicator still works
}

}  // namespace test_tf32
}  // namespace aloni::nn::test

// Trainings whose kernels are recorded as graphs of a device. Without a device they are refused.
#include "support/transport.hpp"

#include <aloni/core/error.hpp>
#include <aloni/nn/models.hpp>
#include <aloni/nn/step_recorder.hpp>
#include <aloni/nn/trainer.hpp>

#include <gtest/gtest.h>

#include <vector>

namespace aloni::nn::test {
namespace test_recorded_steps {

TEST(RecordedSteps, HaveTheSameLosses) {
  const comm::Communicator comm = aloni::test::make_communicator();
  const NetworkDescription net = make_model("resnet18", {.input = views::Extents{{1, 1, 16, 16, 3}}});
  const Strategy strategy = Strategy::uniform(LayerSplit::parse("n" + std::to_string(comm.size())));
  const auto losses = [&](bool record, const MemoryWish& memory) {
    TrainOptions options{.batch = 8, .steps = 6};
    options.record = record;
    options.memory = memory;
    return train_on_synthetic_data<float>(comm, net, strategy, options).losses;
  };
  if (!make_step_recorder<execution_space_t<float>>()) {
    EXPECT_THROW(losses(true, {}), Unsupported);
    return;
  }
  const std::vector<double> expected = losses(false, {});
  EXPECT_EQ(losses(true, {}), expected);
  EXPECT_EQ(losses(true, {.offload = "stage1.*"}), expected);
  EXPECT_EQ(losses(true, {.recompute = "stage1.*"}), expected);
}

}  // namespace test_recorded_steps
}  // namespace aloni::nn::test

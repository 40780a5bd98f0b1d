// Networks for inference give the results of evaluate() in less memory, and refuse to train.
#include "random_network.hpp"
#include "split_harness.hpp"
#include "support/random_cases.hpp"
#include "support/transport.hpp"

#include <aloni/core/error.hpp>
#include <aloni/nn/data/synthetic.hpp>
#include <aloni/nn/models.hpp>

#include <gtest/gtest.h>

#include <string>

namespace aloni::nn::test {
namespace test_inference {

TEST(Inference, GivesTheResultsOfATrainedNetwork) {
  const auto comm = aloni::test::make_communicator();
  const Queue<> queue;
  for (int i = 0; i < aloni::test::random_cases(20); ++i) {
    Dice dice(static_cast<std::uint64_t>(i) + 1000 * static_cast<std::uint64_t>(comm.size()));
    const NetworkDescription net = random_network(dice, Kinds::all);
    const Index samples = dice(1, 5);
    const Strategy strategy = random_strategy(dice, net, splits_for(comm.size(), net.spatial_rank));
    SCOPED_TRACE("case " + std::to_string(i) + ", strategy " + to_string(strategy));
    const auto splits = resolve(strategy, net, comm.size());
    Parameters<double> learned(comm, queue, net, splits, 7);
    Parameters<double> values(comm, queue, net, splits, 7, ParameterUse::inference);
    Network<double> trains(comm, queue, net, strategy, samples, learned);
    Network<double> infers(comm, queue, net, strategy, samples, values, {.inference = true});
    for (std::uint64_t step = 0; step < 2; ++step) {
      fill_synthetic(queue, net, 3, step, trains);
      fill_synthetic(queue, net, 3, step, infers);
      const StepResult expected = trains.evaluate(queue), found = infers.evaluate(queue);
      EXPECT_EQ(found.loss, expected.loss);
      EXPECT_EQ(found.correct, expected.correct);
      EXPECT_EQ(difference(infers.output(), views::whole(views::extents_of(infers.output_box())), trains.output()), 0);
    }
    EXPECT_LE(infers.planned_bytes(), trains.planned_bytes());
  }
}

TEST(Inference, NeedsAFractionOfTheMemory) {
  if (aloni::test::sanitized) GTEST_SKIP() << "a large model, whose planned bytes do not change there";
  const auto comm = aloni::test::make_communicator();
  const Queue<> queue;
  const NetworkDescription net = make_model("resnet18", {.input = views::make_extents(1, {32, 32}, 3)});
  const Strategy strategy = Strategy::uniform(LayerSplit::parse("n" + std::to_string(comm.size())));
  Parameters<float> values(comm, queue, net, 1, ParameterUse::inference);
  Parameters<float> learned(comm, queue, net, 1);
  const Network<float> trains(comm, queue, net, strategy, 32, learned);
  const Network<float> infers(comm, queue, net, strategy, 32, values, {.inference = true});
  const auto learned_bytes = static_cast<Index>(sizeof(float)) * values.size();
  // Training also keeps gradients and momenta.
  EXPECT_LT(infers.planned_bytes() + learned_bytes,
            0.6 * static_cast<double>(trains.planned_bytes() + 3 * learned_bytes));
}

TEST(Inference, RefusesToTrain) {
  const auto comm = aloni::test::make_communicator();
  const Queue<> queue;
  const NetworkDescription net = lenet5(views::make_extents(1, {28, 28}, 1), 10);
  Parameters<float> values(comm, queue, net, 1, ParameterUse::inference);
  EXPECT_FALSE(values.trains());
  EXPECT_THROW(values.sgd(queue, {}), InvalidArgument);
  EXPECT_THROW(Network<float>(comm, queue, net, Strategy::uniform({}), 4, values), InvalidArgument);
  Network<float> network(comm, queue, net, Strategy::uniform({}), 4, values, {.inference = true});
  EXPECT_THROW(network.train_step(queue), InvalidArgument);
  EXPECT_THROW(network.forward(queue, Mode::training), InvalidArgument);
  EXPECT_THROW(network.backward(queue), InvalidArgument);
  EXPECT_THROW(network.reduce_gradients(queue), InvalidArgument);
  EXPECT_THROW((void)network.output_gradient(), InvalidArgument);
  network.forward(queue, Mode::evaluation);
}

}  // namespace test_inference
}  // namespace aloni::nn::test

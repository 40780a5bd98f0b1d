// Every loss: known values, and the same loss, correct predictions and gradients in every split.
#include "loss_cases.hpp"
#include "support/random_cases.hpp"
#include "support/transport.hpp"

#include <aloni/core/error.hpp>

#include <array>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

namespace aloni::nn::test {
namespace test_losses {

constexpr int classes = 3;

NetworkDescription net_of(Loss loss) { return net_of_loss(loss, classes); }

template <class T>
StepResult train(Run<T>& run, Loss loss) {
  fill<T>(run.network.input(), run.network.input_box(), run.network.input_distribution().extents(), Values::reals,
          run.seed, 2);
  fill_targets(run, loss);
  return run.network.train_step(run.queue);
}

/// The loss of one rank, computed from the output by its formula.
StepResult expected_result(Run<double>& run, Loss loss) {
  const auto z = on_host(run.network.output());
  const Extents e = run.network.output_distribution().extents();
  const auto pixel_loss = [&](Index n, Index h, Index w, int label, bool& right) {
    double total = 0, largest = z(n, 0, h, w, 0);
    int best = 0;
    for (int c = 0; c < classes; ++c) {
      total += std::exp(z(n, 0, h, w, c));
      if (z(n, 0, h, w, c) > largest) {
        best = c;
        largest = z(n, 0, h, w, c);
      }
    }
    right = best == label;
    return std::log(total) - z(n, 0, h, w, label);
  };
  StepResult r;
  double intersection = 0, squares = 0;
  Index count = 0;
  for (Index n = 0; n < e[Dim::sample]; ++n) {
    for (Index h = 0; h < e[Dim::height]; ++h) {
      for (Index w = 0; w < e[Dim::width]; ++w) {
        const Index pixel = (n * e[Dim::height] + h) * e[Dim::width] + w;
        if (targets_of(loss) != LossTargets::elements) {
          bool right = false;
          r.loss += pixel_loss(n, h, w, label_at(run.seed, pixel, classes), right);
          r.correct += right ? 1 : 0;
          ++count;
          continue;
        }
        for (Index c = 0; c < classes; ++c) {
          const double v = z(n, 0, h, w, c), t = target_at(run.seed, pixel * classes + c), p = 1 / (1 + std::exp(-v));
          if (loss == Loss::mean_squared_error) {
            r.loss += (v - t) * (v - t);
          } else {
            r.loss -= t * std::log(p) + (1 - t) * std::log(1 - p);
            r.correct += (v > 0) == (t > 0.5) ? 1 : 0;
          }
          intersection += p * t;
          squares += p * p + t * t;
          ++count;
        }
      }
    }
  }
  r.loss /= static_cast<double>(count);
  if (loss == Loss::dice) r.loss = 1 - 2 * intersection / squares;
  return r;
}

TEST(Losses, FollowTheirFormulas) {
  const auto comm = aloni::test::make_communicator();
  const auto self = comm.split(comm.rank(), 0);
  for (const Loss loss : all_losses) {
    SCOPED_TRACE(name(loss));
    auto run = run_of<double>(self, net_of(loss), Strategy::uniform({}), 3);
    const StepResult trained = train(run, loss), expected = expected_result(run, loss);
    EXPECT_NEAR(trained.loss, expected.loss, 1e-12 * (1 + expected.loss));
    EXPECT_EQ(trained.correct, expected.correct);
    const StepResult evaluated = run.network.evaluate(run.queue);
    EXPECT_NEAR(evaluated.loss, expected.loss, 1e-12 * (1 + expected.loss));
    EXPECT_EQ(evaluated.correct, expected.correct);
  }
}

TEST(Losses, AreEqualInEverySplit) {
  const auto comm = aloni::test::make_communicator();
  const auto self = comm.split(comm.rank(), 0);
  int number = 0;
  for (const Loss loss : all_losses) {
    const NetworkDescription net = net_of(loss);
    auto one = run_of<double>(self, net, Strategy::uniform({}), 3);
    const StepResult expected = train(one, loss);
    const auto alone = one.parameters.gather_gradients(one.queue);
    for (const LayerSplit& split : aloni::test::some_of(splits_for(comm.size(), 2), 32)) {
      if (!aloni::test::is_in_share(number++)) continue;
      SCOPED_TRACE(std::string(name(loss)) + ", " + to_string(split) + " " + std::string(name(split.overlap)));
      const Strategy strategy = strategy_of(net, std::vector(net.layers.size(), split));
      auto many = run_of<double>(comm, net, strategy, 3, number % 2 == 0 ? Weights::split : Weights::whole);
      const StepResult result = train(many, loss);
      EXPECT_NEAR(result.loss, expected.loss, 1e-10);
      EXPECT_EQ(result.correct, expected.correct);
      const auto gathered = many.parameters.gather_gradients(many.queue);
      double worst = 0;
      for (std::size_t k = 0; k < alone.extent(0); ++k) worst = std::max(worst, std::abs(gathered(k) - alone(k)));
      EXPECT_LE(worst, 1e-10);
      const StepResult evaluated = many.network.evaluate(many.queue);
      EXPECT_NEAR(evaluated.loss, expected.loss, 1e-10);
      EXPECT_EQ(evaluated.correct, expected.correct);
      if (comm.all_reduce(testing::Test::HasFailure() ? 1 : 0, comm::Reduction::max) == 1) return;
    }
  }
}

/// loss = (1 - s) ce(label) + s / C sum over c of ce(c), and its derivative by finite differences of one logit's bias.
TEST(Losses, OfLabelsAreSmoothedAsTheDefinitionSays) {
  const auto comm = aloni::test::make_communicator();
  const auto self = comm.split(comm.rank(), 0);
  constexpr double s = 0.3;
  for (const Loss loss : {Loss::softmax_cross_entropy, Loss::pixel_cross_entropy}) {
    SCOPED_TRACE(name(loss));
    NetworkDescription smooth = net_of(loss);
    smooth.label_smoothing = s;
    auto run = run_of<double>(self, smooth, Strategy::uniform({}), 3);
    const StepResult found = train(run, loss), plain = expected_result(run, loss);
    const auto z = on_host(run.network.output());
    double uniform = 0;  // mean over pixels and classes of the cross-entropy with class c
    for (std::size_t n = 0; n < z.extent(0); ++n) {
      for (std::size_t h = 0; h < z.extent(2); ++h) {
        for (std::size_t w = 0; w < z.extent(3); ++w) {
          double total = 0, sum = 0;
          for (int c = 0; c < classes; ++c) {
            total += std::exp(z(n, 0, h, w, c));
            sum += z(n, 0, h, w, c);
          }
          uniform += std::log(total) - sum / classes;
        }
      }
    }
    uniform /= static_cast<double>(z.size() / classes);
    EXPECT_NEAR(found.loss, (1 - s) * plain.loss + s * uniform, 1e-12);
    EXPECT_EQ(found.correct, plain.correct);

    const auto gradients = run.parameters.gather_gradients(run.queue), values = run.parameters.gather_values(run.queue);
    const std::size_t bias = values.extent(0) - 1;  // of the last class
    const auto loss_at = [&](double change) {
      const double before = values(bias);
      values(bias) += change;
      run.parameters.scatter_values(run.queue, values);
      values(bias) = before;
      return run.network.train_step(run.queue).loss;
    };
    EXPECT_NEAR(gradients(bias), (loss_at(1e-5) - loss_at(-1e-5)) / 2e-5, 1e-8);

    auto many =
        run_of<double>(comm, smooth, Strategy::uniform(LayerSplit::parse("h" + std::to_string(comm.size()))), 3);
    EXPECT_NEAR(train(many, loss).loss, found.loss, 1e-10);
  }
}

TEST(Losses, RefuseASmoothingThatDoesNotFit) {
  NetworkDescription net = net_of(Loss::pixel_cross_entropy);
  for (const double s : {-0.1, 1.0, std::nan("")}) {
    net.label_smoothing = s;
    EXPECT_THROW(infer_extents(net, 1), InvalidArgument) << s;
  }
  net = net_of(Loss::dice);
  net.label_smoothing = 0.1;
  EXPECT_THROW(infer_extents(net, 1), InvalidArgument);
}

TEST(Losses, AreFiniteAndFallInTraining) {
  const auto comm = aloni::test::make_communicator();
  const std::string p = std::to_string(comm.size());
  for (const Loss loss : all_losses) {
    SCOPED_TRACE(name(loss));
    auto run = run_of<float>(comm, net_of(loss), Strategy::uniform(LayerSplit::parse("h" + p)), 4);
    const double first = train(run, loss).loss;
    double last = first;
    for (int step = 0; step < 20; ++step) {
      run.parameters.sgd(run.queue, {.learning_rate = 0.05});
      last = run.network.train_step(run.queue).loss;
    }
    EXPECT_TRUE(std::isfinite(last));
    EXPECT_LT(last, first);
  }
}

TEST(Losses, OfDiceHasNoGradientWithoutForegroundAnywhere) {
  const auto comm = aloni::test::make_communicator();
  NetworkDescription net = net_of(Loss::dice);
  net.layers = {{"layer", Convolution{1, square_window(2, 1)}, {"input"}}};
  auto run = run_of<double>(comm, net, Strategy::uniform({}), 2);
  Kokkos::deep_copy(run.parameters.values(), 0.0);
  auto values = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, run.parameters.values());
  values(values.extent(0) - 1) = -1e6;  // the bias: every sigmoid is exactly 0
  Kokkos::deep_copy(run.parameters.values(), values);
  Kokkos::deep_copy(run.network.targets(), 0.0);
  const StepResult result = run.network.train_step(run.queue);
  EXPECT_EQ(result.loss, 0.0);
  EXPECT_EQ(result.correct, 2 * 7 * 6);
  const auto gradients = run.parameters.gather_gradients(run.queue);
  for (std::size_t k = 0; k < gradients.extent(0); ++k) EXPECT_EQ(gradients(k), 0.0);
}

TEST(Losses, OfPixelsMakeALabelOutsideTheClassesNaN) {
  const auto comm = aloni::test::make_communicator();
  auto run = run_of<double>(comm, net_of(Loss::pixel_cross_entropy), Strategy::uniform({}), 1);
  Kokkos::deep_copy(run.network.pixel_labels(), classes);
  EXPECT_TRUE(std::isnan(run.network.train_step(run.queue).loss));
}

TEST(Losses, OfSamplesRefuseAnOutputWithPixelsAndNameTheLossThatTakesIt) {
  NetworkDescription net = net_of(Loss::pixel_cross_entropy);
  EXPECT_NO_THROW(infer_extents(net, 1));
  net.layers.back().operation = Convolution{1, square_window(2, 1)};
  EXPECT_THROW(infer_extents(net, 1), InvalidArgument) << "one class";
  net.loss = Loss::softmax_cross_entropy;
  try {
    infer_extents(net, 1);
    FAIL() << "not refused";
  } catch (const InvalidArgument& e) {
    EXPECT_NE(std::string(e.what()).find("pixel_cross_entropy"), std::string::npos) << e.what();
  }
}

}  // namespace test_losses
}  // namespace aloni::nn::test

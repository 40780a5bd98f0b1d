// The sums of metrics by their definitions, in every split, and the metrics of a training's test set.
#include "loss_cases.hpp"
#include "support/random_cases.hpp"
#include "support/transport.hpp"

#include <aloni/nn/metrics.hpp>

#include <cmath>
#include <set>
#include <utility>
#include <vector>

namespace aloni::nn::test {
namespace test_metrics {

constexpr int classes = 8;  // more than five
constexpr Index samples = 3;

StepResult evaluate(Run<double>& run, Loss loss) {
  fill<double>(run.network.input(), run.network.input_box(), run.network.input_distribution().extents(), Values::reals,
               run.seed, 2);
  fill_targets(run, loss);
  return run.network.evaluate(run.queue);
}

std::vector<double> sums_of(const Run<double>& run) {
  const auto sums = run.network.metric_sums();
  return {sums.begin(), sums.end()};
}

/// From the whole output, by sets of pixels or elements.
std::vector<double> expected_sums(Run<double>& run, Loss loss) {
  const auto z = on_host(run.network.output());
  const Extents e = run.network.output_distribution().extents();
  std::vector<std::set<Index>> predicted(classes), wanted(classes);
  double top5 = 0, error = 0;
  for (Index n = 0; n < e[Dim::sample]; ++n) {
    for (Index h = 0; h < e[Dim::height]; ++h) {
      for (Index w = 0; w < e[Dim::width]; ++w) {
        const Index pixel = (n * e[Dim::height] + h) * e[Dim::width] + w;
        std::vector<std::pair<double, int>> order;  // the largest logit first
        for (int c = 0; c < classes; ++c) {
          const double v = z(n, 0, h, w, c), t = target_at(run.seed, pixel * classes + c);
          order.emplace_back(-v, c);
          error += std::abs(v - t);
          if (targets_of(loss) != LossTargets::elements) continue;
          if (v > 0) predicted[0].insert(pixel * classes + c);
          if (t > 0.5) wanted[0].insert(pixel * classes + c);
        }
        std::ranges::sort(order);
        if (targets_of(loss) == LossTargets::elements) continue;
        const int label = label_at(run.seed, pixel, classes);
        for (std::size_t i = 0; i < 5; ++i) top5 += order[i].second == label ? 1 : 0;
        predicted[static_cast<std::size_t>(order[0].second)].insert(pixel);
        wanted[static_cast<std::size_t>(label)].insert(pixel);
      }
    }
  }
  if (loss == Loss::softmax_cross_entropy) return {top5};
  if (loss == Loss::mean_squared_error) return {error};
  std::vector<double> sums;
  for (std::size_t c = 0; c < (loss == Loss::pixel_cross_entropy ? classes : 1); ++c) {
    std::set<Index> both = predicted[c];
    std::erase_if(both, [&](Index i) { return !wanted[c].contains(i); });
    sums.push_back(static_cast<double>(both.size()));
    sums.push_back(static_cast<double>(predicted[c].size() + wanted[c].size() - both.size()));
  }
  return sums;
}

TEST(Metrics, FollowTheirDefinitionsInEverySplit) {
  const auto comm = aloni::test::make_communicator();
  const auto self = comm.split(comm.rank(), 0);
  int number = 0;
  for (const Loss loss : all_losses) {
    const NetworkDescription net = net_of_loss(loss, classes);
    auto one = run_of<double>(self, net, Strategy::uniform({}), samples);
    evaluate(one, loss);
    const std::vector<double> expected = expected_sums(one, loss);
    const bool counts = loss != Loss::mean_squared_error;
    const auto expect_equal = [&](const std::vector<double>& found) {
      ASSERT_EQ(found.size(), expected.size());
      // Counts are exact.
      for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], counts ? 0 : 1e-10) << i;
    };
    expect_equal(sums_of(one));
    for (const LayerSplit& split : splits_for(comm.size(), 2)) {
      if (!aloni::test::is_in_share(number++)) continue;
      SCOPED_TRACE(std::string(name(loss)) + ", " + to_string(split));
      const Strategy strategy = strategy_of(net, std::vector(net.layers.size(), split));
      auto many = run_of<double>(comm, net, strategy, samples, number % 2 == 0 ? Weights::split : Weights::whole);
      evaluate(many, loss);
      expect_equal(sums_of(many));
      if (comm.all_reduce(testing::Test::HasFailure() ? 1 : 0, comm::Reduction::max) == 1) return;
    }
  }
}

// With five classes each label is among the five largest logits.
TEST(Metrics, OfFewClassesHaveNoTopFive) {
  const auto comm = aloni::test::make_communicator();
  auto run = run_of<double>(comm, net_of_loss(Loss::softmax_cross_entropy, 5), Strategy::uniform({}), samples);
  evaluate(run, Loss::softmax_cross_entropy);
  EXPECT_TRUE(run.network.metric_sums().empty());
  EXPECT_TRUE(metrics_of(Loss::softmax_cross_entropy, 5, {}, samples).empty());
}

}  // namespace test_metrics
}  // namespace aloni::nn::test

// Pictures of samples: means over cells, from any split of the samples, and colours of classes.
#include <aloni/nn/sample_pictures.hpp>
#include <aloni/views/distribution.hpp>

#include <gtest/gtest.h>

#include <array>
#include <set>
#include <string>
#include <vector>

namespace test_sample_pictures {

using namespace aloni;
using namespace aloni::nn;
using views::Box;
using views::Dim;
using views::Extents;

constexpr Index samples = 3;

NetworkDescription network(Loss loss, Index height, Index width, int channels, int outputs) {
  NetworkDescription n;
  n.input = views::make_extents(1, {height, width}, channels);
  n.loss = loss;
  n.layers = {{"last", Convolution{outputs, square_window(2, 1)}, {"input"}}};
  return n;
}

Extents batch_of(Extents one) {
  one[Dim::sample] = samples;
  return one;
}

/// f(position in the mini-batch) for each element of a box of `all`.
template <class T, class F>
std::vector<T> part(const Box& box, const Extents& all, const F& f) {
  std::vector<T> values;
  if (box.empty()) return values;
  Box at = box;
  for (at.lo[0] = box.lo[0]; at.lo[0] < box.hi[0]; ++at.lo[0])
    for (at.lo[2] = box.lo[2]; at.lo[2] < box.hi[2]; ++at.lo[2])
      for (at.lo[3] = box.lo[3]; at.lo[3] < box.hi[3]; ++at.lo[3])
        for (at.lo[4] = box.lo[4]; at.lo[4] < box.hi[4]; ++at.lo[4]) {
          Index position = 0;
          for (std::size_t d = 0; d < 5; ++d) position = position * all.values[d] + at.lo[d];
          values.push_back(static_cast<T>(f(position)));
        }
  return values;
}

double input_at(Index position) { return static_cast<double>(position % 17) - 5; }
double output_at(Index position) { return static_cast<double>(position * 7 % 23) - 11; }
int label_at(Index position) { return static_cast<int>(position * 5 % 3); }
double target_at(Index position) { return static_cast<double>(position % 2); }

/// The parts of all ranks of a grid, one after another.
std::vector<SampleResult> results_of(const NetworkDescription& net, const std::string& grid, int ranks, Index shown) {
  const Extents input = batch_of(net.input), output = batch_of(infer_extents(net, 1).back());
  Extents pixels = output;
  pixels[Dim::channel] = 1;
  const auto parts = [&](const Extents& e) {
    return views::Distribution::block(e, views::ProcessGrid::parse(grid), ranks);
  };
  SampleSums sums(net, shown);
  for (int r = 0; r < ranks; ++r) {
    const Box in = parts(input).owned(r), out = parts(output).owned(r);
    const auto x = part<double>(in, input, input_at), y = part<double>(out, output, output_at);
    const auto labels = part<int>(parts(pixels).owned(r), pixels, label_at);
    const auto targets = part<double>(out, output, target_at);
    sums.add_inputs<double>(in, x);
    const bool has_labels = targets_of(net.loss) != LossTargets::elements;
    sums.add_outputs<double>(
        out, has_labels ? SampleSums::Outputs<double>{y, labels, {}} : SampleSums::Outputs<double>{y, {}, targets});
  }
  return sums.results();
}

TEST(SamplePictures, AreEqualForEverySplit) {
  for (const Loss loss : {Loss::pixel_cross_entropy, Loss::dice, Loss::mean_squared_error}) {
    const NetworkDescription net = network(loss, 300, 9, 3, 3);
    const auto whole = results_of(net, "n1", 1, 2);
    ASSERT_EQ(whole.size(), 2u);
    for (const char* const grid : {"n2", "h2w2", "w3", "h7"}) {
      SCOPED_TRACE(std::string(name(loss)) + " " + grid);
      const int ranks = views::ProcessGrid::parse(grid).size();
      const auto split = results_of(net, grid, ranks, 2);
      for (std::size_t i = 0; i < whole.size(); ++i) {
        EXPECT_NEAR(split[i].score, whole[i].score, 1e-12);
        for (const auto& picture : {&SampleResult::input, &SampleResult::truth, &SampleResult::prediction}) {
          const auto &a = whole[i].*picture, &b = split[i].*picture;
          ASSERT_EQ(a.values.size(), b.values.size());
          for (std::size_t k = 0; k < a.values.size(); ++k) ASSERT_NEAR(a.values[k], b.values[k], 1e-12) << k;
        }
      }
    }
  }
}

// 300 rows need cells of three pixels: 100 cells, of which the last ones are whole.
TEST(SamplePictures, HaveTheMeansOfCells) {
  const NetworkDescription net = network(Loss::mean_squared_error, 300, 10, 1, 1);
  const SampleResult result = results_of(net, "n1", 1, 2)[1];
  EXPECT_EQ(result.sample, 1);
  EXPECT_EQ(result.input.width, 4);
  EXPECT_EQ(result.input.height, 100);
  EXPECT_EQ(result.input.channels, 1);
  const auto mean = [&](Index y, Index x, const auto& f) {
    double sum = 0;
    int count = 0;
    for (Index h = 3 * y; h < 3 * y + 3; ++h)
      for (Index w = 3 * x; w < std::min<Index>(3 * x + 3, 10); ++w, ++count) sum += f((300 + h) * 10 + w);
    return sum / count;
  };
  for (const Index y : {0, 50, 99}) {
    for (Index x = 0; x < 4; ++x) {
      const auto at = static_cast<std::size_t>(4 * y + x);
      EXPECT_NEAR(result.input.values[at], mean(y, x, input_at), 1e-12);
      EXPECT_NEAR(result.truth.values[at], mean(y, x, target_at), 1e-12);
      EXPECT_NEAR(result.prediction.values[at], mean(y, x, output_at), 1e-12);
    }
  }
  EXPECT_EQ(result.prediction.black, result.truth.black) << "one range for both";
}

TEST(SamplePictures, OfSampleLabelsHaveThePredictedOne) {
  NetworkDescription net = network(Loss::softmax_cross_entropy, 1, 1, 1, 4);
  for (const int ranks : {1, 2, 3}) {
    const auto results = results_of(net, "n" + std::to_string(ranks), ranks, samples);
    for (Index n = 0; n < samples; ++n) {
      Index best = 0;
      for (Index c = 1; c < 4; ++c)
        if (output_at(4 * n + c) > output_at(4 * n + best)) best = c;
      const SampleResult& found = results[static_cast<std::size_t>(n)];
      EXPECT_EQ(found.predicted, best);
      EXPECT_EQ(found.label, label_at(n));
      EXPECT_EQ(found.score, best == label_at(n) ? 1 : 0);
      EXPECT_TRUE(found.truth.values.empty());
    }
  }
}

TEST(SamplePictures, GiveClassesDifferentColours) {
  std::set<std::array<double, 3>> colours;
  for (Index label = 0; label < 30; ++label) {
    const auto colour = colour_of_class(label);
    for (const double c : colour) EXPECT_TRUE(c >= 0 && c <= 1);
    colours.insert(colour);
  }
  EXPECT_EQ(colours.size(), 30u);
}

}  // namespace test_sample_pictures

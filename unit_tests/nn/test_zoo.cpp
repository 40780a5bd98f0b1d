// One training step of the models by name, split over ranks, equals that on one rank.
#include "split_harness.hpp"
#include "support/random_cases.hpp"
#include "support/transport.hpp"

#include <aloni/nn/models.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace aloni::nn::test {
namespace test_zoo {

struct Case {
  std::string model;
  views::Extents input;
  Index samples;
};

std::vector<Case> cases() {
  const auto image = [](Index size, Index channels) { return views::make_extents(1, {size, size}, channels); };
  const auto volume = [](Index size, Index channels) { return views::make_extents(1, {size, size, size}, channels); };
  return {{"lenet5", image(28, 1), 6},    {"resnet18", image(16, 3), 6},    {"resnet50", image(16, 3), 6},
          {"vgg16", image(32, 3), 6},     {"densenet121", image(32, 3), 6}, {"mesh1k", image(64, 18), 6},
          {"mesh2k", image(128, 18), 2},  {"unet2d", image(32, 1), 6},      {"unet3d", volume(16, 1), 2},
          {"cosmoflow", volume(32, 1), 2}};
}

/// The model with a sixteenth of its filters and features, at least 4; its last layer with few classes. So a step on
/// one core takes milliseconds.
NetworkDescription narrow(const Case& c) {
  constexpr Index divisor = 16, least = 4, classes = 5;
  const bool classifies = make_model(c.model, {.input = c.input}).loss == Loss::softmax_cross_entropy;
  NetworkDescription net =
      make_model(c.model, {.input = c.input, .classes = classifies ? std::optional(classes) : std::nullopt});
  for (LayerDescription& layer : net.layers) {
    if (&layer == &net.layers.back()) break;
    if (auto* convolution = std::get_if<Convolution>(&layer.operation)) {
      convolution->filters = std::max(least, convolution->filters / divisor);
    } else if (auto* transposed = std::get_if<TransposedConvolution>(&layer.operation)) {
      transposed->filters = std::max(least, transposed->filters / divisor);
    } else if (auto* dense = std::get_if<Dense>(&layer.operation)) {
      dense->features = std::max(least, dense->features / divisor);
    }
  }
  return net;
}

/// By number of ranks: by sample, by space, by channels, by filters, and mixtures.
std::vector<std::string> splits(int ranks) {
  static const std::map<int, std::vector<std::string>> all{{1, {"n1"}},
                                                           {2, {"n2", "h2", "w2", "c2", "f2"}},
                                                           {4, {"n4", "h2w2", "n2h2", "c2f2", "n2c2", "h2f2"}},
                                                           {6, {"n6", "h3w2", "n2h3", "n3c2", "h3f2", "c3f2"}}};
  return all.at(ranks);
}

void expect_equal_steps(const Case& c, const NetworkDescription& net) {
  const auto comm = aloni::test::make_communicator();
  // Each model draws two splits by its place in the list, so that each split meets three models. Nightly: all. Under a
  // sanitizer one split, and only the models that have some kind of layer first.
  using aloni::test::nightly, aloni::test::sanitized;
  const std::vector<std::string> large{"vgg16", "densenet121", "resnet50", "mesh2k"};
  if (!nightly() && sanitized && std::ranges::count(large, c.model)) GTEST_SKIP() << "its layers are in other models";
  const std::size_t drawn = sanitized ? 1 : 2;
  const auto all = splits(comm.size());
  const auto every = cases();
  const auto place = static_cast<std::size_t>(std::ranges::find(every, c.model, &Case::model) - every.begin());
  for (std::size_t s = 0; s < all.size(); ++s) {
    const std::size_t number = (s + all.size() - 2 * place % all.size()) % all.size();
    if (!nightly() && c.model != "lenet5" && number >= drawn) continue;
    const std::string& split = all[s];
    SCOPED_TRACE(c.model + " " + split);
    const Strategy strategy = Strategy::uniform(LayerSplit::parse(split));
    expect_split_equals_unsplit<double>(comm, net, strategy, c.samples, Values::reals, 4, 1e-10);
  }
}

class Zoo : public testing::TestWithParam<Case> {};

TEST_P(Zoo, StepsOfNarrowModelsOnManyRanksEqualThoseOnOne) { expect_equal_steps(GetParam(), narrow(GetParam())); }

TEST_P(Zoo, StepsOnManyRanksEqualThoseOnOne) {
  if (!aloni::test::nightly() && GetParam().model != "lenet5") GTEST_SKIP() << "models with all filters: nightly";
  expect_equal_steps(GetParam(), make_model(GetParam().model, {.input = GetParam().input}));
}

INSTANTIATE_TEST_SUITE_P(, Zoo, testing::ValuesIn(cases()), [](const auto& info) { return info.param.model; });

}  // namespace test_zoo
}  // namespace aloni::nn::test

// One training step of the models by name, split over ranks, equals that on one rank.
#include "split_harness.hpp"
#include "support/random_cases.hpp"
#include "support/transport.hpp"

#include <aloni/nn/models.hpp>

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

namespace aloni::nn::test {
namespace test_zoo {

struct Case {
  std::string model;
  views::Extents input;
  Index samples;
};

/// Small inputs: the filters of the models are as many as always.
std::vector<Case> cases() {
  const auto image = [](Index size, Index channels) { return views::make_extents(1, {size, size}, channels); };
  const auto volume = [](Index size, Index channels) { return views::make_extents(1, {size, size, size}, channels); };
  if (!aloni::test::nightly()) return {{"lenet5", image(28, 1), 6}};
  return {{"lenet5", image(28, 1), 12},   {"resnet18", image(16, 3), 6},    {"resnet50", image(16, 3), 6},
          {"vgg16", image(32, 3), 6},     {"densenet121", image(32, 3), 6}, {"mesh1k", image(64, 18), 6},
          {"mesh2k", image(128, 18), 2},  {"unet2d", image(32, 1), 6},      {"unet3d", volume(16, 1), 2},
          {"cosmoflow", volume(32, 1), 2}};
}

/// By number of ranks: by sample, by space, by channels, by filters, and mixtures.
std::vector<std::string> splits(int ranks) {
  static const std::map<int, std::vector<std::string>> all{{1, {"n1"}},
                                                           {2, {"n2", "h2", "w2", "c2", "f2"}},
                                                           {4, {"n4", "h2w2", "n2h2", "c2f2", "n2c2", "h2f2"}},
                                                           {6, {"n6", "h3w2", "n2h3", "n3c2", "h3f2", "c3f2"}}};
  return all.at(ranks);
}

TEST(Zoo, StepsOnManyRanksEqualThoseOnOne) {
  const auto comm = aloni::test::make_communicator();
  for (const Case& c : cases()) {
    const NetworkDescription net = make_model(c.model, {.input = c.input});
    for (const std::string& split : splits(comm.size())) {
      SCOPED_TRACE(c.model + " " + split);
      const Strategy strategy = Strategy::uniform(LayerSplit::parse(split));
      expect_split_equals_unsplit<double>(comm, net, strategy, c.samples, Values::reals, 4, 1e-10);
    }
  }
}

}  // namespace test_zoo
}  // namespace aloni::nn::test

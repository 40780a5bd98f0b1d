// Stack distances of all nodes of a step against a count of words.
#include <aloni/nn/models.hpp>
#include <aloni/nn/network_plan.hpp>
#include <aloni/nn/plan/cost.hpp>
#include <aloni/nn/plan/detail/addresses.hpp>
#include <aloni/nn/plan/plan_step.hpp>
#include <aloni/nn/plan/reuse.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <variant>
#include <vector>

namespace aloni::nn {
namespace test_reuse {

struct Planned {
  StepPlan plan;
  MemoryLayout layout;
};

Planned planned(const NetworkDescription& net, const std::string& split, int ranks, Index samples) {
  const auto splits = resolve(Strategy::uniform(LayerSplit::parse(split)), net, ranks);
  Planned p{plan_step(net, plan_network(net, splits, ranks, samples), 0, StepKind::training, {}, {}), {}};
  p.layout = lay_out_memory({&p.plan}, {});
  return p;
}

double bytes_of_box(const StepPlan& plan, const PlanRegion& r) {
  return static_cast<double>(r.box.size() * bytes_of(plan.buffers[static_cast<std::size_t>(r.buffer)].type));
}

/// By the last use of each word of four bytes.
std::vector<Reuse> counted(const Planned& p) {
  const detail::Addresses addresses(p.plan, p.layout);
  const std::size_t nodes = p.plan.nodes.size();
  std::vector<std::size_t> last_use;                 // by word; 0: never, otherwise 1 + time
  std::vector<std::size_t> words(2 * nodes + 1, 0);  // by last use
  std::vector<Reuse> all(nodes);
  std::vector<double> own(nodes, 0);  // bytes of each node
  for (std::size_t time = 1; time <= 2 * nodes; ++time) {
    const std::size_t n = (time - 1) % nodes;
    const PlanNode& node = p.plan.nodes[n];
    const auto for_each_word = [&](const PlanRegion& r, const auto& f) {
      const detail::AddressRange range = addresses.of(r);
      last_use.resize(std::max(last_use.size(), static_cast<std::size_t>(range.end / 4)), 0);
      for (Index w = range.first / 4; w < range.end / 4; ++w) f(last_use[static_cast<std::size_t>(w)]);
      return static_cast<double>(range.bytes());
    };
    if (time > nodes && node.kind() == NodeKind::kernel) {
      std::vector<double> distance(time + 1, 0);  // by the last use
      for (std::size_t t = time; t-- > 1;) distance[t - 1] = distance[t] + 4.0 * static_cast<double>(words[t]);
      detail::for_each_region(p.plan, static_cast<int>(n), [&](const PlanRegion& r) {
        Reuse far;
        const double bytes_of_range = for_each_word(r, [&](std::size_t last) {
          if (last == 0) return;
          for (std::size_t i = 0; i < far.far_bytes.size(); ++i)
            if (distance[last] + (own[(last - 1) % nodes] + own[n]) / 2 >= reuse_distances[i]) far.far_bytes[i] += 4;
        });
        for (std::size_t i = 0; i < far.far_bytes.size(); ++i)
          if (bytes_of_range > 0) all[n].far_bytes[i] += far.far_bytes[i] / bytes_of_range * bytes_of_box(p.plan, r);
      });
    }
    detail::for_each_region(p.plan, static_cast<int>(n), [&](const PlanRegion& r) {
      for_each_word(r, [&](std::size_t& last) {
        if (last > 0) --words[last];
        last = time;
        ++words[time];
      });
    });
    own[n] = 4.0 * static_cast<double>(words[time]);
  }
  return all;
}

void expect_counted(const Planned& p) {
  const std::vector<Reuse> expected = counted(p), found = reuse_of(p.plan, p.layout);
  ASSERT_EQ(found.size(), expected.size());
  double far = 0;
  for (std::size_t n = 0; n < found.size(); ++n)
    for (std::size_t i = 0; i < reuse_distances.size(); ++i) {
      EXPECT_NEAR(found[n].far_bytes[i], expected[n].far_bytes[i], 1) << p.plan.nodes[n].label << " " << i;
      far += found[n].far_bytes[i];
    }
  EXPECT_GT(far, 1e6);
  const std::size_t nodes = found.size();
  std::vector<double> bytes(nodes, 0);
  const detail::Addresses addresses(p.plan, p.layout);
  std::vector<bool> touched;  // words
  for (std::size_t n = 0; n < nodes; ++n)
    detail::for_each_region(p.plan, static_cast<int>(n), [&](const PlanRegion& r) {
      bytes[n] += bytes_of_box(p.plan, r);
      const detail::AddressRange range = addresses.of(r);
      touched.resize(std::max(touched.size(), static_cast<std::size_t>(range.end / 4)), false);
      for (Index w = range.first / 4; w < range.end / 4; ++w) touched[static_cast<std::size_t>(w)] = true;
    });
  const double step_bytes = 4.0 * static_cast<double>(std::ranges::count(touched, true));
  for (std::size_t n = 0; n < nodes; ++n) {
    if (p.plan.nodes[n].kind() != NodeKind::kernel) continue;
    double since_code = 0;
    for (std::size_t back = 1; back <= nodes; ++back) {
      const std::size_t before = (n + nodes - back) % nodes;
      if (code_of(p.plan.nodes[before].work) == code_of(p.plan.nodes[n].work)) break;
      since_code += bytes[before];
    }
    EXPECT_DOUBLE_EQ(found[n].code_bytes, since_code) << p.plan.nodes[n].label;
    EXPECT_EQ(found[n].step_bytes, step_bytes);
  }
}

NetworkDescription lenet() { return lenet5(views::make_extents(1, {28, 28}, 1), 10); }

TEST(Reuse, IsThatOfACountOfWords) {
  expect_counted(planned(lenet(), "1", 1, 64));
  expect_counted(planned(lenet(), "h2", 2, 32));  // with gaps between the samples
  expect_counted(planned(make_model("mesh1k", {.input = views::make_extents(1, {64, 64}, 18)}), "1", 1, 1));
}

/// Each pass of a layer has code of its own, and layers share it.
TEST(Reuse, TellsTheCodeOfPasses) {
  const PoolingWork average{.kind = PoolingKind::average}, maximum{.kind = PoolingKind::max},
      gradient{.backward = true, .kind = PoolingKind::max};
  const NormalisationWork sums{.stage = NormalisationStage::statistics}, scaling{.stage = NormalisationStage::forward};
  const DenseWork forward{.pass = DensePass::forward}, data{.pass = DensePass::data};
  const std::vector<Work> all{average, maximum, gradient, sums, scaling, forward, data};
  for (std::size_t i = 0; i < all.size(); ++i)
    for (std::size_t j = 0; j < all.size(); ++j) EXPECT_EQ(code_of(all[i]) == code_of(all[j]), i == j) << i << " " << j;
  DenseWork wide = forward;
  wide.samples = 1000;
  EXPECT_EQ(code_of(wide), code_of(forward));
}

TEST(Reuse, OfASmallStepIsNear) {
  const Planned p = planned(lenet(), "1", 1, 2);
  for (const Reuse& reuse : reuse_of(p.plan, p.layout)) {
    EXPECT_EQ(reuse.far_bytes[1], 0);  // parameters with gradients and momenta have 0.7 MB
    EXPECT_LT(reuse.step_bytes, 16e6);
  }
}

TEST(Reuse, FarBytesAreAPartOfTheBytesOfTheNode) {
  const Planned p = planned(make_model("resnet18", {.input = views::make_extents(1, {32, 32}, 3)}), "1", 1, 8);
  const std::vector<Reuse> reuse = reuse_of(p.plan, p.layout);
  for (std::size_t n = 0; n < reuse.size(); ++n) {
    const NodeCost cost = cost_of_regions(p.plan, p.plan.nodes[n]);
    // A convolution also reads its filters.
    double more = static_cast<double>(cost.bytes_read + cost.bytes_written) * (1 + 1e-9);
    if (const auto* work = std::get_if<ConvolutionWork>(&p.plan.nodes[n].work))
      for (const WeightPart& part : p.plan.convolution_weights[static_cast<std::size_t>(work->weights)].parts)
        more += 4 * static_cast<double>(part.box.size());
    for (const double far : reuse[n].far_bytes) {
      EXPECT_LE(far, more) << p.plan.nodes[n].label;
      more = far;
    }
  }
}

TEST(Reuse, OfAConvolutionContainsItsFilters) {
  const Planned p = planned(make_model("vgg16", {.input = views::make_extents(1, {32, 32}, 3)}), "1", 1, 1);
  const std::vector<Reuse> reuse = reuse_of(p.plan, p.layout);
  int convolutions = 0;
  for (std::size_t n = 0; n < reuse.size(); ++n) {
    const auto* work = std::get_if<ConvolutionWork>(&p.plan.nodes[n].work);
    if (!work || p.plan.nodes[n].label.find("conv5_2") == std::string::npos) continue;
    ++convolutions;
    EXPECT_GE(reuse[n].far_bytes[2], 512 * 512 * 9 * 4) << p.plan.nodes[n].label;
  }
  EXPECT_EQ(convolutions, 2);  // forward and backward
}

TEST(Reuse, AtADistanceIsThatOfAllBytes) {
  EXPECT_EQ(reuse_at(100, 5 << 20), (Reuse{{100, 100, 0, 0}, 5 << 20, 5 << 20}));
  EXPECT_EQ(reuse_at(100, 1 << 20), (Reuse{{100, 0, 0, 0}, 1 << 20, 1 << 20}));
  EXPECT_EQ(reuse_at(100, 0), Reuse{});
}

}  // namespace test_reuse
}  // namespace aloni::nn

#include "all_operations.hpp"

#include <aloni/core/error.hpp>
#include <aloni/nn/network_plan.hpp>
#include <aloni/nn/operation.hpp>
#include <aloni/nn/strategy.hpp>

#include <gmock/gmock.h>

#include <string>

namespace aloni::nn::test {
namespace test_operation {

using views::Dim;
using views::Extents;

TEST(Operation, HasAKindOfItsOwn) {
  std::map<std::string, std::size_t> seen;
  for (const Operation& op : all_operations()) {
    const auto [at, is_new] = seen.emplace(kind(op), op.index());
    EXPECT_TRUE(is_new || at->second == op.index()) << kind(op);
    EXPECT_STRNE(kind(op), "");
  }
}

TEST(Operation, LetsNoReaderOverwriteAnOutputThatItsBackwardPassReads) {
  for (const Operation& op : all_operations()) {
    const OperationProperties p = properties_of(op);
    EXPECT_FALSE(p.backward_reads_output && p.output_may_be_overwritten) << p.kind;
    EXPECT_FALSE(p.backward_reads_input && p.computes_in_place) << p.kind;
  }
}

TEST(Operation, KeepsTheExtentsOfWhatItComputesInPlace) {
  for (const Operation& op : all_operations()) {
    const NetworkDescription net = alone(op);
    if (properties_of(op).computes_in_place) {
      EXPECT_EQ(infer_extents(net, 1)[0], net.input) << kind(op);
    }
  }
}

TEST(Operation, HasWindowsOfOneKind) {
  for (const Operation& op : all_operations()) {
    const OperationProperties p = properties_of(op);
    EXPECT_FALSE(p.stencil && p.range_rule) << p.kind;
    if (p.convolution) {
      EXPECT_TRUE(p.stencil) << p.kind;
    }
    if (p.scatters_gradient) {
      EXPECT_TRUE(p.stencil || p.range_rule) << p.kind;
    }
  }
}

TEST(Operation, RefusesEveryNumberOfInputsOutsideItsLimits) {
  for (const Operation& op : all_operations()) {
    const OperationProperties p = properties_of(op);
    for (int inputs = 0; inputs <= 4; ++inputs) {
      NetworkDescription net = alone(op);
      net.layers[0].inputs.assign(static_cast<std::size_t>(inputs), "input");
      const bool allowed = inputs >= p.least_inputs && (p.most_inputs < 0 || inputs <= p.most_inputs);
      if (allowed) {
        EXPECT_NO_THROW(infer_extents(net, 1)) << p.kind << " of " << inputs;
      } else {
        EXPECT_THROW(infer_extents(net, 1), InvalidArgument) << p.kind << " of " << inputs;
      }
    }
  }
}

TEST(Operation, GivesConvolutionsTheirFiltersAndGroups) {
  const auto p = properties_of(Convolution{6, square_window(2, 3), false, 2});
  ASSERT_TRUE(p.convolution);
  EXPECT_FALSE(p.convolution->transposed);
  EXPECT_EQ(p.convolution->filters, 6);
  EXPECT_EQ(p.convolution->groups, 2);
  const auto tensors = p.parameters({{1, 1, 9, 9, 4}});
  ASSERT_EQ(tensors.size(), 1U);
  EXPECT_EQ(tensors[0].extents, (Extents{{6, 1, 3, 3, 2}}));
  EXPECT_EQ(tensors[0].fan_in, 18);
  EXPECT_TRUE(properties_of(TransposedConvolution{}).convolution->transposed);
}

TEST(Operation, SplitsAsItsPropertiesSay) {
  // On a grid that splits every dimension: layers that split samples only.
  for (const Operation& op : all_operations()) {
    NetworkDescription net = alone(op);
    net.layers[0].inputs.resize(static_cast<std::size_t>(properties_of(op).least_inputs), "input");
    const auto plan = plan_network(net, resolve(Strategy::uniform(LayerSplit::parse("h2c2")), net, 4), 4, 8);
    const views::ProcessGrid& grid = plan.layers[0].input.grid();
    const OperationProperties p = properties_of(op);
    const bool has_height = net.input[Dim::height] > 1;
    EXPECT_EQ(grid[Dim::height] == 1, p.splits_samples_only || !has_height) << p.kind;
    EXPECT_EQ(grid[Dim::channel] == 1, p.splits_samples_only) << p.kind;
    EXPECT_EQ(plan.layers[0].output.replicated(Dim::height), p.reduces_space) << p.kind;
  }
}

}  // namespace test_operation
}  // namespace aloni::nn::test

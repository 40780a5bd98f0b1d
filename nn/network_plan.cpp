#include <aloni/core/error.hpp>
#include <aloni/nn/network_plan.hpp>
#include <aloni/nn/strategy.hpp>

#include <optional>
#include <string>
#include <variant>

namespace aloni::nn {

using views::Box;
using views::Dim;
using views::Distribution;
using views::Extents;
using views::ProcessGrid;

namespace {

const Window* window_of(const Operation& op) {
  if (const auto* c = std::get_if<Convolution>(&op)) return &c->window;
  if (const auto* p = std::get_if<Pooling>(&op)) return &p->window;
  return nullptr;
}

halo::Stencil stencil_of(const Operation& op) {
  halo::Stencil stencil;
  if (const Window* w = window_of(op)) {
    for (int i = 0; i < 3; ++i) {
      stencil[views::spatial_dims[i]] = {w->kernel[i], w->stride[i], w->dilation[i], w->pad_low[i], w->pad_high[i]};
    }
  }
  return stencil;
}

std::optional<halo::RangeRule> range_rule_of(const Operation& op) {
  if (std::holds_alternative<AdaptivePooling>(op)) return halo::RangeRule::adaptive;
  if (const auto* u = std::get_if<Upsampling>(&op)) {
    return u->mode == UpsamplingMode::nearest ? halo::RangeRule::nearest : halo::RangeRule::linear;
  }
  return std::nullopt;
}

bool has_no_spatial_extent(const Operation& op) {
  return std::holds_alternative<Flatten>(op) || std::holds_alternative<Dense>(op);
}

bool has_no_spatial_extent(const Extents& e) { return e[Dim::depth] == 1 && e[Dim::height] == 1 && e[Dim::width] == 1; }

/// Convolutions and dense layers write dense memory (their vendor kernels are slow, or don't run, on anything else).
bool writes_dense(const Operation& op) {
  return std::holds_alternative<Convolution>(op) || std::holds_alternative<Dense>(op);
}

}  // namespace

Box LayerPlan::input_needed(int rank) const {
  if (!windowed) return input.owned(rank);
  const Box mine = output.owned(rank);
  if (mine.empty()) return {};
  Box needed = intersect(range_map ? range_map->input_box(mine) : stencil.input_box(mine), whole(input.extents()));
  // The channels of the output are other ones than those of the input.
  needed.set(Dim::channel, 0, input.extents()[Dim::channel]);
  return needed;
}

Box LayerPlan::output_gradient_needed(int rank) const {
  const Box mine = input.owned(rank);
  if (mine.empty()) return {};
  Box needed = range_map ? range_map->output_box(mine) : stencil.output_box(mine, output.extents());
  needed.set(Dim::channel, 0, output.extents()[Dim::channel]);
  return needed;
}

bool needs_ghosts(const Distribution& owned, const std::vector<Box>& needed) {
  for (int r = 0; r < owned.ranks(); ++r) {
    if (!contains(owned.owned(r), needed[r])) return true;
  }
  return false;
}

NetworkPlan plan_network(const NetworkDescription& network, const std::vector<ProcessGrid>& grids, int ranks,
                         Index samples) {
  if (samples < 1) {
    throw InvalidArgument("aloni::nn::plan_network", "samples", std::to_string(samples), "at least 1");
  }
  if (grids.size() != network.layers.size()) {
    throw InvalidArgument("aloni::nn::plan_network", "grids", std::to_string(grids.size()) + " grids",
                          "one for each of the " + std::to_string(network.layers.size()) + " layers");
  }
  const std::vector<Extents> extents = infer_extents(network, samples);
  Extents input_extents = network.input;
  input_extents[Dim::sample] = samples;

  const int count = static_cast<int>(network.layers.size());
  NetworkPlan plan;
  plan.layers.resize(count);
  plan.readers.resize(count);
  for (int i = 0; i < count; ++i) {
    const LayerDescription& description = network.layers[i];
    LayerPlan& layer = plan.layers[i];
    for (const std::string& name : description.inputs) {
      const int source = find_layer(network, name);
      layer.inputs.push_back({source});
      (source < 0 ? plan.input_readers : plan.readers[source]).push_back(i);
    }
    const int first = layer.inputs[0].source;
    const Extents& in = first < 0 ? input_extents : extents[first];
    const std::optional<halo::RangeRule> rule = range_rule_of(description.operation);
    // A pointwise layer between dense ones has nothing to cut but samples either. Up-sampling gives its output something.
    const bool folded = has_no_spatial_extent(description.operation) ||
                        (has_no_spatial_extent(in) && (!rule || has_no_spatial_extent(extents[i])));
    const ProcessGrid grid = folded ? fold_into_samples(grids[i]) : grids[i];
    layer.windowed = window_of(description.operation) != nullptr || rule;
    layer.stencil = stencil_of(description.operation);
    if (rule) layer.range_map = halo::RangeMap{*rule, in, extents[i]};
    layer.input = Distribution::block(in, grid, ranks);
    layer.output = Distribution::block(extents[i], grid, ranks);
    if (std::holds_alternative<GlobalAveragePooling>(description.operation)) {
      for (Dim d : views::spatial_dims) layer.output = layer.output.with_replicated(d);
    }
  }
  if (plan.input_readers.empty()) {
    throw InvalidArgument("aloni::nn::plan_network", "network", "no layer reads \"input\"", "at least one that does");
  }
  plan.input = plan.layers[plan.input_readers[0]].input;

  for (int i = 0; i < count; ++i) {
    LayerPlan& layer = plan.layers[i];
    std::vector<Box> needed(ranks);
    for (int r = 0; r < ranks; ++r) needed[r] = layer.input_needed(r);
    const bool ghosts = needs_ghosts(layer.input, needed);
    for (LayerInput& input : layer.inputs) {
      const bool same = plan.output_of(input.source) == layer.input;
      if (same && !ghosts) {
        input.mode = InputMode::shared;
      } else if (same && plan.readers_of(input.source).size() == 1 &&
                 (input.source < 0 || !writes_dense(network.layers[input.source].operation))) {
        input.mode = InputMode::in_place;
        (input.source < 0 ? plan.input_has_ghosts : plan.layers[input.source].output_has_ghosts) = true;
      } else {
        input.mode = InputMode::separate;
      }
    }
  }
  return plan;
}

}  // namespace aloni::nn

#include <aloni/nn/network_plan.hpp>

#include <aloni/core/error.hpp>
#include <aloni/nn/detail/convolution_direction.hpp>
#include <aloni/nn/operation.hpp>
#include <aloni/nn/strategy.hpp>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

namespace aloni::nn {

using views::Box;
using views::Dim;
using views::Distribution;
using views::Extents;
using views::ProcessGrid;

namespace {

bool has_no_spatial_extent(const Extents& e) { return e[Dim::depth] == 1 && e[Dim::height] == 1 && e[Dim::width] == 1; }

ProcessGrid fold_into_samples(const ProcessGrid& grid) {
  ProcessGrid folded;
  folded[Dim::sample] = grid.size();
  return folded;
}

/// Process grid of a layer's tensors: that of the split, if the layer allows it.
ProcessGrid tensor_grid(const OperationProperties& op, const LayerSplit& split, const Extents& in, const Extents& out,
                        bool last_before_softmax) {
  ProcessGrid grid = split.tensor_grid();
  const bool flat = has_no_spatial_extent(in) && has_no_spatial_extent(out);
  // Flatten changes the order of channels and pixels, unless there is one pixel only.
  if (op.splits_samples_only && !flat) return fold_into_samples(grid);
  if (last_before_softmax) {
    grid[Dim::sample] *= grid[Dim::channel];
    grid[Dim::channel] = 1;
  }
  // Up-sampling and transposed convolution have spatial extents in their outputs.
  if (flat) {
    const int channels = std::exchange(grid[Dim::channel], 1);
    grid = fold_into_samples(grid);
    grid[Dim::channel] = channels;
  }
  return grid;
}

std::optional<ConvolutionPlan> convolution_plan(const OperationProperties& op, const LayerSplit& split,
                                                const Extents& in, const ProcessGrid& grid) {
  const bool splits_channels = grid[Dim::channel] > 1;
  const auto& shape = splits_channels && op.convolution_if_split ? op.convolution_if_split : op.convolution;
  if (!shape) return std::nullopt;
  ConvolutionPlan plan{.transposed = shape->transposed,
                       .channels = in[Dim::channel],
                       .filters = shape->filters,
                       .groups = shape->groups,
                       .overlap = split.overlap};
  if (splits_channels) {
    plan.channel_blocks = split.grid[Dim::channel];
    plan.filter_blocks = split.filters;
  }
  return plan;
}

}  // namespace

namespace {

/// Block i of `blocks`, split as in Distribution::block.
halo::Range even_block(Index extent, int blocks, int i) {
  const Index length = extent / blocks, longer = extent % blocks;
  const Index lo = i * length + std::min<Index>(i, longer);
  return {lo, lo + length + (i < longer ? 1 : 0)};
}

halo::Range intersect(const halo::Range& a, const halo::Range& b) {
  return {std::max(a.lo, b.lo), std::min(a.hi, b.hi)};
}

/// Whether `inner` is contiguous in dense memory that covers `outer`.
bool is_contiguous(const Box& inner, const Box& outer) {
  bool one_before = true;  // whether all earlier extents of `inner` are 1
  for (const Dim d : views::all_dims) {
    if (inner.extent(d) != outer.extent(d) && !one_before) return false;
    one_before = one_before && inner.extent(d) == 1;
  }
  return true;
}

bool exchanges_gradient_in_place(const LayerPlan& layer) {
  bool exchanges = false, contiguous = true;
  for (const int r : layer.blocks.representatives) {
    const Box mine = layer.output.owned(r), work = layer.output_work(r);
    if (!work.empty() &&
        (work.lower(Dim::channel) < mine.lower(Dim::channel) || work.upper(Dim::channel) > mine.upper(Dim::channel))) {
      return true;
    }
    const Box needed = layer.output_gradient_needed(r);
    exchanges = exchanges || !contains(mine, needed);
    contiguous = contiguous && is_contiguous(mine, hull(mine, needed));
  }
  return exchanges && contiguous;
}

}  // namespace

std::vector<ConvolutionPart> ConvolutionPlan::parts(int rank) const {
  const int p = rank % channel_blocks, q = rank / channel_blocks % filter_blocks;
  const halo::Range my_channels = even_block(channels, channel_blocks, p);
  const halo::Range my_filters = even_block(filters, filter_blocks, q);
  if (my_channels.empty() || my_filters.empty()) return {};
  const Index group_channels = channels / groups, group_filters = filters / groups;
  const auto touched = [](const halo::Range& r, Index length) {
    return halo::Range{r.lo / length, (r.hi - 1) / length + 1};
  };
  const halo::Range common = intersect(touched(my_channels, group_channels), touched(my_filters, group_filters));
  std::vector<ConvolutionPart> parts;
  bool joins = false;  // whether the last part consists of whole groups
  for (Index g = common.lo; g < common.hi; ++g) {
    const halo::Range all_channels{g * group_channels, (g + 1) * group_channels};
    const halo::Range all_filters{g * group_filters, (g + 1) * group_filters};
    const ConvolutionPart part{intersect(my_channels, all_channels), intersect(my_filters, all_filters), 1};
    const bool whole_group = part.channels == all_channels && part.filters == all_filters;
    if (whole_group && joins) {
      parts.back().channels.hi = part.channels.hi;
      parts.back().filters.hi = part.filters.hi;
      ++parts.back().groups;
    } else {
      parts.push_back(part);
    }
    joins = whole_group;
  }
  return parts;
}

Box ConvolutionPlan::weights_of(const ConvolutionPart& part, const Extents& weights) const {
  const halo::Range& outer = transposed ? part.channels : part.filters;
  halo::Range inner = transposed ? part.filters : part.channels;
  const Index length = weights[Dim::channel];  // length of a group
  const Index first = inner.lo / length * length;
  inner = part.groups > 1 ? halo::Range{0, length} : halo::Range{inner.lo - first, inner.hi - first};
  Box box = whole(weights);
  box.set(Dim::sample, outer.lo, outer.hi);
  box.set(Dim::channel, inner.lo, inner.hi);
  return box;
}

ConvolutionPart ConvolutionPlan::hull(int rank) const {
  const std::vector<ConvolutionPart> all = parts(rank);
  if (all.empty()) return {};
  return {{all.front().channels.lo, all.back().channels.hi}, {all.front().filters.lo, all.back().filters.hi}, 1};
}

Extents LayerPlan::weights() const {
  const ConvolutionPlan& c = *convolution;
  const std::array<Index, 3> kernel{stencil[Dim::depth].kernel, stencil[Dim::height].kernel,
                                    stencil[Dim::width].kernel};
  const Index outer = c.transposed ? c.channels : c.filters, inner = (c.transposed ? c.filters : c.channels) / c.groups;
  return {{outer, kernel[0], kernel[1], kernel[2], inner}};
}

Box LayerPlan::weights_needed(int rank) const {
  const Extents all = weights();
  Box needed;
  for (const ConvolutionPart& part : convolution->parts(rank))
    needed = views::hull(needed, convolution->weights_of(part, all));
  return needed;
}

Box LayerPlan::output_work(int rank) const {
  Box box = output.owned(rank);
  if (convolution) {
    const halo::Range filters = convolution->hull(rank).filters;
    box.set(Dim::channel, filters.lo, filters.hi);
  }
  return box;
}

Box LayerPlan::input_work(int rank) const {
  Box box = input.owned(rank);
  if (convolution) {
    const halo::Range channels = convolution->hull(rank).channels;
    box.set(Dim::channel, channels.lo, channels.hi);
  }
  return box;
}

namespace {

// Windows ignore channels: the caller sets them.
Box without_channels(Box box) {
  box.set(Dim::channel, 0, 1);
  return box;
}

Box through_windows(const halo::Stencil& stencil, const Box& outputs, const Extents& inputs) {
  return intersect(stencil.input_box(without_channels(outputs)), whole(inputs));
}

Box readers_of_box(const halo::Stencil& stencil, const Box& inputs, const Extents& outputs) {
  return stencil.output_box(without_channels(inputs), outputs);
}

/// An empty box stays empty.
Box read_channels(const Box& box, const halo::Range& channels) {
  return box.empty() ? Box{} : detail::with_channels(box, channels);
}

}  // namespace

Box LayerPlan::input_of(const Box& outputs, int rank) const {
  if (outputs.empty()) return {};
  return read_channels(convolution->transposed ? readers_of_box(stencil, outputs, input.extents())
                                               : through_windows(stencil, outputs, input.extents()),
                       convolution->hull(rank).channels);
}

Box LayerPlan::output_gradient_of(const Box& inputs, int rank) const {
  if (inputs.empty()) return {};
  return read_channels(convolution->transposed ? through_windows(stencil, inputs, output.extents())
                                               : readers_of_box(stencil, inputs, output.extents()),
                       convolution->hull(rank).filters);
}

Box LayerPlan::forward_work(int rank) const {
  return recomputed.empty() ? output_work(rank) : recomputed[static_cast<std::size_t>(rank)];
}

namespace {

Box input_behind(const LayerPlan& layer, const Box& outputs, int rank) {
  if (layer.convolution) return layer.input_of(outputs, rank);
  if (outputs.empty()) return {};
  return intersect(layer.range_map ? layer.range_map->input_box(outputs) : layer.stencil.input_box(outputs),
                   whole(layer.input.extents()));
}

}  // namespace

Box LayerPlan::input_needed(int rank) const {
  if (!windowed) return recomputed.empty() ? input.owned(rank) : recomputed[static_cast<std::size_t>(rank)];
  return input_behind(*this, forward_work(rank), rank);
}

Box LayerPlan::needed_of(const LayerInput& from, int rank) const {
  const Box needed = input_needed(rank);
  if (from.distribution.extents() == input.extents()) return needed;
  const Box part = intersect(shift_channels(needed, -from.channel_offset), whole(from.distribution.extents()));
  return part.empty() ? Box{} : part;
}

Box LayerPlan::input_needed_by_owned(int rank) const {
  return windowed ? input_behind(*this, output_work(rank), rank) : input.owned(rank);
}

Box LayerPlan::output_gradient_needed(int rank) const {
  if (convolution) return output_gradient_of(input_work(rank), rank);
  const Box mine = input.owned(rank);
  if (mine.empty()) return {};
  return range_map ? range_map->output_box(mine) : stencil.output_box(mine, output.extents());
}

Box LayerPlan::output_gradient_box(int rank) const {
  const Box mine = output.owned(rank);
  if (!output_gradient_in_place) return mine;
  return hull(hull(mine, output_work(rank)), output_gradient_needed(rank));
}

Box shift_channels(Box box, Index offset) {
  box.set(Dim::channel, box.lower(Dim::channel) + offset, box.upper(Dim::channel) + offset);
  return box;
}

bool needs_ghosts(const LayerPlan& layer, const Distribution& owned, const std::function<Box(int)>& needed) {
  return std::ranges::any_of(layer.blocks.representatives, [&](int r) { return !contains(owned.owned(r), needed(r)); });
}

namespace {

/// Whether the layer computes its readers' ghosts itself. It does if it and all its readers use recompute_halo with
/// the same distribution.
bool serves_its_readers(const NetworkPlan& plan, const std::vector<LayerSplit>& splits, int i) {
  const Distribution& owned = plan.layers[static_cast<std::size_t>(i)].output;
  const auto recomputes_halo = [&](int l) {
    return splits[static_cast<std::size_t>(l)].overlap == Overlap::recompute_halo;
  };
  const auto reads_as_owned = [&](const LayerInput& input) { return input.source != i || input.distribution == owned; };
  return recomputes_halo(i) && std::ranges::all_of(plan.readers_of(i), [&](int reader) {
           return recomputes_halo(reader) &&
                  std::ranges::all_of(plan.layers[static_cast<std::size_t>(reader)].inputs, reads_as_owned);
         });
}

/// Where a concatenation reads its inputs: each from the channel at which the one before ends.
void place_side_by_side(LayerPlan& layer, const std::vector<Extents>& inputs) {
  const std::vector<Index>& borders = layer.output.borders(Dim::channel);
  Index offset = 0;
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    const Index channels = inputs[k][Dim::channel];
    std::vector<Index> sizes;
    for (std::size_t b = 0; b + 1 < borders.size(); ++b) {
      const halo::Range common = intersect({borders[b], borders[b + 1]}, {offset, offset + channels});
      sizes.push_back(std::max<Index>(0, common.hi - common.lo));
    }
    layer.inputs[k].distribution =
        Distribution::block(inputs[k], layer.output.grid(), layer.output.ranks()).with_blocks(Dim::channel, sizes);
    layer.inputs[k].channel_offset = offset;
    offset += channels;
  }
}

/// From the last layer to the first: extends the outputs of each layer by the needs of its readers.
void add_recomputation(NetworkPlan& plan, const std::vector<LayerSplit>& splits, int ranks) {
  for (int i = static_cast<int>(plan.layers.size()) - 1; i >= 0; --i) {
    if (!serves_its_readers(plan, splits, i)) continue;
    LayerPlan& layer = plan.layers[static_cast<std::size_t>(i)];
    std::vector<Box> boxes;
    for (int r = 0; r < ranks; ++r) {
      Box box = layer.output.owned(r);
      for (const int l : plan.readers_of(i)) {
        const LayerPlan& reader = plan.layers[static_cast<std::size_t>(l)];
        for (const LayerInput& input : reader.inputs) {
          if (input.source != i) continue;
          box = hull(box, reader.needed_of(input, r));
        }
      }
      boxes.push_back(box);
    }
    bool reaches_out = false;
    for (int r = 0; r < ranks; ++r)
      reaches_out = reaches_out || !contains(layer.output.owned(r), boxes[static_cast<std::size_t>(r)]);
    if (!reaches_out) continue;
    layer.recomputed = std::move(boxes);
    layer.blocks = find_blocks(layer);
  }
}

/// Replaces the distribution of the input by that of the caller's tensor.
void adopt_input(NetworkPlan& plan, const AdoptedInputPlan& adopted) {
  const auto refuse = [](const std::string& argument, const std::string& value, const std::string& expectation) {
    throw InvalidArgument("aloni::nn::plan_network", "adopted input's " + argument, value, expectation);
  };
  const Distribution& given = adopted.distribution;
  if (given.ranks() != plan.input.ranks())
    refuse("ranks", std::to_string(given.ranks()), "the " + std::to_string(plan.input.ranks()) + " of the network");
  if (given.extents() != plan.input.extents())
    refuse("extents", to_string(given.extents()), to_string(plan.input.extents()) + ", samples times network.input");
  plan.input = given;
  plan.input_is_adopted = true;
}

}  // namespace

NetworkPlan plan_network(const NetworkDescription& network, const std::vector<LayerSplit>& splits, int ranks,
                         Index samples, const std::optional<AdoptedInputPlan>& adopted) {
  if (samples < 1) {
    throw InvalidArgument("aloni::nn::plan_network", "samples", std::to_string(samples), "at least 1");
  }
  if (splits.size() != network.layers.size()) {
    throw InvalidArgument("aloni::nn::plan_network", "splits", std::to_string(splits.size()) + " splits",
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
    const OperationProperties operation = properties_of(description.operation);
    LayerPlan& layer = plan.layers[i];
    for (const std::string& name : description.inputs) {
      const int source = find_layer(network, name);
      layer.inputs.push_back({source, InputMode::shared, {}, 0});
      (source < 0 ? plan.input_readers : plan.readers[source]).push_back(i);
    }
    std::vector<Extents> read;
    for (const LayerInput& input : layer.inputs)
      read.push_back(input.source < 0 ? input_extents : extents[input.source]);
    const Extents& in = operation.concatenates ? extents[i] : read[0];
    const bool last_before_softmax = i == count - 1 && targets_of(network.loss) != LossTargets::elements;
    const ProcessGrid grid = tensor_grid(operation, splits[i], in, extents[i], last_before_softmax);
    layer.convolution = convolution_plan(operation, splits[i], in, grid);
    layer.is_identity_in_inference = operation.is_identity_in_inference;
    layer.passes_gradient_on = operation.passes_gradient_on;
    layer.windowed = operation.stencil || operation.range_rule || layer.convolution;
    if (operation.stencil) layer.stencil = *operation.stencil;
    if (operation.range_rule) layer.range_map = halo::RangeMap{*operation.range_rule, in, extents[i]};
    layer.input = Distribution::block(in, grid, ranks);
    layer.output = Distribution::block(extents[i], grid, ranks);
    if (operation.reduces_space) {
      for (Dim d : views::spatial_dims) layer.output = layer.output.with_replicated(d);
    }
    if (operation.concatenates) {
      place_side_by_side(layer, read);
    } else {
      for (LayerInput& input : layer.inputs) input.distribution = layer.input;
    }
    layer.blocks = find_blocks(layer);
    if (layer.convolution) layer.output_gradient_in_place = exchanges_gradient_in_place(layer);
  }
  if (plan.input_readers.empty()) {
    throw InvalidArgument("aloni::nn::plan_network", "network", "no layer reads \"input\"",
                          "at least one layer that reads it");
  }
  plan.input = Distribution::block(input_extents, plan.layers[plan.input_readers[0]].input.grid(), ranks);
  if (adopted) adopt_input(plan, *adopted);

  add_recomputation(plan, splits, ranks);
  for (int i = 0; i < count; ++i) {
    LayerPlan& layer = plan.layers[i];
    const bool reads_ghosts = needs_ghosts(layer, layer.input, [&](int r) { return layer.input_needed(r); });
    for (LayerInput& input : layer.inputs) {
      const bool same = plan.output_of(input.source) == input.distribution;
      const bool served = input.source >= 0 && !plan.layers[input.source].recomputed.empty();
      const bool ghosts = !served && reads_ghosts;
      const bool of_caller = input.source < 0 && plan.input_is_adopted;
      if (properties_of(network.layers[i].operation).concatenates || (of_caller && (ghosts || !adopted->dense))) {
        input.mode = InputMode::separate;
      } else if (same && !ghosts) {
        input.mode = InputMode::shared;
      } else if (same && plan.readers_of(input.source).size() == 1 &&
                 (input.source < 0 || !properties_of(network.layers[input.source].operation).writes_dense)) {
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

#include <aloni/nn/plan/parameter_layout.hpp>

#include <aloni/core/error.hpp>

#include <algorithm>
#include <string>

namespace aloni::nn {

using views::Box;
using views::Extents;

namespace {

ParameterLayout lay_out(const NetworkDescription& network, const NetworkPlan* plan, int rank) {
  ParameterLayout layout;
  layout.descriptions = parameters_of(network);
  layout.places.resize(layout.descriptions.size());
  layout.blocks = {1};
  for (std::size_t i = 0; i < layout.places.size(); ++i) {
    const ParameterDescription& d = layout.descriptions[i];
    ParameterPlace& place = layout.places[i];
    place.own = {views::whole(d.extents)};
    const bool is_weight = i == 0 || layout.descriptions[i - 1].layer != d.layer;
    if (!plan || !is_weight) continue;
    const auto& convolution = plan->layers[static_cast<std::size_t>(d.layer)].convolution;
    if (!convolution || convolution->blocks() == 1) continue;
    place.blocks = {convolution->channel_blocks, convolution->filter_blocks};
    layout.blocks.push_back(place.blocks.count());
    place.own.clear();
    for (const ConvolutionPart& part : convolution->parts(rank))
      place.own.push_back(convolution->weights_of(part, d.extents));
  }
  std::ranges::sort(layout.blocks);
  layout.blocks.erase(std::unique(layout.blocks.begin(), layout.blocks.end()), layout.blocks.end());
  layout.lengths.assign(layout.blocks.size(), 0);
  Index first = 0;
  for (std::size_t i = 0; i < layout.places.size(); ++i) {
    ParameterPlace& place = layout.places[i];
    for (const Box& box : place.own) place.kept = hull(place.kept, box);
    place.segment =
        static_cast<std::size_t>(std::ranges::find(layout.blocks, place.blocks.count()) - layout.blocks.begin());
    place.offset = layout.lengths[place.segment];
    place.first = first;
    first += layout.descriptions[i].extents.size();
    // Each tensor has a distinct address, even if it is empty.
    layout.lengths[place.segment] += std::max<Index>(1, place.kept.size());
  }
  return layout;
}

}  // namespace

int ParameterLayout::find(int layer, int k) const {
  for (std::size_t i = 0; i < descriptions.size(); ++i) {
    if (descriptions[i].layer == layer) return static_cast<int>(i) + k;
  }
  throw InvalidArgument("aloni::nn::Parameters::find", "layer", std::to_string(layer), "a layer that has parameters");
}

ParameterLayout lay_out_parameters(const NetworkDescription& network) { return lay_out(network, nullptr, 0); }

ParameterLayout lay_out_parameters(const NetworkDescription& network, const NetworkPlan& plan, int rank) {
  return lay_out(network, &plan, rank);
}

}  // namespace aloni::nn

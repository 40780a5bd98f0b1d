#include <aloni/model/layer_costs.hpp>

#include <aloni/model/communication.hpp>
#include <aloni/model/detail/layer_pricer.hpp>
#include <aloni/model/detail/node_map.hpp>
#include <aloni/model/detail/parcel_costs.hpp>
#include <aloni/model/detail/reduced_layer.hpp>
#include <aloni/model/transfer_costs.hpp>
#include <aloni/views/even_blocks.hpp>

#include <algorithm>
#include <variant>

namespace aloni::model {

namespace {

using nn::LayerSplit;
using views::Dim;
using views::Extents;

double element_bytes(const nn::StepOptions& step) { return static_cast<double>(nn::bytes_of(step.activations)); }

}  // namespace

LayerCosts::LayerCosts(const nn::NetworkDescription& network, const Machine& machine, const KernelTimes& kernels,
                       int ranks, const LayerCostOptions& options)
    : network_(network),
      machine_(machine),
      kernels_(kernels),
      ranks_(ranks),
      options_(options),
      description_(description_of(machine, ranks)),
      nodes_(std::make_unique<detail::NodeMap>(description_, ranks,
                                               machine.planning.nodes.empty() ? machine.ranks_per_node : 0)),
      fits_(std::make_unique<FittedCollectives>(machine)),
      // Measured times have the exact shape in their key.
      folds_pointwise_(table_for(machine, machine.ranks_per_node, machine.threads_per_rank) == nullptr),
      facts_(facts_of(network, options.samples)) {
  const auto size = network.layers.size();
  std::vector<int> readers(size, 0);
  std::vector<const nn::Operation*> last_reader(size, nullptr);
  for (const nn::LayerDescription& layer : network.layers)
    for (const std::string& input : layer.inputs)
      if (const int source = find_layer(network, input); source >= 0) {
        ++readers[static_cast<std::size_t>(source)];
        last_reader[static_cast<std::size_t>(source)] = &layer.operation;
      }
  const auto is_max_pooling = [](const nn::Operation* operation) {
    const auto* const pooling = std::get_if<nn::Pooling>(operation);
    return pooling && pooling->kind == nn::PoolingKind::max;
  };
  for (const LayerFacts& f : facts_) {
    nn::LayerDescription layer = network.layers[static_cast<std::size_t>(f.layer)];
    layer.name = "layer";
    bool reads_layer = false, is_fused = false;
    for (std::string& input : layer.inputs) {
      const int source = find_layer(network, input);
      reads_layer = reads_layer || source >= 0;
      // The kernels of the batch normalisation before it compute it, or those of the max pooling behind it.
      const auto l = static_cast<std::size_t>(f.layer);
      const bool only_reader = source >= 0 && readers[static_cast<std::size_t>(source)] == 1;
      is_fused = only_reader && std::holds_alternative<nn::Relu>(layer.operation) &&
                 ((options.step.fuse_batch_norm &&
                   std::holds_alternative<nn::BatchNorm>(network.layers[static_cast<std::size_t>(source)].operation)) ||
                  (options.step.fuse_pooling && readers[l] == 1 && is_max_pooling(last_reader[l])));
      input = "input";
    }
    std::string kind = is_fused ? "fused " : "";
    kind += to_string(layer) + (reads_layer ? " " : " first ");
    for (const Extents& e : f.inputs) kind += to_string(e) + " ";
    if (f.last_before_softmax) kind += "last";
    kinds_.push_back(std::move(kind));
    // Activations and parameters with their gradients, and two states of each parameter at most.
    step_bytes_ += element_bytes(options.step) *
                   (2 * static_cast<double>(f.output.size()) / ranks + 4 * static_cast<double>(f.weights));
  }
}

LayerCosts::~LayerCosts() = default;

detail::PricedNetwork LayerCosts::priced_network() const {
  return {network_, machine_, kernels_, ranks_, options_, description_, *nodes_, folds_pointwise_, *fits_, step_bytes_};
}

double LayerCosts::bucket_flight() const {
  if (options_.kind == nn::StepKind::inference) return 0;
  return detail::group_sum(static_cast<double>(description_.bucket_bytes), ranks_, 1, true, priced_network()).flight;
}

LayerPrice LayerCosts::of(const LayerFacts& facts, const LayerSplit& split) {
  std::string shape = to_string(split) + " " + std::string(nn::name(split.overlap));
  const auto& operation = network_.layers[static_cast<std::size_t>(facts.layer)].operation;
  const bool sums_over_space = std::holds_alternative<nn::GroupNorm>(operation) ||
                               (std::holds_alternative<nn::BatchNorm>(operation) &&
                                std::get<nn::BatchNorm>(operation).scope == nn::StatisticsScope::spatial);
  if (folds_pointwise_ && detail::visits_elements(facts.properties) && !sums_over_space) {
    Index cells = 1;
    for (const Dim d : views::all_dims)
      if (d != Dim::channel) cells *= ceil_div(facts.output[d], split.grid[d]);
    shape = std::to_string(cells) + " cells c" + std::to_string(split.tensor_grid()[Dim::channel]) + " " +
            std::to_string(split.size());
  }
  const auto key = std::pair(kind_of(facts.layer), std::move(shape));
  const auto found = prices_.find(key);
  return found != prices_.end() ? found->second : prices_.emplace(key, price(facts, split)).first->second;
}

LayerPrice LayerCosts::price(const LayerFacts& facts, const LayerSplit& split) const {
  const bool trains = options_.kind != nn::StepKind::inference;
  if (kind_of(facts.layer).starts_with("fused ")) return {};
  if (facts.properties.concatenates) {  // copied into the buffer, and the gradient back
    double bytes = element_bytes(options_.step);
    for (const Dim d : views::all_dims) bytes *= static_cast<double>(ceil_div(facts.output[d], split.tensor_grid()[d]));
    const LinkCosts& self = machine_.link(LinkKind::self);
    const double pass = options_.micro_batches * (machine_.exchange_seconds + bytes * self.seconds_per_byte);
    return {.seconds = pass * (trains ? 2 : 1), .backward = trains ? pass : 0, .bytes = trains ? bytes : 0};
  }
  return detail::price_layer(priced_network(), facts, split);
}

LayerCosts::Move LayerCosts::move_one_way(const RedistributionTraffic& in, const RedistributionTraffic& out) const {
  const double element = element_bytes(options_.step);
  const LinkKind near_kind = description_.shared_memory ? LinkKind::shared_memory : LinkKind::within_node;
  // By the mean size of a message. A link without a fit has one price for all sizes, and no price for the call.
  double seconds_per_call = 0;
  const auto costs_of = [&](LinkKind kind, double elements, double messages) {
    const double bytes = messages > 0 ? elements * element / messages : 0;
    const bool direct = kind == LinkKind::shared_memory && bytes >= static_cast<double>(description_.direct_bytes);
    const detail::ParcelCosts costs =
        detail::parcel_costs(machine_, direct ? TransferMethod::copies : TransferMethod::messages, kind, bytes);
    if (messages > 0) seconds_per_call = std::max(seconds_per_call, costs.seconds_per_call);
    return costs;
  };
  const detail::ParcelCosts near_in = costs_of(near_kind, in.node, in.node_messages),
                            near_out = costs_of(near_kind, out.node, out.node_messages),
                            far_in = costs_of(LinkKind::between_nodes, in.far, in.far_messages),
                            far_out = costs_of(LinkKind::between_nodes, out.far, out.far_messages);
  const auto of_messages = [](double messages, const detail::ParcelCosts& costs) {
    return messages * (costs.link.seconds_per_message + costs.copy.seconds_per_message);
  };
  Move m;
  m.fixed = machine_.exchange_seconds + seconds_per_call;
  m.fixed += of_messages(in.node_messages, near_in) + of_messages(out.node_messages, near_out);
  m.fixed += of_messages(in.far_messages, far_in) + of_messages(out.far_messages, far_out);
  if (in.node_messages > 0) m.fixed += near_in.link.latency;
  if (in.far_messages > 0) m.fixed += far_in.link.latency;
  const int sharers = std::min(machine_.ranks_per_node, ranks_);  // all ranks of the node receive at the same time
  m.of_bytes = in.self * element * machine_.link(LinkKind::self).seconds_per_byte +
               in.far * element * (far_in.copy.seconds_per_byte + far_in.link.seconds_per_byte * sharers) +
               out.far * element * far_out.copy.seconds_per_byte + in.node * element * near_in.link.seconds_per_byte;
  return m;
}

LayerCosts::Move LayerCosts::move(const BlockLayout& from, const BlockLayout& to, bool goes_back) const {
  Move slowest;
  for (const int rank : {0, ranks_ - 1}) {  // the largest blocks, and the last part of a concatenation
    const RedistributionTraffic in = received_traffic(from, to, rank, nodes_->company(rank));
    const RedistributionTraffic out = received_traffic(to, from, rank, nodes_->company(rank));
    Move m = move_one_way(in, out);
    if (goes_back) {
      const Move back = move_one_way(out, in);
      m.fixed += back.fixed;
      m.of_bytes += back.of_bytes;
    }
    if (m.fixed + m.of_bytes > slowest.fixed + slowest.of_bytes) slowest = m;
  }
  return slowest;
}

int LayerCosts::number_of(const std::vector<Index>& values) {
  return numbers_.try_emplace(values, static_cast<int>(numbers_.size())).first->second;
}

std::vector<double> LayerCosts::between(int from, const std::vector<LayerSplit>& from_splits, int to, int input,
                                        const std::vector<LayerSplit>& to_splits) {
  const LayerFacts& reader = facts_[static_cast<std::size_t>(to)];
  const Extents extents = reader.inputs[static_cast<std::size_t>(input)];
  const bool reduces = from >= 0 && facts_[static_cast<std::size_t>(from)].properties.reduces_space;
  const bool goes_back = options_.kind != nn::StepKind::inference && from >= 0;

  // Blocks of channels are shares of them, so bytes grow with the channels. One computation with a number of channels
  // that all blocks divide serves all layers of a block of DenseNet. Parts of a concatenation are no equal blocks.
  // With fits the price of a byte depends on the size.
  constexpr Index usual_channels = 5040;  // divisible by 1 to 10
  Extents usual = extents;
  if (machine_.transfers.empty()) usual[Dim::channel] = std::max(usual_channels, extents[Dim::channel]);
  const double scale = static_cast<double>(extents[Dim::channel]) / static_cast<double>(usual[Dim::channel]);

  const auto tensor_number = [&](const Extents& e, bool is_joined) {
    std::vector<Index> tensor(e.values.begin(), e.values.end());
    for (const Index fact : {Index{reduces}, Index{goes_back}, Index{is_joined ? to : -1}, Index{input * is_joined}})
      tensor.push_back(fact);
    return static_cast<std::uint64_t>(number_of(tensor)) << 40;
  };
  const auto grids_of = [&](const std::vector<LayerSplit>& splits) {
    std::vector<std::pair<views::ProcessGrid, std::uint64_t>> grids;
    for (const LayerSplit& s : splits) {
      const views::ProcessGrid grid = s.tensor_grid();
      grids.push_back({grid, static_cast<std::uint64_t>(number_of({grid.blocks.begin(), grid.blocks.end()}))});
    }
    return grids;
  };
  const std::uint64_t usual_number = tensor_number(usual, false);
  const std::uint64_t joined_number = reader.properties.concatenates ? tensor_number(extents, true) : 0;
  Index offset = 0;  // of the input in a concatenation
  for (int k = 0; k < input && reader.properties.concatenates; ++k)
    offset += reader.inputs[static_cast<std::size_t>(k)][Dim::channel];

  std::vector<double> seconds;
  const auto sources = grids_of(from_splits), targets = grids_of(to_splits);
  for (const auto& [source, source_number] : sources) {
    for (const auto& [target, target_number] : targets) {
      const bool is_joined = reader.properties.concatenates && target[Dim::channel] > 1;
      if (source == target && !is_joined && !reduces) {
        seconds.push_back(0);
        continue;
      }
      const std::uint64_t key = (is_joined ? joined_number : usual_number) | source_number << 20 | target_number;
      auto known = moves_.find(key);
      if (known == moves_.end()) {
        const Extents& moved = is_joined ? extents : usual;
        const BlockLayout layout{moved, source, reduces};
        BlockLayout wanted{moved, target};
        if (is_joined) {
          for (int b = 0; b <= target[Dim::channel]; ++b) {
            const Index border = views::even_border(reader.output[Dim::channel], target[Dim::channel], b);
            wanted.channel_borders.push_back(std::clamp<Index>(border - offset, 0, extents[Dim::channel]));
          }
        }
        const bool is_same = !is_joined && source == target && source.spatial_size() == 1;
        known = moves_.emplace(key, is_same ? Move{} : move(layout, wanted, goes_back)).first;
      }
      seconds.push_back(options_.micro_batches *
                        (known->second.fixed + (is_joined ? 1 : scale) * known->second.of_bytes));
    }
  }
  return seconds;
}

}  // namespace aloni::model

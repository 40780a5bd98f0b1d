#include <aloni/model/layer_costs.hpp>

#include <aloni/model/communication.hpp>
#include <aloni/nn/step_graph.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <variant>

namespace aloni::model {

namespace {

using nn::LayerSplit;
using views::Box;
using views::Dim;
using views::Distribution;
using views::Extents;
using views::num_dims;
using views::position;

Index blocks_needed(Index extent, int blocks) { return ceil_div(extent, blocks); }

/// A layer as a network of its own, on the blocks around one rank.
struct ReducedLayer {
  nn::NetworkDescription network = {};
  LayerSplit split = {};
  Index samples = 1;
  int rank = 0;                             ///< whose plan is priced
  std::vector<int> real_ranks = {};         ///< of each rank: its number in the whole grid
  std::array<int, num_dims> real_blocks{};  ///< of the whole grid
};

/// Layers whose kernels visit each element once: the shape of a block does not matter, only its size.
bool visits_elements(const nn::OperationProperties& p) {
  return !p.stencil && !p.range_rule && !p.convolution && !p.convolution_if_split && !p.reduces_space &&
         !p.splits_samples_only && !p.concatenates;
}

bool has_ghosts(const std::optional<halo::Stencil>& stencil, Dim d) { return stencil && !(*stencil)[d].identity(); }

ReducedLayer reduce(const nn::NetworkDescription& network, const LayerFacts& facts, const LayerSplit& split, int ranks,
                    bool folds) {
  const nn::OperationProperties& p = facts.properties;
  const nn::LayerDescription& layer = network.layers[static_cast<std::size_t>(facts.layer)];
  ReducedLayer reduced{.split = split, .real_blocks = split.tensor_grid().blocks};
  Extents input = facts.input;
  std::array<int, num_dims> center{};  // coordinates of the rank, in the reduced and in the real grid
  std::array<int, num_dims> real_center{};

  // Samples: one block. Sums over all ranks need a second one to be in the plan.
  const auto* bn = std::get_if<nn::BatchNorm>(&layer.operation);
  const int copies = ranks / std::max(1, split.grid[Dim::channel]);
  const bool sums_over_all =
      bn && copies > 1 &&
      (bn->scope == nn::StatisticsScope::all || (bn->scope == nn::StatisticsScope::neighbours && bn->ranks > 1));
  reduced.split.grid[Dim::sample] = sums_over_all ? 2 : 1;
  reduced.samples = blocks_needed(facts.input[Dim::sample], split.grid[Dim::sample]);

  const bool sums_over_space = p.reduces_space || std::holds_alternative<nn::GroupNorm>(layer.operation) ||
                               (bn && bn->scope == nn::StatisticsScope::spatial);
  for (const Dim d : views::spatial_dims) {
    const int blocks = split.grid[d];
    if (blocks == 1 || p.range_rule) continue;
    int few = sums_over_space ? 2 : 1;
    if (has_ghosts(p.stencil, d)) {
      few = std::min(blocks, 3);
      if (few == blocks) continue;
      const halo::Stencil1D& w = (*p.stencil)[d];
      const Index out = few * blocks_needed(facts.output[d], blocks);
      const bool transposed = p.convolution && p.convolution->transposed;
      input[d] = transposed ? few * blocks_needed(facts.input[d], blocks)
                            : std::max<Index>(1, (out - 1) * w.stride + w.reach() - w.pad_low - w.pad_high);
    } else {
      input[d] = few * blocks_needed(facts.input[d], blocks);
    }
    reduced.split.grid[d] = few;
  }
  const bool channels_meet = p.convolution || p.convolution_if_split ||
                             std::holds_alternative<nn::GroupNorm>(layer.operation) ||
                             std::holds_alternative<nn::LayerNorm>(layer.operation);
  if (!channels_meet && split.grid[Dim::channel] > 1) {
    input[Dim::channel] = blocks_needed(facts.input[Dim::channel], split.grid[Dim::channel]);
    reduced.split.grid[Dim::channel] = 1;
  }
  if (folds && visits_elements(p) && reduced.split.grid.spatial_size() == 1) {
    for (const Dim d : views::spatial_dims) reduced.samples *= std::exchange(input[d], 1);
  }
  reduced.samples *= reduced.split.grid[Dim::sample];

  input[Dim::sample] = 1;
  reduced.network = {
      .spatial_rank = network.spatial_rank, .input = input, .layers = {layer}, .loss = nn::Loss::mean_squared_error};
  for (std::string& name : reduced.network.layers[0].inputs) name = "input";

  // The middle of an even number of blocks has a border between nodes on its left, if there is one.
  const views::ProcessGrid few = reduced.split.tensor_grid(), all = split.tensor_grid();
  for (const Dim d : views::spatial_dims) {
    const auto i = static_cast<std::size_t>(position(d));
    center[i] = few[d] / 2;
    if (few[d] == 2) center[i] = 0;  // the larger block
    real_center[i] = few[d] == all[d] ? center[i] : std::max(1, all[d] / 2);
  }
  center[4] = real_center[4] = few[Dim::channel] / 2;
  reduced.rank = few.rank_of(center);
  for (int r = 0; r < few.size(); ++r) {
    auto coordinate = few.coordinate(r);
    for (std::size_t i = 0; i < num_dims; ++i) {
      const int moved = real_center[i] + coordinate[i] - center[i];
      coordinate[i] = std::clamp(moved, 0, all.blocks[i] - 1);
    }
    reduced.real_ranks.push_back(all.rank_of(coordinate));
  }
  return reduced;
}

/// Number of nodes of `members` ranks at a distance of `stride`.
int nodes_of_group(int members, int stride, int ranks, int ranks_per_node) {
  const int on_a_node = std::max(1, ranks_per_node / std::max(1, stride));
  const int all = static_cast<int>(ceil_div(ranks, ranks_per_node));
  return std::clamp<int>(static_cast<int>(ceil_div(members, on_a_node)), 1, all);
}

struct GroupSum {
  double flight = 0, busy = 0;
};

/// A sum over ranks: on hosts the cores add and move values within the node, as in reduction_cost().
GroupSum sum_over(double bytes, int members, int nodes, const Machine& machine, bool on_host) {
  GroupSum sum;
  if (members < 2 || bytes <= 0) return sum;
  const double seconds = fastest_all_reduce(bytes, members, nodes, machine);
  if (!on_host) {
    sum.flight = seconds;
  } else if (nodes > 1) {
    const LinkCosts& link = machine.link(LinkKind::between_nodes);
    sum.flight = std::min(seconds, link.latency + 2 * bytes * link.seconds_per_byte * (nodes - 1) / nodes);
  }
  sum.busy = seconds - sum.flight;
  return sum;
}

double element_bytes(const nn::StepOptions& step) { return static_cast<double>(nn::bytes_of(step.activations)); }

}  // namespace

double fastest_all_reduce(double bytes, int ranks, int nodes, const Machine& machine) {
  using A = comm::AllReduceAlgorithm;
  if (ranks < 2 || bytes <= 0) return 0;
  if (!machine.planning.on_host) return device_all_reduce_seconds(bytes, ranks, nodes, machine);
  double least = std::numeric_limits<double>::infinity();
  for (const A a : {A::recursive_doubling, A::rabenseifner, A::ring, A::hierarchical, A::direct}) {
    if (a == A::direct && (nodes > 1 || !machine.planning.shared_memory)) continue;
    if (a == A::hierarchical && (nodes == 1 || nodes == ranks)) continue;
    least = std::min(least, all_reduce_seconds(a, bytes, ranks, nodes, machine));
  }
  return least;
}

/// Walks over the plan of one rank. Its neighbours are as fast as the rank itself.
class LayerCosts::Pricer {
 public:
  Pricer(const LayerCosts& costs, const LayerFacts& facts, const LayerSplit& split)
      : costs_(costs),
        facts_(facts),
        split_(split),
        reduced_(reduce(costs.network_, facts, split, costs.ranks_, costs.folds_pointwise_)),
        description_(costs.description_) {
    const int per_node = costs.machine_.ranks_per_node;
    description_.nodes.clear();
    if (costs.ranks_ > per_node)
      for (const int r : reduced_.real_ranks) description_.nodes.push_back(r / per_node);
    description_.tuning = std::nullopt;
  }

  LayerPrice price() {
    nn::StepOptions step = costs_.options_.step;
    step.recompute = {};
    const auto& inputs = costs_.network_.layers[static_cast<std::size_t>(facts_.layer)].inputs;
    step.input_gradient = std::ranges::any_of(inputs, [](const std::string& i) { return i != "input"; });
    const int ranks = reduced_.split.size();
    const nn::NetworkPlan layers = plan_network(reduced_.network, {reduced_.split}, ranks, reduced_.samples);
    plan_ = plan_step(reduced_.network, layers, reduced_.rank, costs_.options_.kind, description_, step);
    walk();
    add_gradient_sums();
    add_bytes();
    return price_;
  }

 private:
  bool counts(const nn::PlanNode& node) const {
    const auto* sum = std::get_if<nn::ReductionWork>(&node.work);
    return node.phase != nn::StepPhase::loss && !(sum && sum->segment >= 0);
  }

  void walk() {
    double now = 0;
    std::vector<double> ready(plan_.nodes.size(), 0), finish(plan_.nodes.size(), 0);
    for (const nn::StepAction& action : nn::schedule(nn::graph_of(plan_))) {
      const auto n = static_cast<std::size_t>(action.node);
      const nn::PlanNode& node = plan_.nodes[n];
      if (!counts(node)) continue;
      const double before = now;
      if (action.kind == nn::StepActionKind::run) {
        now += costs_.kernels_.of(kernel_of(plan_, node)).seconds;
      } else if (action.kind == nn::StepActionKind::finish) {
        now = std::max(now, ready[n]) + finish[n];
      } else if (const auto* transfer = std::get_if<nn::TransferWork>(&node.work)) {
        const TransferCost cost = transfer_cost(plan_, *transfer, costs_.machine_, description_);
        now += cost.start;
        const double contention = ranks_that_cross_nodes(cost);
        for (const TransferCost::Arrival& a : cost.arrivals)
          ready[n] = std::max(ready[n], now + a.latency + a.wire * (a.between_nodes ? contention : 1));
        finish[n] = cost.finish;
      } else if (const auto* sum = std::get_if<nn::ReductionWork>(&node.work)) {
        const auto [members, stride] = real_members(*sum);
        const double bytes = static_cast<double>(sum->elements) * static_cast<double>(nn::bytes_of(sum->type));
        const GroupSum cost = group_sum(bytes, members, stride);
        now += costs_.machine_.exchange_seconds / 2;
        ready[n] = now + cost.flight;
        finish[n] = cost.busy + costs_.machine_.exchange_seconds / 2;
      }
      if (node.phase == nn::StepPhase::backward) price_.backward += now - before;
    }
    price_.seconds = now;
  }

  GroupSum group_sum(double bytes, int members, int stride) const {
    const int nodes = nodes_of_group(members, stride, costs_.ranks_, costs_.machine_.ranks_per_node);
    return sum_over(bytes, members, nodes, costs_.machine_, costs_.description_.on_host);
  }

  /// The ranks of the node that receive from other nodes at the same time: they share its link.
  double ranks_that_cross_nodes(const TransferCost& cost) const {
    const int per_node = costs_.machine_.ranks_per_node;
    const int mine = reduced_.real_ranks[static_cast<std::size_t>(reduced_.rank)], first = mine / per_node * per_node;
    int crossing = 0;
    for (int r = first; r < std::min(first + per_node, costs_.ranks_); ++r) {
      crossing += std::ranges::any_of(cost.arrivals, [&](const TransferCost::Arrival& a) {
        const int peer = r + reduced_.real_ranks[static_cast<std::size_t>(a.peer)] - mine;  // row-major numbers
        return a.between_nodes && (peer < first || peer >= first + per_node);
      });
    }
    return std::max(1, crossing);
  }

  /// The number of members that a sum has in the whole grid, and the distance between two of them.
  std::pair<int, int> real_members(const nn::ReductionWork& sum) const {
    const auto& layer = costs_.network_.layers[static_cast<std::size_t>(facts_.layer)];
    if (const auto* bn = std::get_if<nn::BatchNorm>(&layer.operation)) {
      const int channels = split_.grid[Dim::channel];
      if (bn->scope == nn::StatisticsScope::all) return {costs_.ranks_ / channels, channels};
      if (bn->scope == nn::StatisticsScope::neighbours)
        return {std::min(bn->ranks, costs_.ranks_ / channels), channels};
    }
    const views::ProcessGrid few = reduced_.split.tensor_grid();
    int members = 1, stride = 0, distance = 1;
    for (std::size_t i = num_dims; i-- > 0;) {
      std::set<int> coordinates;
      for (const int m : sum.members) coordinates.insert(few.coordinate(m)[i]);
      if (coordinates.size() > 1) {
        const bool whole = static_cast<int>(coordinates.size()) == few.blocks[i];
        members *= whole ? reduced_.real_blocks[i] : static_cast<int>(coordinates.size());
        if (stride == 0) stride = distance;
      }
      distance *= reduced_.real_blocks[i];
    }
    return {members, std::max(1, stride)};
  }

  /// Sums of gradients travel in buckets with those of other layers, so a layer pays for its share of a full bucket.
  void add_gradient_sums() {
    if (costs_.options_.kind == nn::StepKind::inference || facts_.weights == 0) return;
    const int blocks = split_.grid[Dim::channel] * split_.filters;
    const bool splits_weights = costs_.options_.step.split_parameters &&
                                (facts_.properties.convolution || facts_.properties.convolution_if_split);
    const int parts = splits_weights ? blocks : 1;
    const double bytes = std::ceil(static_cast<double>(facts_.weights) / parts) *
                         static_cast<double>(costs_.options_.step.activations == nn::ElementType::float64 ? 8 : 4);
    const double bucket = std::max(bytes, static_cast<double>(costs_.description_.bucket_bytes));
    const GroupSum sum = group_sum(bucket, costs_.ranks_ / parts, parts);
    price_.seconds += sum.busy * bytes / bucket;
    price_.backward += sum.busy * bytes / bucket;
    price_.gradient_flight = sum.flight * bytes / bucket;
  }

  void add_bytes() {
    using Role = nn::BufferRole;
    for (const nn::PlanBuffer& b : plan_.buffers) {
      if (b.alias != nn::no_buffer) continue;
      const bool kept =
          b.role == Role::parameters || b.role == Role::parameter_gradients || b.role == Role::optimiser ||
          (costs_.options_.kind != nn::StepKind::inference && (b.role == Role::activation || b.role == Role::ghosts));
      if (kept) price_.bytes += static_cast<double>(b.bytes());
    }
  }

  const LayerCosts& costs_;
  const LayerFacts& facts_;
  const LayerSplit& split_;
  ReducedLayer reduced_;
  MachineDescription description_;
  nn::StepPlan plan_;
  LayerPrice price_;
};

LayerCosts::LayerCosts(const nn::NetworkDescription& network, const Machine& machine, const KernelTimes& kernels,
                       int ranks, const LayerCostOptions& options)
    : network_(network),
      machine_(machine),
      kernels_(kernels),
      ranks_(ranks),
      options_(options),
      description_(description_of(machine, ranks)),
      // Measured times have the exact shape in their key.
      folds_pointwise_(table_for(machine, machine.ranks_per_node, machine.threads_per_rank) == nullptr),
      facts_(facts_of(network, options.samples)) {
  std::vector<int> readers(network.layers.size(), 0);
  for (const nn::LayerDescription& layer : network.layers)
    for (const std::string& input : layer.inputs)
      if (const int source = find_layer(network, input); source >= 0) ++readers[static_cast<std::size_t>(source)];
  for (const LayerFacts& f : facts_) {
    nn::LayerDescription layer = network.layers[static_cast<std::size_t>(f.layer)];
    layer.name = "layer";
    bool reads_layer = false, is_fused = false;
    for (std::string& input : layer.inputs) {
      const int source = find_layer(network, input);
      reads_layer = reads_layer || source >= 0;
      // The kernels of the batch normalisation compute it.
      is_fused = source >= 0 && readers[static_cast<std::size_t>(source)] == 1 && options.step.fuse_batch_norm &&
                 std::holds_alternative<nn::Relu>(layer.operation) &&
                 std::holds_alternative<nn::BatchNorm>(network.layers[static_cast<std::size_t>(source)].operation);
      input = "input";
    }
    std::string kind = is_fused ? "fused " : "";
    kind += to_string(layer) + (reads_layer ? " " : " first ");
    for (const Extents& e : f.inputs) kind += to_string(e) + " ";
    if (f.last_before_softmax) kind += "last";
    kinds_.push_back(std::move(kind));
  }
}

LayerCosts::~LayerCosts() = default;

LayerPrice LayerCosts::of(const LayerFacts& facts, const LayerSplit& split) {
  const auto key = std::pair(kind_of(facts.layer), to_string(split) + " " + std::string(nn::name(split.overlap)));
  const auto found = prices_.find(key);
  return found != prices_.end() ? found->second : prices_.emplace(key, price(facts, split)).first->second;
}

LayerPrice LayerCosts::price(const LayerFacts& facts, const LayerSplit& split) const {
  const bool trains = options_.kind != nn::StepKind::inference;
  if (kind_of(facts.layer).starts_with("fused ")) return {};
  if (facts.properties.concatenates) {  // copied into the buffer, and the gradient back
    double bytes = element_bytes(options_.step);
    for (const Dim d : views::all_dims)
      bytes *= static_cast<double>(blocks_needed(facts.output[d], split.tensor_grid()[d]));
    const LinkCosts& self = machine_.link(LinkKind::self);
    const double pass = machine_.exchange_seconds + bytes * self.seconds_per_byte;
    return {.seconds = pass * (trains ? 2 : 1), .backward = trains ? pass : 0, .bytes = trains ? bytes : 0};
  }
  return Pricer(*this, facts, split).price();
}

RedistributionTraffic received_traffic(const Distribution& from, const Distribution& to, int rank, int ranks_per_node,
                                       double element_bytes) {
  RedistributionTraffic traffic;
  const Box box = to.owned(rank);
  if (box.empty()) return traffic;
  // A rank reads from its own replica.
  const int first_of_replica = rank - rank % from.grid().size();
  double messages = 1;
  for (const Dim d : views::all_dims) {
    if (from.replicated(d)) continue;
    int overlapping = 0;
    for (int b = from.block_of(d, box.lower(d)); b <= from.block_of(d, box.upper(d) - 1); ++b)
      overlapping += from.borders(d)[static_cast<std::size_t>(b)] < from.borders(d)[static_cast<std::size_t>(b) + 1];
    messages *= overlapping;
  }
  const auto mine = from.grid().coordinate(rank);
  const auto elements_of = [&](int other) {
    const auto theirs = from.grid().coordinate(other);
    for (const Dim d : views::all_dims) {
      const auto i = static_cast<std::size_t>(position(d));
      if (from.replicated(d) && theirs[i] != mine[i]) return 0.0;
    }
    const Box common = intersect(box, from.owned(other));
    return common.empty() ? 0.0 : static_cast<double>(common.size());
  };
  double left = static_cast<double>(box.size());
  const double self = elements_of(rank);
  traffic.self_bytes = self * element_bytes;
  left -= self;
  messages -= self > 0;
  const int first = std::max(first_of_replica, rank / ranks_per_node * ranks_per_node);
  const int last = std::min(first_of_replica + from.grid().size(), (rank / ranks_per_node + 1) * ranks_per_node);
  for (int other = first; other < last && left > 0; ++other) {
    const double elements = other == rank ? 0 : elements_of(other);
    if (elements == 0) continue;
    traffic.node_bytes += elements * element_bytes;
    traffic.node_messages += 1;
    left -= elements;
  }
  traffic.far_bytes = left * element_bytes;
  traffic.far_messages = messages - traffic.node_messages;
  return traffic;
}

LayerCosts::Move LayerCosts::move(const Distribution& from, const Distribution& to) const {
  const double element = element_bytes(options_.step);
  const LinkCosts& self = machine_.link(LinkKind::self);
  const LinkCosts& near = machine_.link(description_.shared_memory ? LinkKind::shared_memory : LinkKind::within_node);
  const LinkCosts& far = machine_.link(LinkKind::between_nodes);
  Move slowest;
  for (const int rank : {0, ranks_ / 2}) {
    const RedistributionTraffic in = received_traffic(from, to, rank, machine_.ranks_per_node, element);
    const RedistributionTraffic out = received_traffic(to, from, rank, machine_.ranks_per_node, element);
    Move m;
    m.fixed = machine_.exchange_seconds;
    m.fixed += (in.node_messages + out.node_messages) * (near.seconds_per_message + self.seconds_per_message);
    m.fixed += (in.far_messages + out.far_messages) * (far.seconds_per_message + self.seconds_per_message);
    if (in.node_messages > 0) m.fixed += near.latency;
    if (in.far_messages > 0) m.fixed += far.latency;
    m.of_bytes = (in.far_bytes + out.far_bytes + in.self_bytes) * self.seconds_per_byte;
    m.of_bytes += in.node_bytes * near.seconds_per_byte;
    const int sharers = std::min(machine_.ranks_per_node, ranks_);  // all ranks of the node receive at the same time
    m.of_bytes += in.far_bytes * far.seconds_per_byte * sharers;
    if (m.fixed + m.of_bytes > slowest.fixed + slowest.of_bytes) slowest = m;
  }
  return slowest;
}

int LayerCosts::number_of(const std::vector<Index>& values) {
  return numbers_.try_emplace(values, static_cast<int>(numbers_.size())).first->second;
}

const Distribution& LayerCosts::distribution(const Extents& extents, const views::ProcessGrid& grid, bool reduces) {
  std::vector<Index> key(extents.values.begin(), extents.values.end());
  key.insert(key.end(), grid.blocks.begin(), grid.blocks.end());
  key.push_back(reduces);
  const auto known = distributions_.find(key);
  if (known != distributions_.end()) return known->second;
  Distribution made = Distribution::block(extents, grid, ranks_);
  if (reduces)
    for (const Dim d : views::spatial_dims) made = made.with_replicated(d);
  return distributions_.emplace(std::move(key), std::move(made)).first->second;
}

double LayerCosts::between(int from, const LayerSplit& from_split, int to, int input, const LayerSplit& to_split) {
  const LayerFacts& reader = facts_[static_cast<std::size_t>(to)];
  Extents extents = reader.inputs[static_cast<std::size_t>(input)];
  const views::ProcessGrid from_grid = from_split.tensor_grid(), to_grid = to_split.tensor_grid();
  const bool reduces = from >= 0 && facts_[static_cast<std::size_t>(from)].properties.reduces_space;
  const bool splits_joined = reader.properties.concatenates && to_grid[Dim::channel] > 1;
  const bool goes_back = options_.kind != nn::StepKind::inference && from >= 0;
  if (from_grid == to_grid && !splits_joined && !reduces) return 0;

  // Blocks of channels are shares of them, so bytes grow with the channels. One computation then serves all layers of a
  // block of DenseNet. Parts of concatenations are no equal blocks.
  double scale = 1;
  const Index unit = Index{64} * std::max(from_grid[Dim::channel], to_grid[Dim::channel]);
  if (!splits_joined && extents[Dim::channel] > unit) {
    const Index channels = std::exchange(extents[Dim::channel], unit);
    scale = static_cast<double>(channels) / static_cast<double>(unit);
  }
  std::vector<Index> tensor(extents.values.begin(), extents.values.end());
  tensor.push_back(reduces);
  tensor.push_back(goes_back);
  tensor.push_back(splits_joined ? to : -1);
  tensor.push_back(splits_joined ? input : -1);
  const auto grid_number = [&](const views::ProcessGrid& g) {
    return static_cast<std::uint64_t>(number_of({g.blocks.begin(), g.blocks.end()}));
  };
  const std::uint64_t key =
      (static_cast<std::uint64_t>(number_of(tensor)) << 40) | (grid_number(from_grid) << 20) | grid_number(to_grid);
  const auto known = moves_.find(key);
  if (known != moves_.end()) return known->second.fixed + scale * known->second.of_bytes;

  const Distribution& source = distribution(extents, from_grid, reduces);
  Distribution target = distribution(extents, to_grid, false);
  if (splits_joined) {
    Index offset = 0;
    for (int k = 0; k < input; ++k) offset += reader.inputs[static_cast<std::size_t>(k)][Dim::channel];
    const std::vector<Index>& borders = distribution(reader.output, to_grid, false).borders(Dim::channel);
    std::vector<Index> sizes;
    for (std::size_t b = 0; b + 1 < borders.size(); ++b) {
      const Index lo = std::max(borders[b], offset), hi = std::min(borders[b + 1], offset + extents[Dim::channel]);
      sizes.push_back(std::max<Index>(0, hi - lo));
    }
    target = target.with_blocks(Dim::channel, sizes);
  }
  Move both;
  if (source != target) {
    both = move(source, target);
    if (goes_back) {
      const Move back = move(target, source);
      both.fixed += back.fixed;
      both.of_bytes += back.of_bytes;
    }
  }
  moves_.emplace(key, both);
  return both.fixed + scale * both.of_bytes;
}

}  // namespace aloni::model

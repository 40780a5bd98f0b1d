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
    if (blocks == 1) continue;
    if (p.range_rule) {
      const auto* up = std::get_if<nn::Upsampling>(&layer.operation);
      const bool scales = up && up->output == std::array<Index, 3>{0, 0, 0};
      if (!scales || blocks <= 3) continue;  // extents of the output that are given stay as they are
      reduced.split.grid[d] = 3;
      input[d] = 3 * blocks_needed(facts.input[d], blocks);
      continue;
    }
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

/// A sum over ranks by the fastest algorithm.
AllReduceParts sum_over(double bytes, int members, int nodes, const Machine& machine, bool on_host) {
  if (members < 2 || bytes <= 0) return {};
  return parts_of_all_reduce(fastest_all_reduce(bytes, members, nodes, machine), bytes, nodes, machine, on_host);
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
        const AllReduceParts cost = group_sum(bytes, members, stride);
        now += costs_.machine_.exchange_seconds / 2;
        ready[n] = now + cost.flight;
        finish[n] = cost.busy + costs_.machine_.exchange_seconds / 2;
      }
      if (node.phase == nn::StepPhase::backward) price_.backward += now - before;
    }
    price_.seconds = now;
  }

  AllReduceParts group_sum(double bytes, int members, int stride) const {
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
    const AllReduceParts sum = group_sum(bucket, costs_.ranks_ / parts, parts);
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

double LayerCosts::bucket_flight() const {
  if (options_.kind == nn::StepKind::inference) return 0;
  const int nodes = nodes_of_group(ranks_, 1, ranks_, machine_.ranks_per_node);
  return sum_over(static_cast<double>(description_.bucket_bytes), ranks_, nodes, machine_, description_.on_host).flight;
}

LayerPrice LayerCosts::of(const LayerFacts& facts, const LayerSplit& split) {
  std::string shape = to_string(split) + " " + std::string(nn::name(split.overlap));
  const auto& operation = network_.layers[static_cast<std::size_t>(facts.layer)].operation;
  const bool sums_over_space = std::holds_alternative<nn::GroupNorm>(operation) ||
                               (std::holds_alternative<nn::BatchNorm>(operation) &&
                                std::get<nn::BatchNorm>(operation).scope == nn::StatisticsScope::spatial);
  if (folds_pointwise_ && visits_elements(facts.properties) && !sums_over_space) {
    Index cells = 1;
    for (const Dim d : views::all_dims)
      if (d != Dim::channel) cells *= blocks_needed(facts.output[d], split.grid[d]);
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
    for (const Dim d : views::all_dims)
      bytes *= static_cast<double>(blocks_needed(facts.output[d], split.tensor_grid()[d]));
    const LinkCosts& self = machine_.link(LinkKind::self);
    const double pass = machine_.exchange_seconds + bytes * self.seconds_per_byte;
    return {.seconds = pass * (trains ? 2 : 1), .backward = trains ? pass : 0, .bytes = trains ? bytes : 0};
  }
  return Pricer(*this, facts, split).price();
}

namespace {

halo::Range even_block(Index extent, int blocks, int i) {
  const Index length = extent / blocks, longer = extent % blocks;
  const Index lo = i * length + std::min<Index>(i, longer);
  return {lo, lo + length + (i < longer ? 1 : 0)};
}

/// The even block that contains index i.
int even_block_of(Index extent, int blocks, Index i) {
  const Index length = extent / blocks, longer = extent % blocks;
  const Index in_longer = longer * (length + 1);
  return static_cast<int>(i < in_longer ? i / (length + 1) : longer + (i - in_longer) / length);
}

halo::Range common_range(const halo::Range& a, const halo::Range& b) {
  return {std::max(a.lo, b.lo), std::min(a.hi, b.hi)};
}

bool is_replicated(const BlockLayout& layout, std::size_t d) { return layout.replicates_space && d >= 1 && d <= 3; }

/// The number of blocks of dimension d with an index in common.
int overlapping_blocks(const BlockLayout& layout, std::size_t d, const halo::Range& range) {
  const int blocks = layout.grid.blocks[d];
  if (is_replicated(layout, d) || blocks == 1) return 1;
  if (d == 4 && !layout.channel_borders.empty()) {
    int count = 0;
    for (std::size_t b = 0; b + 1 < layout.channel_borders.size(); ++b)
      count += !common_range({layout.channel_borders[b], layout.channel_borders[b + 1]}, range).empty();
    return count;
  }
  const Index extent = layout.extents.values[d];
  return even_block_of(extent, blocks, range.hi - 1) - even_block_of(extent, blocks, range.lo) + 1;
}

}  // namespace

std::array<halo::Range, num_dims> BlockLayout::owned(int rank) const {
  std::array<halo::Range, num_dims> box;
  for (std::size_t d = num_dims; d-- > 0;) {
    const int c = rank % grid.blocks[d];
    rank /= grid.blocks[d];
    const auto i = static_cast<std::size_t>(c);
    if (is_replicated(*this, d)) {
      box[d] = {0, extents.values[d]};
    } else if (d == 4 && !channel_borders.empty()) {
      box[d] = {channel_borders[i], channel_borders[i + 1]};
    } else {
      box[d] = even_block(extents.values[d], grid.blocks[d], c);
    }
  }
  return box;
}

RedistributionTraffic received_traffic(const BlockLayout& from, const BlockLayout& to, int rank, int ranks_per_node) {
  RedistributionTraffic traffic;
  const auto box = to.owned(rank);
  double left = 1, messages = 1;
  for (std::size_t d = 0; d < num_dims; ++d) {
    if (box[d].empty()) return traffic;
    left *= static_cast<double>(box[d].hi - box[d].lo);
    messages *= overlapping_blocks(from, d, box[d]);
  }
  const int size = from.grid.size();
  const auto mine = from.grid.coordinate(rank);
  const auto elements_of = [&](int other) {
    if (from.replicates_space) {  // a rank reads its own copy
      const auto theirs = from.grid.coordinate(other);
      for (std::size_t d = 1; d <= 3; ++d)
        if (theirs[d] != mine[d]) return 0.0;
    }
    const auto theirs = from.owned(other);
    double elements = 1;
    for (std::size_t d = 0; d < num_dims; ++d) {
      const halo::Range common = common_range(box[d], theirs[d]);
      if (common.empty()) return 0.0;
      elements *= static_cast<double>(common.hi - common.lo);
    }
    return elements;
  };
  traffic.self = elements_of(rank);
  left -= traffic.self;
  messages -= traffic.self > 0;
  // Messages stay in the replica of the rank.
  const int first = std::max(rank - rank % size, rank / ranks_per_node * ranks_per_node);
  const int last = std::min(rank - rank % size + size, (rank / ranks_per_node + 1) * ranks_per_node);
  for (int other = first; other < last && left > 0; ++other) {
    const double elements = other == rank ? 0 : elements_of(other);
    if (elements == 0) continue;
    traffic.node += elements;
    traffic.node_messages += 1;
    left -= elements;
  }
  traffic.far = left;
  traffic.far_messages = messages - traffic.node_messages;
  return traffic;
}

LayerCosts::Move LayerCosts::move_one_way(const RedistributionTraffic& in, const RedistributionTraffic& out) const {
  const double element = element_bytes(options_.step);
  const LinkCosts& self = machine_.link(LinkKind::self);
  const LinkCosts& near = machine_.link(description_.shared_memory ? LinkKind::shared_memory : LinkKind::within_node);
  const LinkCosts& far = machine_.link(LinkKind::between_nodes);
  Move m;
  m.fixed = machine_.exchange_seconds;
  m.fixed += (in.node_messages + out.node_messages) * (near.seconds_per_message + self.seconds_per_message);
  m.fixed += (in.far_messages + out.far_messages) * (far.seconds_per_message + self.seconds_per_message);
  if (in.node_messages > 0) m.fixed += near.latency;
  if (in.far_messages > 0) m.fixed += far.latency;
  const int sharers = std::min(machine_.ranks_per_node, ranks_);  // all ranks of the node receive at the same time
  m.of_bytes = (in.far + out.far + in.self) * element * self.seconds_per_byte +
               in.node * element * near.seconds_per_byte + in.far * element * far.seconds_per_byte * sharers;
  return m;
}

LayerCosts::Move LayerCosts::move(const BlockLayout& from, const BlockLayout& to, bool goes_back) const {
  Move slowest;
  for (const int rank : {0, ranks_ - 1}) {  // the largest blocks, and the last part of a concatenation
    const RedistributionTraffic in = received_traffic(from, to, rank, machine_.ranks_per_node);
    const RedistributionTraffic out = received_traffic(to, from, rank, machine_.ranks_per_node);
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
  constexpr Index usual_channels = 5040;  // divisible by 1 to 10
  Extents usual = extents;
  usual[Dim::channel] = std::max(usual_channels, extents[Dim::channel]);
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
            const Index border = b == target[Dim::channel]
                                     ? reader.output[Dim::channel]
                                     : even_block(reader.output[Dim::channel], target[Dim::channel], b).lo;
            wanted.channel_borders.push_back(std::clamp<Index>(border - offset, 0, extents[Dim::channel]));
          }
        }
        const bool is_same = !is_joined && source == target && source.spatial_size() == 1;
        known = moves_.emplace(key, is_same ? Move{} : move(layout, wanted, goes_back)).first;
      }
      seconds.push_back(known->second.fixed + (is_joined ? 1 : scale) * known->second.of_bytes);
    }
  }
  return seconds;
}

}  // namespace aloni::model

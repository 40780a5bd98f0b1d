#include <aloni/nn/plan/cost.hpp>

#include <aloni/core/comm/all_reduce_traffic.hpp>
#include <aloni/halo/node_pairs.hpp>
#include <aloni/nn/operation.hpp>
#include <aloni/nn/plan/detail/reduction_members.hpp>

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <variant>

namespace aloni::nn {

Index packed_bytes(const StepPlan& plan, const TransferWork& work, const MachineDescription& machine) {
  Index bytes = 0;
  for (const TransferItemPlan& item : work.items) {
    const Index element = bytes_of(plan.buffers[static_cast<std::size_t>(item.source)].type);
    for (const auto* messages : {&item.plan.sends, &item.plan.receives})
      for (const halo::Message& m : *messages)
        if (!machine.share_memory(plan.rank, m.peer)) bytes += m.elements * element;
  }
  return bytes;
}

namespace {

using halo::Message;
using views::Box;

double number_of(const Box& box) { return box.empty() ? 0 : static_cast<double>(box.size()); }

double flops_of(const std::vector<ConvolutionCall>& calls) {
  double sum = 0;
  for (const ConvolutionCall& call : calls)
    if (call.computes) sum += local::flops(call.problem);
  return sum;
}

// --- kernels: flops per element of the region that a function visits ---

double flops(const ConvolutionWork& w) { return flops_of(w.calls); }
double flops(const FilterGradientWork& w) { return flops_of(w.calls); }
double flops(const WeightsWork&) { return 0; }
double flops(const BiasWork& w) { return number_of(w.region); }
double flops(const BiasGradientWork& w) { return w.contributes ? number_of(w.region) : 0; }
double flops(const OffloadWork&) { return 0; }
double flops(const RoundingWork& w) { return w.bias == no_buffer ? 0 : number_of(w.region); }

/// Each output visits its window: one comparison or addition per input. The gradient of a maximum visits one input.
double flops(const PoolingWork& w) {
  const auto& p = w.problem;
  double outputs = static_cast<double>(p.samples) * static_cast<double>(p.channels), window = 1;
  for (std::size_t i = 0; i < 3; ++i) {
    outputs *= static_cast<double>(p.output[i]);
    window *= static_cast<double>(p.window[i]);
  }
  return w.backward && w.kind == PoolingKind::max ? outputs : outputs * window;
}

/// As pooling; linear up-sampling multiplies by a weight too, nearest neighbours are copied, their gradients added.
double flops(const ResamplingWork& w) {
  const auto& p = w.problem;
  double outputs = 1, inputs = 1;  // pairs of an output and an input of its window are products over dimensions
  for (std::size_t i = 0; i < 3; ++i) {
    outputs *= static_cast<double>(p.output[i]);
    Index pairs = 0;
    for (Index o = p.output_lower[i]; o < p.output_lower[i] + p.output[i]; ++o) {
      const auto window = p.map[i].window(o);
      pairs += window.hi - window.lo;
    }
    inputs *= static_cast<double>(pairs);
  }
  const double planes = static_cast<double>(p.samples) * static_cast<double>(p.channels);
  switch (p.map[0].rule) {
    case halo::RangeRule::linear:
      return 2 * planes * inputs;
    case halo::RangeRule::nearest:
      return w.backward ? planes * outputs : 0;
    case halo::RangeRule::adaptive:
      break;
  }
  return planes * (w.backward && w.maximum ? outputs : inputs);
}

double flops(const NormalisationWork& w) {
  // With z = (x - mean) / deviation. Sums of x and x² take 3, z takes 2, a sum over z dy and dy takes 3.
  constexpr double sums = 3, normalise = 2, scale = 2, gradient_sums = normalise + 3, gradient = normalise + 5;
  // A ReLU takes 1 more. Its gradient computes y again, for its sign.
  const double relu = w.relu ? 1 : 0, sign = w.relu ? scale + relu : 0;
  const double sum = (w.summand != no_buffer ? 1 : 0) + (w.sum_relu ? 1 : 0);
  const double n = number_of(w.region);
  const bool is_layer = w.kind == NormalisationKind::layer, finds_own_sums = is_layer && !w.splits_cells;
  switch (w.stage) {
    case NormalisationStage::statistics:
      return is_layer ? n : sums * n;
    case NormalisationStage::squares:
      return sums * n;
    case NormalisationStage::forward:
      return (normalise + scale + relu + sum + (finds_own_sums ? sums : 0)) * n;
    case NormalisationStage::gradient_sums:
      return (gradient_sums + sign) * n;
    case NormalisationStage::scale_gradients:  // group normalisation adds sums that it has
      return is_layer && w.is_first_copy ? gradient_sums * n : 0;
    case NormalisationStage::backward:
      break;
  }
  return (gradient + sign + sum + (finds_own_sums ? gradient_sums : 0)) * n;
}

double flops(const GlobalAverageWork& w) {
  return w.stage == GlobalAverageStage::sums ? number_of(w.from) : number_of(w.to);
}

double flops(const DenseWork& w) {
  if (w.pass == DensePass::parameters && !w.contributes) return 0;
  return 2.0 * static_cast<double>(w.samples) * static_cast<double>(w.features) * static_cast<double>(w.inputs);
}

double flops(const PointwiseWork& w) {
  const double n = number_of(w.output.box);
  switch (w.function) {
    case PointwiseFunction::copy:
      return 0;
    case PointwiseFunction::add:
      return n * static_cast<double>(w.inputs.size() - 1);
    case PointwiseFunction::layer:
      return n * properties_of(w.operation).pointwise->forward;
    case PointwiseFunction::layer_gradient:
      break;
  }
  return n * properties_of(w.operation).pointwise->backward;
}

/// A comparison and a multiplication. The random numbers are integer arithmetic.
double flops(const DropoutWork& w) { return 2 * number_of(w.region); }

/// Softmax: maximum, difference, exp, sum, division, and the gradient's difference; smoothing takes two more. Binary
/// cross-entropy: the stable form takes as many. Squared error: difference, square, sum, and the gradient's product.
/// Dice: a sigmoid takes 4, the sums 6, the gradient 6.
double flops(const LossWork& w) {
  const double sigmoid = 4, n = number_of(w.region);
  if (w.loss == Loss::mean_squared_error) return 4 * n;
  if (w.stage == LossStage::rest) return w.gradient == no_buffer ? 0 : (sigmoid + 6) * n;
  if (w.stage == LossStage::sums) return (sigmoid + 6) * n;
  return (w.smoothing > 0 ? 8 : 6) * n;
}

/// A comparison, or a difference, of each element.
double flops(const MetricsWork& w) { return w.is_first_copy ? number_of(w.region) : 0; }

/// Two products and a sum per element.
double flops(const AccumulationWork& w) { return 3 * static_cast<double>(w.elements); }

double flops(const OptimiserWork& w) { return properties_of(w.kind).flops * static_cast<double>(w.elements); }

/// A square and a sum per element. A root, a division and few more per tensor.
double flops(const NormWork& w) {
  if (w.stage == NormStage::factors) return 4 * static_cast<double>(w.sums_read);
  return 2 * static_cast<double>(w.elements);
}

// --- communication ---

using MessagesByPeer = std::map<int, PeerMessages>;
using Ways = std::set<std::pair<int, int>>;  // from a rank to another

/// Adds the messages of one transfer, by the ranks that this one sends to or receives from, without those on ways of
/// `joined`.
void add_messages(const StepPlan& plan, const TransferWork& work, const MachineDescription& machine,
                  MessagesByPeer& peers, const Ways& joined = {}) {
  std::map<int, Index> destinations, sources;  // bytes by rank
  for (const TransferItemPlan& item : work.items) {
    const Index element = bytes_of(plan.buffers[static_cast<std::size_t>(item.source)].type);
    const auto& [out, in] =
        work.adjoint ? std::tie(item.plan.receives, item.plan.sends) : std::tie(item.plan.sends, item.plan.receives);
    for (const Message& m : out) destinations[m.peer] += m.elements * element;
    for (const Message& m : in) sources[m.peer] += m.elements * element;
  }
  const auto is_copied = [&](int peer, Index bytes) {
    return machine.share_memory(plan.rank, peer) && bytes >= machine.direct_bytes;
  };
  for (const auto& [peer, bytes] : destinations) {
    if (joined.contains({plan.rank, peer})) continue;
    PeerMessages& p = peers[peer];
    p.bytes_sent += bytes;
    ++p.messages_sent;
    if (is_copied(peer, bytes)) ++p.messages_received;
  }
  for (const auto& [peer, bytes] : sources) {
    if (joined.contains({peer, plan.rank})) continue;
    PeerMessages& p = peers[peer];
    p.bytes_received += bytes;
    ++p.messages_received;
    if (is_copied(peer, bytes)) ++p.messages_sent;
  }
}

std::vector<PeerMessages> list_of(MessagesByPeer&& sums) {
  std::vector<PeerMessages> peers;
  for (auto& [peer, sum] : sums) {
    sum.peer = peer;
    peers.push_back(sum);
  }
  return peers;
}

/// The values that this rank sends in the forward direction, also if `work` is the adjoint.
void add_parcels(const StepPlan& plan, const TransferWork& work, std::vector<halo::Parcel>& parcels) {
  std::map<int, Index> bytes;  // by rank
  for (const TransferItemPlan& item : work.items)
    for (const Message& m : item.plan.sends)
      bytes[m.peer] += m.elements * bytes_of(plan.buffers[static_cast<std::size_t>(item.source)].type);
  for (const auto& [peer, sum] : bytes)
    if (sum > 0) parcels.push_back({.from = plan.rank, .to = peer, .bytes = static_cast<std::size_t>(sum)});
}

NodeCost transfer_cost(const StepPlan& plan, const TransferWork& work, const MachineDescription& machine) {
  NodeCost c;
  MessagesByPeer peers;
  add_messages(plan, work, machine, peers);
  for (const auto& [peer, p] : peers)
    c += {.bytes_sent = p.bytes_sent,
          .bytes_received = p.bytes_received,
          .messages_sent = p.messages_sent,
          .messages_received = p.messages_received};
  c.workspace = packed_bytes(plan, work, machine);
  if (!work.adjoint) return c;
  // Values are added to their owners: those that arrive, and those that this rank owns itself.
  for (const TransferItemPlan& item : work.items) {
    for (const Message& m : item.plan.sends) c.flops += static_cast<double>(m.elements);
    for (const halo::Move& move : item.plan.local) c.flops += number_of(move.destination);
  }
  return c;
}

NodeCost reduction_cost(const StepPlan& plan, const ReductionWork& work, const MachineDescription& machine) {
  const auto place = std::ranges::find(work.members, plan.rank) - work.members.begin();
  const Index bytes = bytes_of(work.type);
  const comm::AllReduceTraffic t =
      comm::all_reduce_traffic(detail::positions_by_node(work.members, machine), static_cast<int>(place),
                               work.travelling_elements(), static_cast<int>(bytes), work.plan);
  NodeCost c{.flops = static_cast<double>(t.elements_combined),
             .bytes_sent = t.elements_sent * bytes,
             .bytes_received = t.elements_received * bytes,
             .messages_sent = t.messages_sent,
             .messages_received = t.messages_received};
  if (work.partial) c += words_of_a_round(static_cast<int>(place), static_cast<int>(work.members.size()));
  return c;
}

bool is_workspace(BufferRole role) { return role == BufferRole::workspace || role == BufferRole::partial_sums; }

}  // namespace

NodeCost& NodeCost::operator+=(const NodeCost& o) {
  flops += o.flops;
  bytes_read += o.bytes_read;
  bytes_written += o.bytes_written;
  bytes_sent += o.bytes_sent;
  bytes_received += o.bytes_received;
  messages_sent += o.messages_sent;
  messages_received += o.messages_received;
  workspace = std::max(workspace, o.workspace);
  return *this;
}

std::vector<PeerMessages> messages_by_peer(const StepPlan& plan, const MachineDescription& machine) {
  MessagesByPeer sums;
  for (const PlanNode& node : plan.nodes)
    if (const auto* const transfer = std::get_if<TransferWork>(&node.work))
      add_messages(plan, *transfer, machine, sums);
  return list_of(std::move(sums));
}

bool joins_messages(const MachineDescription& machine) {
  return machine.on_host && machine.shared_memory && machine.consolidate_below > 0 && !machine.nodes.empty();
}

std::vector<std::vector<PeerMessages>> messages_of_ranks(const std::vector<StepPlan>& plans,
                                                         const MachineDescription& machine) {
  std::map<int, std::vector<const TransferWork*>> transfers;  // by communication, then by rank
  for (std::size_t r = 0; r < plans.size(); ++r) {
    for (const PlanNode& node : plans[r].nodes) {
      const auto* const work = std::get_if<TransferWork>(&node.work);
      if (!work) continue;
      auto& of_ranks = transfers[node.communication];
      of_ranks.resize(plans.size());
      of_ranks[r] = work;
    }
  }
  std::vector<MessagesByPeer> sums(plans.size());
  const auto count = [&](int from, int to, std::size_t bytes) {
    PeerMessages &sent = sums[static_cast<std::size_t>(from)][to], &received = sums[static_cast<std::size_t>(to)][from];
    ++sent.messages_sent;
    ++received.messages_received;
    sent.bytes_sent += static_cast<Index>(bytes);
    received.bytes_received += static_cast<Index>(bytes);
  };
  for (const auto& [communication, of_ranks] : transfers) {
    std::vector<halo::NodePair> pairs;
    if (joins_messages(machine)) {
      std::vector<halo::Parcel> parcels;
      for (std::size_t r = 0; r < plans.size(); ++r)
        if (of_ranks[r]) add_parcels(plans[r], *of_ranks[r], parcels);
      pairs = halo::pair_nodes(std::move(parcels), machine.nodes, static_cast<std::size_t>(machine.consolidate_below));
    }
    const bool adjoint = std::ranges::any_of(of_ranks, [](const TransferWork* work) { return work && work->adjoint; });
    Ways joined;
    for (halo::NodePair& pair : pairs) {
      if (adjoint) pair = halo::reversed(std::move(pair));
      for (const halo::Parcel& p : pair.parcels) joined.insert({p.from, p.to});
    }
    for (std::size_t r = 0; r < plans.size(); ++r)
      if (of_ranks[r]) add_messages(plans[r], *of_ranks[r], machine, sums[r], joined);
    for (const halo::NodePair& pair : pairs) {
      const auto with_relay = [&](const std::vector<int>& ranks, int relay) {  // one message in each direction
        for (const int rank : ranks) {
          if (rank == relay) continue;
          count(rank, relay, 0);
          count(relay, rank, 0);
        }
      };
      with_relay(pair.senders(), pair.relay_from);
      count(pair.relay_from, pair.relay_to, pair.bytes);
      with_relay(pair.receivers(), pair.relay_to);
    }
  }
  std::vector<std::vector<PeerMessages>> of_ranks;
  for (MessagesByPeer& sum : sums) of_ranks.push_back(list_of(std::move(sum)));
  return of_ranks;
}

NodeCost words_of_a_round(int position, int ranks) {
  const Index words = position == 0 ? ranks - 1 : 1;
  constexpr Index bytes = 4;
  return {
      .bytes_sent = words * bytes, .bytes_received = words * bytes, .messages_sent = words, .messages_received = words};
}

NodeCost cost(const StepPlan& plan, const PlanNode& node, const MachineDescription& machine) {
  NodeCost c = std::visit(
      [&](const auto& work) -> NodeCost {
        using W = std::decay_t<decltype(work)>;
        if constexpr (std::is_same_v<W, TransferWork>) {
          return transfer_cost(plan, work, machine);
        } else if constexpr (std::is_same_v<W, ReductionWork>) {
          return reduction_cost(plan, work, machine);
        } else {
          return {.flops = flops(work)};
        }
      },
      node.work);
  const Index packed = c.workspace;
  const NodeCost regions = cost_of_regions(plan, node);
  c += regions;
  c.workspace = packed + regions.workspace;
  return c;
}

NodeCost cost_of_regions(const StepPlan& plan, const PlanNode& node) {
  NodeCost c;
  std::vector<BufferId> counted;
  const auto add = [&](const std::vector<PlanRegion>& regions, Index& bytes) {
    for (const PlanRegion& r : regions) {
      bytes += r.box.size() * bytes_of(plan.buffers[static_cast<std::size_t>(r.buffer)].type);
      const BufferId root = plan.root(r.buffer);
      const PlanBuffer& buffer = plan.buffers[static_cast<std::size_t>(root)];
      if (!is_workspace(buffer.role) || std::ranges::find(counted, root) != counted.end()) continue;
      counted.push_back(root);
      c.workspace += buffer.bytes();
    }
  };
  add(node.reads, c.bytes_read);
  add(node.writes, c.bytes_written);
  if (node.accumulates()) c.bytes_written /= 2;  // gradients or their sums
  return c;
}

NodeCost CostByKind::sum() const {
  NodeCost c = kernels;
  c += transfers;
  return c += reductions;
}

CostByKind& CostByKind::operator+=(const CostByKind& o) {
  kernels += o.kernels;
  transfers += o.transfers;
  reductions += o.reductions;
  return *this;
}

CostByKind StepCost::of(int layer) const {
  CostByKind sum;
  for (std::size_t p = 0; p < phases; ++p) sum += of(layer, static_cast<StepPhase>(p));
  return sum;
}

CostByKind StepCost::of(int layer, StepPhase phase) const {
  const auto place = static_cast<std::size_t>(layer + 1);
  return place < layers.size() ? layers[place][static_cast<std::size_t>(phase)] : CostByKind{};
}

NodeCost StepCost::of(StepPhase phase) const {
  NodeCost sum;
  for (const auto& layer : layers) sum += layer[static_cast<std::size_t>(phase)].sum();
  return sum;
}

NodeCost StepCost::total() const {
  NodeCost sum;
  for (std::size_t p = 0; p < phases; ++p) sum += of(static_cast<StepPhase>(p));
  return sum;
}

namespace {

StepCost cost_of_nodes(const StepPlan& plan, const MachineDescription& machine, bool with_reductions) {
  StepCost all;
  for (const PlanNode& node : plan.nodes) {
    if (!with_reductions && std::holds_alternative<ReductionWork>(node.work)) continue;
    const auto place = static_cast<std::size_t>(node.layer + 1);
    if (place >= all.layers.size()) all.layers.resize(place + 1);
    CostByKind& sums = all.layers[place][static_cast<std::size_t>(node.phase)];
    const NodeCost c = cost(plan, node, machine);
    if (const auto* reduction = std::get_if<ReductionWork>(&node.work)) {
      sums.reductions += c;
      if (reduction->segment >= 0) all.gradient_sums += c;
    } else {
      (std::holds_alternative<TransferWork>(node.work) ? sums.transfers : sums.kernels) += c;
    }
  }
  return all;
}

}  // namespace

StepCost cost(const StepPlan& plan, const MachineDescription& machine) { return cost_of_nodes(plan, machine, true); }

StepCost cost_without_reductions(const StepPlan& plan, const MachineDescription& machine) {
  return cost_of_nodes(plan, machine, false);
}

}  // namespace aloni::nn

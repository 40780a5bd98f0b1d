#include <aloni/model/communication.hpp>

#include <aloni/model/detail/parcel_costs.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>

namespace aloni::model {

namespace {

double copy_seconds(const LinkCosts& link, double bytes, double boxes) {
  return boxes * link.seconds_per_message + bytes * link.seconds_per_byte;
}

/// Copies within the rank, and cells that become zero.
TransferParcel local_copies(const nn::StepPlan& plan, const nn::TransferWork& work) {
  TransferParcel parcel;
  const auto add = [&](const views::Box& box, double element) {
    if (box.empty()) return;
    parcel.bytes += static_cast<double>(box.size()) * element;
    parcel.boxes += 1;
  };
  for (const nn::TransferItemPlan& item : work.items) {
    const auto element = static_cast<double>(nn::bytes_of(plan.buffers[static_cast<std::size_t>(item.source)].type));
    for (const halo::Move& move : item.plan.local) add(move.destination, element);
    for (const views::Box& fill : item.plan.fills) add(fill, element / 2);  // written, not read
  }
  return parcel;
}

bool carries(const std::vector<halo::NodePair>& joined, int from, int to) {
  return std::ranges::any_of(joined, [&](const halo::NodePair& pair) {
    return std::ranges::any_of(pair.parcels, [&](const halo::Parcel& p) { return p.from == from && p.to == to; });
  });
}

/// The empty messages of halo/detail/consolidation.hpp around a joined message, and its arrival. `wire`: the time of
/// all bytes for this rank from other nodes.
void add_joined(const halo::NodePair& pair, int rank, double wire, const Machine& machine, TransferCost& cost) {
  const LinkCosts near = machine.link(LinkKind::shared_memory);
  const LinkCosts far =
      detail::parcel_costs(machine, TransferMethod::messages, LinkKind::between_nodes, static_cast<double>(pair.bytes))
          .link;
  const auto others = [](const std::vector<int>& ranks) { return static_cast<double>(ranks.size() - 1); };
  const std::vector<int> senders = pair.senders(), receivers = pair.receivers();
  if (std::ranges::find(senders, rank) != senders.end()) {
    if (rank == pair.relay_from) {  // hears that all have packed, sends, and allows them to pack again
      cost.start += 2 * others(senders) * near.seconds_per_message + far.seconds_per_message;
    } else {
      cost.start += near.seconds_per_message;
      cost.finish += near.seconds_per_message;
      for (const int sender : senders)
        if (sender != rank) cost.arrivals.push_back({sender, 2 * near.latency, 0, false});
    }
  }
  if (std::ranges::find(receivers, rank) == receivers.end()) return;
  cost.consolidated = true;
  for (const int sender : senders) {
    const double within = (sender != pair.relay_from ? 1 : 0) + (rank != pair.relay_to ? 1 : 0);
    cost.arrivals.push_back({sender, within * near.latency + far.latency, wire, true});
  }
  if (rank != pair.relay_to) {
    cost.finish += 2 * near.seconds_per_message;
    return;
  }
  cost.finish += far.seconds_per_message + 2 * others(receivers) * near.seconds_per_message;
  for (const int receiver : receivers)
    if (receiver != rank) cost.readers.push_back(receiver);
  if (receivers.size() > 1) cost.answer = std::max(cost.answer, near.latency);
}

/// Empty for `automatic`, which a plan has where there is nothing to add.
std::optional<comm::CollectiveMethod> method_of(comm::AllReduceAlgorithm algorithm) {
  for (const comm::CollectiveVariant& variant : comm::collective_variants)
    if (variant.operation == comm::OperationKind::all_reduce && name(variant.method) == to_string(algorithm))
      return variant.method;
  return std::nullopt;
}

int ceil_log2(int n) {
  int log = 0;
  for (int power = 1; power < n; power *= 2) ++log;
  return log;
}

/// Null if none were measured with these numbers.
const comm::Tuning* measured_all_reduces(const Machine& machine, int ranks, int nodes) {
  const auto found = std::ranges::find_if(machine.all_reduces,
                                          [&](const comm::Tuning& t) { return t.ranks == ranks && t.nodes == nodes; });
  return found == machine.all_reduces.end() ? nullptr : &*found;
}

int nodes_of(const std::vector<int>& members, const MachineDescription& description) {
  if (description.nodes.empty()) return 1;
  std::vector<int> nodes;  // consecutive members are mostly on one node, so that most repetitions follow each other
  for (const int member : members) {
    const int node = description.nodes[static_cast<std::size_t>(member)];
    if (nodes.empty() || nodes.back() != node) nodes.push_back(node);
  }
  std::ranges::sort(nodes);
  return static_cast<int>(std::unique(nodes.begin(), nodes.end()) - nodes.begin());
}

/// Empty if the machine has no fit of the sum.
std::optional<double> fitted_sum(const nn::StepPlan& plan, const nn::ReductionWork& work,
                                 const MachineDescription& description, FittedCollectives& fits) {
  const auto method = method_of(work.plan.algorithm);
  if (!method) return std::nullopt;
  std::vector<int> nodes(work.members.size(), 0);
  if (!description.nodes.empty())
    for (std::size_t i = 0; i < nodes.size(); ++i)
      nodes[i] = description.nodes[static_cast<std::size_t>(work.members[i])];
  const Index element = nn::bytes_of(work.type);
  return fits.seconds({.operation = comm::OperationKind::all_reduce,
                       .method = *method,
                       .bytes = static_cast<std::size_t>(work.elements * element),
                       .element_bytes = static_cast<int>(element),
                       .shared_data = description.shared_memory && sums_shared_values(plan, work),
                       .part_elements = work.plan.part_elements},
                      nodes);
}

/// Each byte crosses the slowest link of a rank twice, but for the share of the rank, or of its node, itself.
double wire_seconds(double bytes, int ranks, int nodes, const Machine& machine, bool on_host) {
  const double within = on_host ? 0 : machine.link(LinkKind::within_node).seconds_per_byte;
  const double between = nodes > 1 ? machine.link(LinkKind::between_nodes).seconds_per_byte : 0;
  const double parts = on_host ? nodes : ranks;
  return 2 * bytes * std::max(within, between) * (parts - 1) / parts;
}

}  // namespace

bool sums_shared_values(const nn::StepPlan& plan, const nn::ReductionWork& work) {
  if (work.segment >= 0) return true;
  nn::BufferId b = work.buffers.empty() ? nn::no_buffer : work.buffers.front();
  if (b == nn::no_buffer) return false;
  const auto at = [&](nn::BufferId id) -> const nn::PlanBuffer& { return plan.buffers[static_cast<std::size_t>(id)]; };
  while (at(b).alias != nn::no_buffer) b = at(b).alias;
  return at(b).shared;
}

std::string_view name(CommunicationSource source) {
  constexpr std::array<std::string_view, communication_sources> names{"fit", "measured", "links"};
  return names[static_cast<std::size_t>(source)];
}

bool TransferCost::crosses_nodes() const { return std::ranges::any_of(arrivals, &Arrival::between_nodes); }

std::map<int, TransferParcel> parcels_of(const nn::StepPlan& plan, const nn::TransferWork& work, bool outgoing) {
  std::map<int, TransferParcel> parcels;
  for (const nn::TransferItemPlan& item : work.items) {
    const auto element = static_cast<double>(nn::bytes_of(plan.buffers[static_cast<std::size_t>(item.source)].type));
    for (const halo::Message& m : outgoing != work.adjoint ? item.plan.sends : item.plan.receives) {
      TransferParcel& parcel = parcels[m.peer];
      parcel.bytes += static_cast<double>(m.elements) * element;
      parcel.boxes += static_cast<double>(m.moves.size());
    }
  }
  return parcels;
}

TransferCost transfer_cost(const nn::StepPlan& plan, const nn::TransferWork& work, const Machine& machine,
                           const MachineDescription& description, std::span<const halo::NodePair> consolidated) {
  TransferCost cost;
  double seconds_per_call = 0;  // the messages of a transfer are posted in one call
  std::size_t parcels = 0, fitted = 0;
  const auto costs_of = [&](LinkKind link, bool direct, double bytes) {
    const auto method = direct ? TransferMethod::copies : TransferMethod::messages;
    const detail::ParcelCosts costs = detail::parcel_costs(machine, method, link, bytes);
    seconds_per_call = std::max(seconds_per_call, costs.seconds_per_call);
    ++parcels;
    fitted += costs.fitted ? 1 : 0;
    return costs;
  };
  const auto is_direct = [&](LinkKind link, double bytes) {
    return link == LinkKind::shared_memory && bytes >= static_cast<double>(description.direct_bytes);
  };
  std::vector<halo::NodePair> joined;  // in the direction in which the values travel
  for (const halo::NodePair& pair : consolidated) joined.push_back(work.adjoint ? halo::reversed(pair) : pair);
  cost.start = machine.exchange_seconds / 2;
  cost.finish = machine.exchange_seconds / 2;
  for (const auto& [peer, parcel] : parcels_of(plan, work, true)) {
    const LinkKind kind = link_between(description, plan.rank, peer);
    const bool direct = is_direct(kind, parcel.bytes);
    const detail::ParcelCosts costs = costs_of(kind, direct, parcel.bytes);
    if (!carries(joined, plan.rank, peer)) cost.start += costs.link.seconds_per_message;
    if (direct) {
      cost.readers.push_back(peer);
      cost.answer = costs.link.latency;
      continue;
    }
    cost.start += copy_seconds(costs.copy, parcel.bytes, parcel.boxes);
  }
  const TransferParcel local = local_copies(plan, work);
  cost.start += copy_seconds(machine.link(LinkKind::self), local.bytes, local.boxes);

  std::array<double, link_kinds> wires{};
  for (const auto& [peer, parcel] : parcels_of(plan, work, false)) {
    const LinkKind kind = link_between(description, plan.rank, peer);
    const bool direct = is_direct(kind, parcel.bytes);
    const detail::ParcelCosts costs = costs_of(kind, direct, parcel.bytes);
    double& wire = wires[static_cast<std::size_t>(kind)];
    if (direct) {
      cost.finish += parcel.bytes * costs.link.seconds_per_byte + parcel.boxes * costs.copy.seconds_per_message;
    } else {
      wire += parcel.bytes * costs.link.seconds_per_byte;
      cost.finish += copy_seconds(costs.copy, parcel.bytes, parcel.boxes);
    }
    if (carries(joined, peer, plan.rank)) continue;
    cost.finish += costs.link.seconds_per_message;
    cost.arrivals.push_back({peer, costs.link.latency, wire, kind == LinkKind::between_nodes});
  }
  for (const halo::NodePair& pair : joined)
    add_joined(pair, plan.rank, wires[static_cast<std::size_t>(LinkKind::between_nodes)], machine, cost);
  cost.start += seconds_per_call / 2;
  cost.finish += seconds_per_call / 2;
  if (parcels > 0 && fitted == parcels) cost.source = CommunicationSource::fit;
  return cost;
}

double all_reduce_seconds(comm::AllReduceAlgorithm algorithm, double bytes, int ranks, int nodes,
                          const Machine& machine) {
  using A = comm::AllReduceAlgorithm;
  if (ranks < 2 || bytes <= 0) return 0;
  const LinkCosts& shared =
      machine.link(machine.planning.shared_memory ? LinkKind::shared_memory : LinkKind::within_node);
  const LinkCosts& link = nodes > 1 ? machine.link(LinkKind::between_nodes) : machine.link(LinkKind::within_node);
  const double gamma = machine.combine_seconds_per_byte, p = ranks;
  const double per_node = std::max(1.0, p / nodes), share = (p - 1) / p;
  const double alpha = link.latency + 2 * link.seconds_per_message;
  // All ranks of a node send between nodes at the same time, except in a ring, where one does.
  const double beta = link.seconds_per_byte * (nodes > 1 ? per_node : 1);
  switch (algorithm) {
    case A::automatic:
    case A::direct:
      // Each rank tells all others that its values are ready, and that its part of the sums is written.
      return 2 * (shared.latency + (p - 1) * shared.seconds_per_message) +
             bytes * (gamma + shared.seconds_per_byte / p);
    case A::recursive_doubling:
      return ceil_log2(ranks) * (alpha + bytes * (beta + gamma));
    case A::rabenseifner:
      return 2 * ceil_log2(ranks) * alpha + share * bytes * (2 * beta + gamma);
    case A::ring:
      return 2 * (p - 1) * alpha + share * bytes * (2 * link.seconds_per_byte + gamma);
    case A::hierarchical:
      break;
  }
  const double n = nodes, between = (n - 1) / n;
  return all_reduce_seconds(A::direct, bytes, static_cast<int>(per_node), 1, machine) + 2 * ceil_log2(nodes) * alpha +
         between * bytes * (2 * link.seconds_per_byte + gamma / per_node);
}

double device_all_reduce_seconds(double bytes, int ranks, int nodes, const Machine& machine) {
  if (ranks < 2 || bytes <= 0) return 0;
  const LinkCosts& within = machine.link(LinkKind::within_node);
  const LinkCosts& between = machine.link(LinkKind::between_nodes);
  const double p = ranks, share = (p - 1) / p;
  // A ring has one link between nodes for each node, and p - nodes within them. Its slowest link limits the rate.
  const double hops = nodes > 1 ? nodes : 0;
  const double slowest =
      nodes > 1 ? std::max(within.seconds_per_byte, between.seconds_per_byte) : within.seconds_per_byte;
  const double gamma = machine.combine_seconds_per_byte;
  const double ring =
      2 * (p - 1) / p * ((p - hops) * within.latency + hops * between.latency) + share * bytes * (2 * slowest + gamma);
  // A double binary tree between nodes, and a chain within them.
  const double depth = nodes > 1 ? ceil_log2(nodes) : 0;
  const double tree = 2 * (depth * between.latency + (p / nodes - 1) * within.latency) + bytes * (2 * slowest + gamma);
  return std::min(ring, tree);
}

std::optional<comm::Tuning> all_reduces_of(const Machine& machine, const MachineDescription& description, int ranks) {
  using A = comm::AllReduceAlgorithm;
  const int nodes = number_of_nodes(description);
  if (const comm::Tuning* const measured = measured_all_reduces(machine, ranks, nodes)) return *measured;
  const LinkCosts& link = machine.link(nodes > 1 ? LinkKind::between_nodes : LinkKind::within_node);
  const bool fitted = link.seconds_per_byte > 0 && machine.combine_seconds_per_byte > 0;
  if (machine.all_reduces.empty() || !description.on_host || ranks < 2 || !fitted) return std::nullopt;

  std::map<int, int> ranks_of_node;
  for (const int node : description.nodes) ++ranks_of_node[node];
  const bool even =
      std::ranges::all_of(ranks_of_node, [&](const auto& n) { return n.second == ranks_of_node.begin()->second; });
  comm::Tuning tuning{.ranks = ranks,
                      .nodes = nodes,
                      .latency = link.latency,
                      .seconds_per_byte = link.seconds_per_byte,
                      .combine_seconds_per_byte = machine.combine_seconds_per_byte};
  for (const A a : comm::all_reduce_algorithms) {
    if (a == A::direct && (nodes > 1 || !description.shared_memory)) continue;
    if (a == A::hierarchical && (nodes == 1 || nodes == ranks || !even)) continue;
    constexpr std::size_t least = 64, most = std::size_t{32} << 20;  // as comm::calibrate()
    for (std::size_t bytes = least; bytes <= most; bytes *= 4)
      tuning.measurements.push_back(
          {a, bytes, all_reduce_seconds(a, static_cast<double>(bytes), ranks, nodes, machine), 0});
  }
  return tuning;
}

double fastest_all_reduce_seconds(double bytes, int ranks, int nodes, const Machine& machine) {
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

double fastest_sum_seconds(const GroupSum& sum, const Machine& machine, FittedCollectives& fits) {
  if (sum.members < 2 || sum.bytes <= 0) return 0;
  const comm::Tuning* const measured = measured_all_reduces(machine, sum.members, sum.nodes);
  const bool is_fitted = fits.knows(sum.members);
  if (machine.planning.on_host && (measured || is_fitted)) {
    constexpr std::size_t element = sizeof(float);
    const auto bytes = std::max(element, static_cast<std::size_t>(sum.bytes) / element * element);
    std::vector<int> nodes(static_cast<std::size_t>(sum.members));
    for (int i = 0; i < sum.members; ++i) nodes[static_cast<std::size_t>(i)] = i * sum.nodes / sum.members;
    std::optional<double> by_fits, by_measurements;
    const auto keep_least = [](std::optional<double>& least, double seconds) {
      least = std::min(least.value_or(seconds), seconds);
    };
    for (const comm::AllReduceAlgorithm algorithm : comm::all_reduce_algorithms) {
      const auto fitted = fits.seconds({.operation = comm::OperationKind::all_reduce,
                                        .method = *method_of(algorithm),
                                        .bytes = bytes,
                                        .shared_data = machine.planning.shared_memory && sum.shared_data},
                                       nodes);
      if (fitted) keep_least(by_fits, *fitted);
      const double seconds = measured ? measured->measured_seconds(algorithm, bytes) : -1;
      if (seconds >= 0) keep_least(by_measurements, seconds);
    }
    if (by_fits) return *by_fits;
    if (by_measurements) return *by_measurements;
  }
  return fastest_all_reduce_seconds(sum.bytes, sum.members, sum.nodes, machine);
}

AllReduceParts parts_of_all_reduce(double seconds, double bytes, int nodes, const Machine& machine, bool on_host) {
  if (!on_host) return {seconds, 0};
  if (nodes < 2) return {0, seconds};
  const LinkCosts& link = machine.link(LinkKind::between_nodes);
  const double flight = std::min(seconds, link.latency + wire_seconds(bytes, nodes, nodes, machine, true));
  return {flight, seconds - flight};
}

ReductionCost reduction_cost(const nn::StepPlan& plan, const nn::ReductionWork& work, const Machine& machine,
                             const MachineDescription& description, FittedCollectives& fits) {
  ReductionCost cost{.start = machine.exchange_seconds / 2, .finish = machine.exchange_seconds / 2};
  const auto ranks = static_cast<int>(work.members.size());
  const double bytes = static_cast<double>(work.elements) * static_cast<double>(nn::bytes_of(work.type));
  if (ranks < 2 || bytes <= 0) return cost;
  const int nodes = nodes_of(work.members, description);
  if (!description.on_host) {
    cost.flight = device_all_reduce_seconds(bytes, ranks, nodes, machine);
    cost.wire = std::min(cost.flight, wire_seconds(bytes, ranks, nodes, machine, false));
    return cost;
  }
  double seconds = -1;
  if (const auto fitted = fitted_sum(plan, work, description, fits)) {
    seconds = *fitted;
    cost.source = CommunicationSource::fit;
  } else if (const comm::Tuning* const tuning = measured_all_reduces(machine, ranks, nodes)) {
    seconds = tuning->measured_seconds(work.plan.algorithm, static_cast<std::size_t>(bytes));
    if (seconds >= 0) cost.source = CommunicationSource::measured;
  }
  if (seconds < 0) seconds = all_reduce_seconds(work.plan.algorithm, bytes, ranks, nodes, machine);
  const AllReduceParts parts = parts_of_all_reduce(seconds, bytes, nodes, machine, true);
  cost.flight = parts.flight;
  cost.wire = std::min(cost.flight, wire_seconds(bytes, ranks, nodes, machine, true));
  cost.finish += parts.busy;
  return cost;
}

}  // namespace aloni::model

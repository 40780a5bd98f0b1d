#include <aloni/model/detail/step_walk.hpp>

#include <aloni/core/comm/engine/program.hpp>
#include <aloni/core/error.hpp>
#include <aloni/model/detail/consolidated_transfers.hpp>
#include <aloni/model/kernel.hpp>
#include <aloni/nn/plan/memory.hpp>
#include <aloni/nn/plan/memory_layout.hpp>
#include <aloni/nn/plan/representatives.hpp>
#include <aloni/nn/stream_plan.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>

namespace aloni::model::detail {

namespace {

bool crosses_nodes(const nn::ReductionWork& sum, const MachineDescription& description) {
  if (description.nodes.empty()) return false;
  const auto node_of = [&](int rank) { return description.nodes[static_cast<std::size_t>(rank)]; };
  return std::ranges::any_of(sum.members, [&](int rank) { return node_of(rank) != node_of(sum.members.front()); });
}

/// The queues of a device, as streams of a plan. A host has the first one alone.
enum QueueNumber : int { kernel_queue, communication_queue, copy_queue };
constexpr std::size_t queue_numbers = 3;

int queue_of(const nn::StepAction& action, const nn::StepPlan& plan) {
  if (action.kind != nn::StepActionKind::run) return communication_queue;
  return is_copy(plan.nodes[static_cast<std::size_t>(action.node)].work) ? copy_queue : kernel_queue;
}

bool belongs_to(StepSection section, const nn::PlanNode& node) {
  return section == StepSection::whole || (node.phase != nn::StepPhase::update && !node.sums_gradients());
}

/// Of a copy between a device and the memory of its host.
double copy_seconds(const Machine& machine, double bytes) {
  if (!(machine.processor.host_bandwidth > 0)) {
    throw InvalidArgument("aloni::model::simulate", "processor.host_bandwidth of " + machine.name,
                          std::to_string(machine.processor.host_bandwidth),
                          "bytes per second between a device and host memory, for activations that leave the device");
  }
  return machine.processor.kernel_seconds + bytes / machine.processor.host_bandwidth;
}

}  // namespace

PricedSection::PricedSection(const nn::NetworkDescription& network, const nn::NetworkPlan& layers,
                             const Machine& machine, const KernelTimes& kernels, const SimulationOptions& options,
                             StepSection section)
    : network_(network),
      options_(options),
      description_(description_of(machine, layers.input.ranks(), options.rank_of)) {
  const int ranks = layers.input.ranks();
  nn::Representatives few;
  if (ranks <= options.most_single_ranks) {
    for (int r = 0; r < ranks; ++r) {
      few.ranks.push_back(r);
      few.members.push_back({r});
    }
  } else {
    // Messages within a node and between nodes differ without shared memory too.
    MachineDescription with_nodes = description_;
    with_nodes.shared_memory = true;
    few = nn::find_representatives(network, layers, with_nodes);
  }
  class_of_.resize(static_cast<std::size_t>(ranks));
  for (std::size_t c = 0; c < few.ranks.size(); ++c)
    for (const int rank : few.members[c]) class_of_[static_cast<std::size_t>(rank)] = static_cast<int>(c);
  nn::StepOptions step = options.step;
  step.accumulates = options.micro_batches > 1;
  for (const int rank : few.ranks) {
    RankClass& c = classes_.emplace_back();
    c.rank = rank;
    c.plan = nn::plan_step(network, layers, rank, options.kind, description_, step);
  }
  price(machine, kernels, section);
}

PricedSection::PricedSection(const PricedSection& other, const Machine& machine, const KernelTimes& kernels,
                             StepSection section)
    : network_(other.network_), options_(other.options_), description_(other.description_), class_of_(other.class_of_) {
  for (const RankClass& c : other.classes_) classes_.push_back({.rank = c.rank, .plan = c.plan});
  price(machine, kernels, section);
}

void PricedSection::price(const Machine& machine, const KernelTimes& kernels, StepSection section) {
  FittedCollectives fits(machine);
  std::vector<const nn::StepPlan*> plans;
  for (const RankClass& c : classes_) plans.push_back(&c.plan);
  ConsolidatedTransfers consolidated(std::move(plans), class_of_, description_);
  for (RankClass& c : classes_) price(c, machine, kernels, fits, consolidated, section);
  find_contention();
}

void PricedSection::price(RankClass& c, const Machine& machine, const KernelTimes& kernels, FittedCollectives& fits,
                          ConsolidatedTransfers& consolidated, StepSection section) {
  const int own_class = class_of(c.rank);
  c.nodes.resize(c.plan.nodes.size());
  nn::StepGraph graph;
  std::vector<int> numbers;  // in the plan, of the nodes of the graph
  const nn::StepGraph whole = nn::graph_of(c.plan);
  for (std::size_t n = 0; n < whole.nodes.size(); ++n) {
    if (!belongs_to(section, c.plan.nodes[n])) continue;
    c.nodes[n].runs = true;
    numbers.push_back(static_cast<int>(n));
    graph.nodes.push_back(whole.nodes[n]);
  }
  const std::vector<nn::StepAction> order = nn::schedule(graph, {.kernels_ahead = description_.kernels_ahead()});
  for (const nn::StepAction& action : order)
    c.actions.push_back({action.kind, numbers[static_cast<std::size_t>(action.node)]});
  if (!description_.on_host) {
    std::vector<int> queues;
    for (const nn::StepAction& action : c.actions) queues.push_back(queue_of(action, c.plan));
    const nn::StreamPlan streams = nn::plan_streams(graph, order, std::move(queues));
    c.waits.resize(c.actions.size());
    for (const nn::StreamEvent& event : streams.events)
      if (event.before < streams.end() && event.after != nn::begin_of_step)
        c.waits[static_cast<std::size_t>(event.before)].push_back(event.after);
  }
  c.far_wires.resize(static_cast<std::size_t>(c.plan.communications));
  // Learned models need it, and nothing else.
  const std::vector<nn::Reuse> reuse = machine.learned.empty()
                                           ? std::vector<nn::Reuse>(c.plan.nodes.size())
                                           : nn::reuse_of(c.plan, nn::lay_out_memory({&c.plan}, description_));
  for (std::size_t n = 0; n < c.nodes.size(); ++n) {
    const nn::PlanNode& node = c.plan.nodes[n];
    NodeCosts& costs = c.nodes[n];
    if (const auto* transfer = std::get_if<nn::TransferWork>(&node.work)) {
      costs.transfer =
          transfer_cost(c.plan, *transfer, machine, description_, consolidated.of(own_class, node.communication));
      for (const auto& arrival : costs.transfer.arrivals) costs.senders.push_back(class_of(arrival.peer));
      for (const int reader : costs.transfer.readers) costs.readers.push_back(class_of(reader));
      for (const auto& arrival : costs.transfer.arrivals)  // the last one waits for all bytes
        if (arrival.between_nodes) c.far_wires[static_cast<std::size_t>(node.communication)] = arrival.wire;
    } else if (const auto* sum = std::get_if<nn::ReductionWork>(&node.work)) {
      costs.reduction = reduction_cost(c.plan, *sum, machine, description_, fits);
      costs.sum_crosses_nodes = crosses_nodes(*sum, description_);
      costs.begun_share = std::min(1.0, comm::detail::parts_in_flight * static_cast<double>(sum->plan.part_elements) /
                                            static_cast<double>(sum->elements));
      std::vector<bool> seen;
      for (const int member : sum->members) {
        const auto k = static_cast<std::size_t>(class_of(member));
        if (k >= seen.size()) seen.resize(k + 1);
        if (!seen[k]) costs.members.push_back(static_cast<int>(k));
        seen[k] = true;
      }
    } else if (const auto* copy = std::get_if<nn::OffloadWork>(&node.work); copy && !description_.on_host) {
      const Index bytes = c.plan.buffers[static_cast<std::size_t>(copy->buffer)].bytes();
      costs.kernel = {copy_seconds(machine, static_cast<double>(bytes)), KernelSource::roofline};
    } else {
      costs.kernel = kernels.of(kernel_of(c.plan, node, reuse[n]));
      const double fixed = costs.kernel.source == KernelSource::roofline
                               ? std::min(machine.processor.kernel_seconds, costs.kernel.seconds)
                               : 0;
      costs.kernel.seconds = fixed + options_.kernel_scale * (costs.kernel.seconds - fixed);
    }
  }
}

/// All ranks of a node receive from other nodes at the same time, and its link serves them in turns of equal size. A
/// rank whose messages need w seconds of the link then waits for the sum of min(w, their seconds) over all ranks. Of
/// messages for the whole node it waits for all seconds. Nodes with the same numbers of ranks of each class are alike;
/// a class counts the worst of its nodes.
void PricedSection::find_contention() {
  using Company = std::map<int, int>;  // number of ranks of each class on a node
  std::map<int, Company> of_node;
  for (std::size_t r = 0; r < description_.nodes.size(); ++r) ++of_node[description_.nodes[r]][class_of_[r]];
  std::set<Company> companies;
  for (const auto& [node, company] : of_node) companies.insert(company);
  for (const Company& company : companies) {
    for (const auto& [mine, own_number] : company) {
      RankClass& c = classes_[static_cast<std::size_t>(mine)];
      for (std::size_t n = 0; n < c.nodes.size(); ++n) {
        const int communication = c.plan.nodes[n].communication;
        if (communication < 0 || !c.nodes[n].transfer.crosses_nodes()) continue;
        const auto k = static_cast<std::size_t>(communication);
        const double wire = c.far_wires[k];
        if (wire <= 0) continue;
        const bool whole = c.nodes[n].transfer.consolidated;
        double served = 0;
        for (const auto& [other, number] : company) {
          const std::vector<double>& wires = classes_[static_cast<std::size_t>(other)].far_wires;
          if (k < wires.size()) served += number * (whole ? wires[k] : std::min(wire, wires[k]));
        }
        c.nodes[n].contention = std::max(c.nodes[n].contention, served / wire);
      }
    }
  }
}

namespace {

/// A sum that has started and is not finished, or messages from other nodes.
struct OnTheWay {
  std::size_t place = 0;  ///< step and communication
  int node = 0;
  bool is_sum = false;
  std::optional<double> arrival = {};  ///< empty: not found so far
};

/// The state of a part during the walk.
struct PartState {
  const RankClass& its;
  const WalkedPart& part;
  std::size_t next = 0;                           ///< action, counted over all steps
  std::array<double, queue_numbers> queues = {};  ///< ends of their work
  std::deque<OnTheWay> on_the_way = {};           ///< in the order of starts
  double sums_end = 0;                            ///< of the sums that have passed the slowest link
  double messages_end = 0;                        ///< of the messages that have arrived from other nodes
  std::vector<double> ends = {};                  ///< of the actions of the present step
  std::vector<double> started = {};               ///< by step and communication; negative: not yet
  std::vector<double> consumed = {};              ///< by step and communication: all arrived values have been copied
  std::vector<double> step_ends = {};
  std::vector<RankTime> times = {};  ///< by node, of the last step
};

class Walk {
 public:
  Walk(const PricedSection& step, const std::vector<WalkedPart>& parts)
      : step_(step), parts_of_(step.classes().size()) {
    for (const WalkedPart& part : parts) {
      const RankClass& its = step.classes()[static_cast<std::size_t>(part.rank_class)];
      parts_of_[static_cast<std::size_t>(part.rank_class)].push_back(parts_.size());
      PartState& p = parts_.emplace_back(PartState{.its = its, .part = part});
      const auto communications = static_cast<std::size_t>(its.plan.communications) * walked_steps;
      p.started.assign(communications, -1);
      p.consumed.assign(communications, -1);
      p.ends.resize(its.actions.size());
      p.times.resize(its.plan.nodes.size());
    }
  }

  SimulatedStep run() {
    result_.layers.resize(step_.network().layers.size() + 1);
    result_.communication.resize(result_.layers.size());
    result_.kernels.resize(result_.layers.size());
    for (const int c : step_.class_of_rank())
      result_.walked.push_back(step_.classes()[static_cast<std::size_t>(c)].rank);
    std::deque<std::size_t> ready(parts_.size());
    std::iota(ready.begin(), ready.end(), std::size_t{0});
    std::size_t blocked = 0;  // parts that have been tried since the last progress
    while (!ready.empty()) {
      PartState& p = parts_[ready.front()];
      const std::size_t before = p.next;
      if (!advance(p)) ready.push_back(ready.front());
      ready.pop_front();
      blocked = p.next > before ? 0 : blocked + 1;
      if (blocked <= ready.size()) continue;
      // Plans of plan_step() have no deadlock (nn/step_graph.hpp).
      throw InvalidArgument("aloni::model::simulate", "layers",
                            "rank " + std::to_string(p.its.rank) + " waits forever in step action " +
                                std::to_string(p.next % p.its.actions.size()),
                            "plans whose messages pair up");
    }
    const auto end_of = [&](const PartState& p, int step) { return p.step_ends[static_cast<std::size_t>(step)]; };
    std::size_t slowest = 0;
    double before = 0;
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      if (end_of(parts_[i], walked_steps - 1) > end_of(parts_[slowest], walked_steps - 1)) slowest = i;
      before = std::max(before, end_of(parts_[i], walked_steps - 2));
    }
    result_.seconds = end_of(parts_[slowest], walked_steps - 1) - before;
    account(parts_[slowest]);
    for (SimulatedAction& action : result_.actions) {
      action.start -= before;
      action.end -= before;
    }
    return std::move(result_);
  }

 private:
  /// Calls a function with each part of a class.
  template <class F>
  void for_parts(int rank_class, const F& call) const {
    for (const std::size_t part : parts_of_[static_cast<std::size_t>(rank_class)]) call(parts_[part]);
  }

  /// The last time of the parts of the classes `peers`. Empty if one of them has not come there yet.
  std::optional<double> latest(const std::vector<int>& peers, std::size_t communication,
                               std::vector<double> PartState::*times) const {
    double latest = 0;
    bool complete = true;
    for (const int peer : peers) {
      for_parts(peer, [&](const PartState& p) {
        const double time = (p.*times)[communication];
        complete = complete && time >= 0;
        latest = std::max(latest, time);
      });
    }
    return complete ? std::optional(latest) : std::nullopt;
  }

  /// Walks until the end or until a peer must be walked first. True at the end.
  bool advance(PartState& p) {
    while (p.next < p.its.actions.size() * walked_steps) {
      const std::size_t step = p.next / p.its.actions.size(), a = p.next % p.its.actions.size();
      const nn::StepAction& action = p.its.actions[a];
      const int number = step_.on_host() ? kernel_queue : queue_of(action, p.its.plan);
      double& queue = p.queues[static_cast<std::size_t>(number)];
      double now = queue;
      if (!p.its.waits.empty())
        for (const int other : p.its.waits[a]) now = std::max(now, p.ends[static_cast<std::size_t>(other)]);
      const double start = now;
      RankTime time{.waits = now - queue};
      switch (action.kind) {
        case nn::StepActionKind::run:
          time.kernels =
              p.its.nodes[static_cast<std::size_t>(action.node)].kernel.seconds * p.part.kernel_factors[step];
          now += time.kernels;
          break;
        case nn::StepActionKind::start:
          now = start_communication(p, step, action.node, now, time);
          break;
        case nn::StepActionKind::finish: {
          const auto end = finish_communication(p, step, action.node, now, time);
          if (!end) return false;
          now = *end;
          break;
        }
      }
      queue = now;
      p.ends[a] = now;
      ++p.next;
      // On a device communication and copies run beside kernels. Their cost is the idle time of the kernels' queue.
      if (number != kernel_queue) time = {};
      record(p, step, action, start, now, time);
      if (a + 1 == p.its.actions.size()) end_step(p, step, action.node);
    }
    if (p.its.actions.empty()) p.step_ends.assign(walked_steps, 0);
    return true;
  }

  void end_step(PartState& p, std::size_t step, int last_node) {
    const double end = *std::ranges::max_element(p.queues);
    if (!step_.on_host() && step + 1 == walked_steps)
      p.times[static_cast<std::size_t>(last_node)].waits += end - p.queues[kernel_queue];
    p.queues.fill(end);
    p.step_ends.push_back(end);
  }

  std::size_t place(const PartState& p, std::size_t step, int node) const {
    return step * static_cast<std::size_t>(p.its.plan.communications) +
           static_cast<std::size_t>(p.its.plan.nodes[static_cast<std::size_t>(node)].communication);
  }

  double start_communication(PartState& p, std::size_t step, int node, double now, RankTime& time) const {
    const NodeCosts& costs = p.its.nodes[static_cast<std::size_t>(node)];
    const bool is_sum = !costs.members.empty();
    time.copies = is_sum ? costs.reduction.start : costs.transfer.start;
    now += time.copies;
    p.started[place(p, step, node)] = now;
    if (is_sum || costs.transfer.crosses_nodes()) p.on_the_way.push_back({place(p, step, node), node, is_sum});
    return now;
  }

  static const NodeCosts& costs_of(const PartState& p, const OnTheWay& item) {
    return p.its.nodes[static_cast<std::size_t>(item.node)];
  }

  /// When the sum, or the last message from another node, has arrived. Empty: as latest().
  ///  - Sums take turns on the slowest link, and so do messages from other nodes. Otherwise many buckets or chunks at
  ///    once would have a multiple of its bandwidth.
  ///  - Hosts send few values that are needed now, those of a normalisation or of a message, behind the parts of
  ///    buckets that have begun, in one stream of bytes. Within a node they overtake the buckets.
  ///  - Devices run all sums in the order of their starts, in one NCCL communicator on one stream.
  std::optional<double> arrival_of(PartState& p, std::size_t place) const {
    std::deque<OnTheWay>& all = p.on_the_way;
    const auto wanted = std::ranges::find(all, place, &OnTheWay::place);
    std::optional<double> arrival = wanted->arrival;
    if (!arrival) {
      const auto first_sum = std::ranges::find(all, true, &OnTheWay::is_sum);
      const bool overtakes = wanted->is_sum && wanted != first_sum && step_.on_host();
      arrival = overtakes ? arrival_before_buckets(p, *wanted) : arrival_in_order(p, *wanted);
    }
    if (arrival) all.erase(wanted);
    return arrival;
  }
  /// Behind all of its kind that have started earlier. Empty: as latest().
  std::optional<double> arrival_in_order(PartState& p, const OnTheWay& wanted) const {
    for (OnTheWay& item : p.on_the_way) {
      if (item.is_sum != wanted.is_sum) continue;
      if (!item.arrival) item.arrival = item.is_sum ? pass_sum(p, item) : pass_messages(p, item);
      if (!item.arrival || &item == &wanted) return item.arrival;
    }
    return std::nullopt;
  }
  /// Of a sum of few values. Empty: as latest().
  std::optional<double> arrival_before_buckets(PartState& p, const OnTheWay& wanted) const {
    const auto flight = flight_of(p, wanted);
    if (!flight) return std::nullopt;
    if (!costs_of(p, wanted).sum_crosses_nodes) return flight->arrival;
    const auto wait = wait_behind_buckets(p, wanted, flight->arrival);
    return wait ? std::optional(flight->arrival + *wait) : std::nullopt;
  }
  /// The time from `arrival` on in which parts of sums between nodes take the link that have begun before `wanted`.
  /// Empty: as latest().
  std::optional<double> wait_behind_buckets(PartState& p, const OnTheWay& wanted, double arrival) const {
    double last = 0, begun = 0;  // end of the sums, and time of their parts that have begun
    for (OnTheWay& item : p.on_the_way) {
      if (&item == &wanted) break;
      const NodeCosts& costs = costs_of(p, item);
      if (!item.is_sum || !costs.sum_crosses_nodes) continue;
      if (!item.arrival) item.arrival = pass_sum(p, item);
      if (!item.arrival) return std::nullopt;
      last = std::max(last, *item.arrival);
      begun += costs.begun_share * costs.reduction.wire;
    }
    return std::clamp(last - arrival, 0.0, begun);
  }

  /// A sum that has the links for itself.
  struct Flight {
    double arrival = 0, wire = 0;
  };
  /// Empty: as latest().
  std::optional<Flight> flight_of(const PartState& p, const OnTheWay& sum) const {
    const NodeCosts& costs = costs_of(p, sum);
    const auto last_start = latest(costs.members, sum.place, &PartState::started);
    if (!last_start) return std::nullopt;
    double slow = 1;
    if (costs.sum_crosses_nodes) {
      for (const int member : costs.members)
        for_parts(member, [&](const PartState& peer) { slow = std::max(slow, peer.part.link_factor); });
    }
    return Flight{*last_start + slow * costs.reduction.flight, slow * costs.reduction.wire};
  }
  /// Its arrival behind the sums that have passed the slowest link before. Empty: as latest().
  std::optional<double> pass_sum(PartState& p, const OnTheWay& sum) const {
    const auto flight = flight_of(p, sum);
    if (!flight) return std::nullopt;
    p.sums_end = std::max(flight->arrival - flight->wire, p.sums_end) + flight->wire;
    return p.sums_end;
  }
  /// The last arrival of messages from other nodes, behind those that have arrived before. Empty: as latest().
  std::optional<double> pass_messages(PartState& p, const OnTheWay& item) const {
    const NodeCosts& costs = costs_of(p, item);
    if (!latest(costs.senders, item.place, &PartState::started)) return std::nullopt;
    double ready = p.messages_end, last = 0, wire = 0;
    for (std::size_t i = 0; i < costs.senders.size(); ++i) {
      const TransferCost::Arrival& arrival = costs.transfer.arrivals[i];
      if (!arrival.between_nodes) continue;
      double begin = p.messages_end;
      for_parts(costs.senders[i], [&](const PartState& sender) {
        begin = std::max(begin, sender.started[item.place] + p.part.link_factor * arrival.latency);
      });
      wire = p.part.link_factor * costs.contention * arrival.wire;  // of all messages so far
      ready = std::max(ready, begin);
      last = std::max(last, begin + wire);
    }
    if (step_.on_host()) {
      const auto wait = wait_behind_buckets(p, item, ready);
      if (!wait) return std::nullopt;
      last += *wait;
      if (p.sums_end > ready) p.sums_end += wire;  // buckets leave the link to the messages
    }
    p.messages_end = last;
    return last;
  }

  std::optional<double> finish_communication(PartState& p, std::size_t step, int node, double now,
                                             RankTime& time) const {
    const NodeCosts& costs = p.its.nodes[static_cast<std::size_t>(node)];
    const std::size_t communication = place(p, step, node);
    if (!costs.members.empty()) {
      const auto arrived = arrival_of(p, communication);
      if (!arrived) return std::nullopt;
      const double flown = std::max(now, *arrived);
      time.waits += flown - now;
      time.copies = costs.reduction.finish;
      return flown + costs.reduction.finish;
    }
    const TransferCost& transfer = costs.transfer;
    if (!latest(costs.senders, communication, &PartState::started)) return std::nullopt;
    double arrived = now;
    for (std::size_t i = 0; i < costs.senders.size(); ++i) {
      const TransferCost::Arrival& arrival = transfer.arrivals[i];
      if (arrival.between_nodes) continue;
      for_parts(costs.senders[i], [&](const PartState& sender) {
        arrived = std::max(arrived, sender.started[communication] + arrival.latency + arrival.wire);
      });
    }
    if (p.consumed[communication] < 0) {
      if (transfer.crosses_nodes()) {
        const auto last = arrival_of(p, communication);
        if (!last) return std::nullopt;
        arrived = std::max(arrived, *last);
      }
      p.consumed[communication] = arrived + transfer.finish;
    }
    const double copied = p.consumed[communication];
    const auto last = latest(costs.readers, communication, &PartState::consumed);
    if (!last) return std::nullopt;
    const double end = costs.readers.empty() ? copied : std::max(copied, *last + transfer.answer);
    time.waits += copied - transfer.finish - now + (end - copied);
    time.copies = transfer.finish;
    return end;
  }

  void record(PartState& p, std::size_t step, const nn::StepAction& action, double start, double end,
              const RankTime& time) {
    if (step + 1 < walked_steps) return;
    p.times[static_cast<std::size_t>(action.node)] += time;
    if (step_.options().timeline) result_.actions.push_back({p.its.rank, action.node, action.kind, start, end});
  }

  static CommunicationTime alone(const nn::PlanNode& node, const NodeCosts& costs) {
    if (const auto* work = std::get_if<nn::TransferWork>(&node.work)) {
      const TransferCost& transfer = costs.transfer;
      double arrival = 0;
      for (const TransferCost::Arrival& a : transfer.arrivals)
        arrival = std::max(arrival, a.latency + a.wire * (a.between_nodes ? costs.contention : 1));
      const double seconds =
          transfer.start + arrival + transfer.finish + (transfer.readers.empty() ? 0 : transfer.answer);
      switch (work->purpose) {
        case nn::TransferPurpose::ghosts:
          return {.halos = seconds};
        case nn::TransferPurpose::redistribution:
          return {.redistributions = seconds};
        case nn::TransferPurpose::partial_sums:
          return {.sums = seconds};
      }
    }
    return {.sums = costs.reduction.start + costs.reduction.flight + costs.reduction.finish};
  }

  void account(const PartState& p) {
    const std::vector<RankTime>& times = p.times;
    result_.slowest_rank = p.its.rank;
    double sums = 0, transfers = 0;
    for (std::size_t n = 0; n < times.size(); ++n) {
      if (!p.its.nodes[n].runs) continue;
      const nn::PlanNode& node = p.its.plan.nodes[n];
      result_.phases[static_cast<std::size_t>(node.phase)] += times[n];
      const std::size_t layer = node.layer < 0 ? step_.network().layers.size() : static_cast<std::size_t>(node.layer);
      result_.layers[layer] += times[n];
      const CommunicationTime apart = alone(node, p.its.nodes[n]);
      result_.communication[layer] += apart;
      if (std::holds_alternative<nn::ReductionWork>(node.work)) {
        result_.sum_sources[static_cast<std::size_t>(p.its.nodes[n].reduction.source)] += apart.seconds();
        sums += apart.seconds();
      } else if (std::holds_alternative<nn::TransferWork>(node.work) && !p.its.nodes[n].senders.empty()) {
        result_.transfer_sources[static_cast<std::size_t>(p.its.nodes[n].transfer.source)] += apart.seconds();
        transfers += apart.seconds();
      }
      result_.exposed_communication += times[n].copies + times[n].waits;
      result_.kernels[layer].add(times[n].kernels, p.its.nodes[n].kernel);
    }
    result_.sources = sum_of(result_.kernels).shares();
    for (double& share : result_.sum_sources) share = sums > 0 ? share / sums : 0;
    for (double& share : result_.transfer_sources) share = transfers > 0 ? share / transfers : 0;
  }

  const PricedSection& step_;
  std::vector<PartState> parts_;
  std::vector<std::vector<std::size_t>> parts_of_;  ///< by class
  SimulatedStep result_;
};

/// Adds `times` times the seconds of `part` to `sum`. Shares are weighted by the seconds that they are shares of.
void add_step(SimulatedStep& sum, const SimulatedStep& part, int times) {
  const auto communication_of = [](const SimulatedStep& step) {
    double all = 0;
    for (const CommunicationTime& time : step.communication) all += time.seconds();
    return all;
  };
  const double before = communication_of(sum), more = times * communication_of(part);
  const auto mix = [&](auto& shares, const auto& others) {
    for (std::size_t i = 0; i < shares.size() && more > 0; ++i)
      shares[i] = (before * shares[i] + more * others[i]) / (before + more);
  };
  mix(sum.sum_sources, part.sum_sources);
  mix(sum.transfer_sources, part.transfer_sources);
  sum.layers.resize(part.layers.size());
  sum.kernels.resize(part.kernels.size());
  sum.communication.resize(part.communication.size());
  for (int i = 0; i < times; ++i) {
    for (SimulatedAction action : part.actions) {
      action.start += sum.seconds;
      action.end += sum.seconds;
      sum.actions.push_back(action);
    }
    sum.seconds += part.seconds;
    sum.exposed_communication += part.exposed_communication;
    for (std::size_t p = 0; p < sum.phases.size(); ++p) sum.phases[p] += part.phases[p];
    for (std::size_t l = 0; l < sum.layers.size(); ++l) sum.layers[l] += part.layers[l];
    for (std::size_t l = 0; l < sum.kernels.size(); ++l) sum.kernels[l] += part.kernels[l];
    for (std::size_t l = 0; l < sum.communication.size(); ++l) sum.communication[l] += part.communication[l];
  }
  sum.sources = sum_of(sum.kernels).shares();
}

/// Throws as simulate().
const SimulationOptions& checked(const SimulationOptions& options) {
  if (options.micro_batches < 1 || (options.micro_batches > 1 && options.kind != nn::StepKind::training)) {
    throw InvalidArgument("aloni::model::simulate", "options.micro_batches", std::to_string(options.micro_batches),
                          "1, or more in a training step");
  }
  return options;
}

}  // namespace

PricedStep::PricedStep(const nn::NetworkDescription& network, const nn::NetworkPlan& layers, const Machine& machine,
                       const KernelTimes& kernels, const SimulationOptions& options)
    : last_(network, layers, machine, kernels, checked(options), StepSection::whole),
      micro_batches_(options.micro_batches) {
  if (micro_batches_ > 1) earlier_.emplace(last_, machine, kernels, StepSection::micro_batch);
}

SimulatedStep PricedStep::walk(const std::vector<WalkedPart>& parts) const {
  SimulatedStep last = Walk(last_, parts).run();
  if (!earlier_) return last;
  SimulatedStep step = {.slowest_rank = last.slowest_rank, .walked = last.walked};
  add_step(step, Walk(*earlier_, parts).run(), micro_batches_ - 1);
  add_step(step, last, 1);
  return step;
}

std::vector<WalkedPart> whole_classes(const PricedStep& step) {
  std::vector<WalkedPart> parts(step.classes().size());
  for (std::size_t c = 0; c < parts.size(); ++c) parts[c].rank_class = static_cast<int>(c);
  return parts;
}

}  // namespace aloni::model::detail

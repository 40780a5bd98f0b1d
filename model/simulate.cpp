#include <aloni/model/simulate.hpp>

#include <aloni/core/error.hpp>
#include <aloni/model/communication.hpp>
#include <aloni/nn/plan/representatives.hpp>
#include <aloni/nn/step_graph.hpp>

#include <algorithm>
#include <cstddef>
#include <deque>
#include <numeric>
#include <optional>
#include <utility>
#include <variant>

namespace aloni::model {

namespace {

/// Up to this number all ranks are walked, and their messages are those of a real run.
constexpr int most_single_ranks = 8;
/// The ranks reach a step at different times. In the second step these times are those of all later ones.
constexpr int walked_steps = 2;

/// One node of a rank: its kernel, or its communication with the classes of ranks that it waits for.
struct NodeCosts {
  Estimate kernel;
  TransferCost transfer;
  std::vector<int> senders = {}, readers = {};  ///< classes, in the order of arrivals and readers
  double contention = 1;                        ///< ranks of the node that share its link to other nodes
  ReductionCost reduction;
  std::vector<int> members = {};  ///< classes of the members of a sum, each once
};

/// Ranks whose steps take equal time: one is walked for all of them.
struct RankClass {
  int rank = 0;
  nn::StepPlan plan;
  std::vector<nn::StepAction> actions;
  std::vector<int> waits;
  std::vector<NodeCosts> nodes;
  std::vector<bool> crosses_nodes;  ///< by communication
  // --- the walk ---
  std::size_t next = 0;                              ///< action, counted over all steps
  double kernel_queue = 0, communication_queue = 0;  ///< ends of the work of the queues; equal on a host
  std::deque<std::size_t> sums_on_the_way;           ///< step and communication, in the order of starts
  double wire_free = 0;                              ///< end of the sums that have passed the slowest link
  std::vector<double> ends;                          ///< of the actions of the present step
  std::vector<double> started;                       ///< by step and communication; negative: not yet
  std::vector<double> consumed;                      ///< by step and communication: all arrived values have been copied
  std::vector<double> step_ends;
};

class Walk {
 public:
  Walk(const nn::NetworkDescription& network, const nn::NetworkPlan& layers, const Machine& machine,
       const KernelTimes& kernels, const SimulationOptions& options)
      : network_(network), options_(options), description_(description_of(machine, layers.input.ranks())) {
    const int ranks = layers.input.ranks();
    nn::Representatives few;
    if (ranks <= most_single_ranks) {
      for (int r = 0; r < ranks; ++r) {
        few.ranks.push_back(r);
        few.members.push_back({r});
      }
    } else {
      few = nn::find_representatives(network, layers, description_);
    }
    class_of_.resize(static_cast<std::size_t>(ranks));
    for (std::size_t c = 0; c < few.ranks.size(); ++c)
      for (const int rank : few.members[c]) class_of_[static_cast<std::size_t>(rank)] = static_cast<int>(c);
    for (const int rank : few.ranks) {
      RankClass& c = classes_.emplace_back();
      c.rank = rank;
      c.plan = nn::plan_step(network, layers, rank, options.kind, description_, options.step);
      price(c, machine, kernels);
    }
    for (RankClass& c : classes_) find_contention(c, machine.ranks_per_node);
  }

  SimulatedStep run() {
    result_.layers.resize(network_.layers.size() + 1);
    result_.communication.resize(result_.layers.size());
    for (const int c : class_of_) result_.walked.push_back(classes_[static_cast<std::size_t>(c)].rank);
    std::deque<std::size_t> ready(classes_.size());
    std::iota(ready.begin(), ready.end(), std::size_t{0});
    std::size_t blocked = 0;  // classes that have been tried since the last progress
    while (!ready.empty()) {
      RankClass& c = classes_[ready.front()];
      const std::size_t before = c.next;
      if (!advance(c)) ready.push_back(ready.front());
      ready.pop_front();
      blocked = c.next > before ? 0 : blocked + 1;
      if (blocked <= ready.size()) continue;
      // Plans of plan_step() have no deadlock (nn/step_graph.hpp).
      throw InvalidArgument("aloni::model::simulate", "layers",
                            "rank " + std::to_string(c.rank) + " waits forever in step action " +
                                std::to_string(c.next % c.actions.size()),
                            "plans whose messages pair up");
    }
    const auto end_of = [&](const RankClass& c, int step) { return c.step_ends[static_cast<std::size_t>(step)]; };
    std::size_t slowest = 0;
    double before = 0;
    for (std::size_t c = 0; c < classes_.size(); ++c) {
      if (end_of(classes_[c], walked_steps - 1) > end_of(classes_[slowest], walked_steps - 1)) slowest = c;
      before = std::max(before, end_of(classes_[c], walked_steps - 2));
    }
    result_.seconds = end_of(classes_[slowest], walked_steps - 1) - before;
    account(classes_[slowest], times_[slowest]);
    for (SimulatedAction& action : result_.actions) {
      action.start -= before;
      action.end -= before;
    }
    return std::move(result_);
  }

 private:
  void price(RankClass& c, const Machine& machine, const KernelTimes& kernels) {
    const nn::StepGraph graph = nn::graph_of(c.plan);
    c.actions = nn::schedule(graph, {.kernels_ahead = description_.kernels_ahead()});
    if (!description_.on_host) c.waits = nn::waits_between_queues(graph, c.actions);
    c.crosses_nodes.resize(static_cast<std::size_t>(c.plan.communications));
    const auto communications = static_cast<std::size_t>(c.plan.communications) * walked_steps;
    c.started.assign(communications, -1);
    c.consumed.assign(communications, -1);
    c.ends.resize(c.actions.size());
    c.nodes.resize(c.plan.nodes.size());
    times_.emplace_back(c.plan.nodes.size());
    for (std::size_t n = 0; n < c.nodes.size(); ++n) {
      const nn::PlanNode& node = c.plan.nodes[n];
      NodeCosts& costs = c.nodes[n];
      if (const auto* transfer = std::get_if<nn::TransferWork>(&node.work)) {
        costs.transfer = transfer_cost(c.plan, *transfer, machine, description_);
        for (const auto& arrival : costs.transfer.arrivals) costs.senders.push_back(class_of(arrival.peer));
        for (const int reader : costs.transfer.readers) costs.readers.push_back(class_of(reader));
        c.crosses_nodes[static_cast<std::size_t>(node.communication)] = costs.transfer.crosses_nodes();
      } else if (const auto* sum = std::get_if<nn::ReductionWork>(&node.work)) {
        costs.reduction = reduction_cost(*sum, machine, description_);
        std::vector<bool> seen;
        for (const int member : sum->members) {
          const auto k = static_cast<std::size_t>(class_of(member));
          if (k >= seen.size()) seen.resize(k + 1);
          if (!seen[k]) costs.members.push_back(static_cast<int>(k));
          seen[k] = true;
        }
      } else {
        costs.kernel = kernels.of(kernel_of(c.plan, node));
        const double fixed = costs.kernel.source == KernelSource::roofline
                                 ? std::min(machine.processor.kernel_seconds, costs.kernel.seconds)
                                 : 0;
        costs.kernel.seconds = fixed + options_.kernel_scale * (costs.kernel.seconds - fixed);
      }
    }
  }

  int class_of(int rank) const { return class_of_[static_cast<std::size_t>(rank)]; }

  /// How many ranks of the node receive from other nodes in the same transfer.
  void find_contention(RankClass& c, int ranks_per_node) const {
    const int first = c.rank / ranks_per_node * ranks_per_node;
    const int last = std::min<int>(first + ranks_per_node, static_cast<int>(class_of_.size()));
    for (std::size_t n = 0; n < c.nodes.size(); ++n) {
      if (!c.nodes[n].transfer.crosses_nodes()) continue;
      const auto communication = static_cast<std::size_t>(c.plan.nodes[n].communication);
      int sharers = 0;
      for (int r = first; r < last; ++r) {
        const auto& crosses = classes_[static_cast<std::size_t>(class_of(r))].crosses_nodes;
        sharers += communication < crosses.size() && crosses[communication] ? 1 : 0;
      }
      c.nodes[n].contention = std::max(1, sharers);
    }
  }

  double& queue_of(RankClass& c, bool communicates) const {
    return communicates && !description_.on_host ? c.communication_queue : c.kernel_queue;
  }

  /// The start of the last one of the peers. Empty if one has not started yet.
  std::optional<double> latest(const std::vector<int>& peers, std::size_t communication,
                               std::vector<double> RankClass::*times) const {
    double latest = 0;
    for (const int peer : peers) {
      const double time = (classes_[static_cast<std::size_t>(peer)].*times)[communication];
      if (time < 0) return std::nullopt;
      latest = std::max(latest, time);
    }
    return latest;
  }

  /// Walks until the end or until a peer must be walked first. True at the end.
  bool advance(RankClass& c) {
    while (c.next < c.actions.size() * walked_steps) {
      const std::size_t step = c.next / c.actions.size(), a = c.next % c.actions.size();
      const nn::StepAction& action = c.actions[a];
      const bool communicates = action.kind != nn::StepActionKind::run;
      double& queue = queue_of(c, communicates);
      double now = queue;
      if (!c.waits.empty() && c.waits[a] >= 0) now = std::max(now, c.ends[static_cast<std::size_t>(c.waits[a])]);
      const double start = now;
      RankTime time{.waits = now - queue};
      switch (action.kind) {
        case nn::StepActionKind::run:
          time.kernels = c.nodes[static_cast<std::size_t>(action.node)].kernel.seconds;
          now += time.kernels;
          break;
        case nn::StepActionKind::start:
          now = start_communication(c, step, action.node, now, time);
          break;
        case nn::StepActionKind::finish: {
          const auto end = finish_communication(c, step, action.node, now, time);
          if (!end) return false;
          now = *end;
          break;
        }
      }
      queue = now;
      c.ends[a] = now;
      ++c.next;
      // On a device communication runs beside kernels. Its cost is the idle time of their queue.
      if (communicates && !description_.on_host) time = {};
      record(c, step, action, start, now, time);
      if (a + 1 == c.actions.size()) end_step(c, step, action.node);
    }
    if (c.actions.empty()) c.step_ends.assign(walked_steps, 0);
    return true;
  }

  void end_step(RankClass& c, std::size_t step, int last_node) {
    const double end = std::max(c.kernel_queue, c.communication_queue);
    if (!description_.on_host) {
      if (step + 1 == walked_steps) times_of(c)[static_cast<std::size_t>(last_node)].waits += end - c.kernel_queue;
      c.communication_queue = end;
    }
    c.kernel_queue = end;
    c.step_ends.push_back(end);
  }

  std::vector<RankTime>& times_of(const RankClass& c) { return times_[static_cast<std::size_t>(&c - classes_.data())]; }

  std::size_t place(const RankClass& c, std::size_t step, int node) const {
    return step * static_cast<std::size_t>(c.plan.communications) +
           static_cast<std::size_t>(c.plan.nodes[static_cast<std::size_t>(node)].communication);
  }

  double start_communication(RankClass& c, std::size_t step, int node, double now, RankTime& time) const {
    const NodeCosts& costs = c.nodes[static_cast<std::size_t>(node)];
    time.copies = costs.members.empty() ? costs.transfer.start : costs.reduction.start;
    now += time.copies;
    c.started[place(c, step, node)] = now;
    if (!costs.members.empty()) c.sums_on_the_way.push_back(place(c, step, node));
    return now;
  }

  /// Sums on the way take turns on the slowest link, as in one NCCL communicator. Otherwise many buckets at once would
  /// have a multiple of its bandwidth. A sum that is needed before earlier ones overtakes them: the few values of a
  /// normalisation, which take no bandwidth from buckets.
  static double arrival_of_sum(RankClass& c, std::size_t communication, double last_start, const ReductionCost& cost) {
    if (c.sums_on_the_way.front() != communication) {
      std::erase(c.sums_on_the_way, communication);
      return last_start + cost.flight;
    }
    c.sums_on_the_way.pop_front();
    c.wire_free = std::max(last_start + cost.flight - cost.wire, c.wire_free) + cost.wire;
    return c.wire_free;
  }

  std::optional<double> finish_communication(RankClass& c, std::size_t step, int node, double now,
                                             RankTime& time) const {
    const NodeCosts& costs = c.nodes[static_cast<std::size_t>(node)];
    const std::size_t communication = place(c, step, node);
    if (!costs.members.empty()) {
      const auto last = latest(costs.members, communication, &RankClass::started);
      if (!last) return std::nullopt;
      const double arrived = arrival_of_sum(c, communication, *last, costs.reduction);
      const double flown = std::max(now, arrived);
      time.waits += flown - now;
      time.copies = costs.reduction.finish;
      return flown + costs.reduction.finish;
    }
    const TransferCost& transfer = costs.transfer;
    if (!latest(costs.senders, communication, &RankClass::started)) return std::nullopt;
    double arrived = now;
    for (std::size_t i = 0; i < costs.senders.size(); ++i) {
      const TransferCost::Arrival& arrival = transfer.arrivals[i];
      const double sent = classes_[static_cast<std::size_t>(costs.senders[i])].started[communication];
      arrived =
          std::max(arrived, sent + arrival.latency + arrival.wire * (arrival.between_nodes ? costs.contention : 1));
    }
    const double copied = arrived + transfer.finish;
    c.consumed[communication] = copied;
    const auto last = latest(costs.readers, communication, &RankClass::consumed);
    if (!last) return std::nullopt;
    const double end = costs.readers.empty() ? copied : std::max(copied, *last + transfer.answer);
    time.waits += arrived - now + (end - copied);
    time.copies = transfer.finish;
    return end;
  }

  void record(const RankClass& c, std::size_t step, const nn::StepAction& action, double start, double end,
              const RankTime& time) {
    if (step + 1 < walked_steps) return;
    times_of(c)[static_cast<std::size_t>(action.node)] += time;
    if (options_.timeline) result_.actions.push_back({c.rank, action.node, action.kind, start, end});
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

  void account(const RankClass& c, const std::vector<RankTime>& times) {
    result_.slowest_rank = c.rank;
    double kernels = 0;
    for (std::size_t n = 0; n < times.size(); ++n) {
      const nn::PlanNode& node = c.plan.nodes[n];
      result_.phases[static_cast<std::size_t>(node.phase)] += times[n];
      const std::size_t layer = node.layer < 0 ? network_.layers.size() : static_cast<std::size_t>(node.layer);
      result_.layers[layer] += times[n];
      result_.communication[layer] += alone(node, c.nodes[n]);
      result_.exposed_communication += times[n].copies + times[n].waits;
      kernels += times[n].kernels;
      result_.sources[static_cast<std::size_t>(c.nodes[n].kernel.source)] += times[n].kernels;
    }
    for (double& share : result_.sources) share = kernels > 0 ? share / kernels : 0;
  }

  const nn::NetworkDescription& network_;
  const SimulationOptions& options_;
  MachineDescription description_;
  std::vector<int> class_of_;  ///< by rank
  std::vector<RankClass> classes_;
  std::vector<std::vector<RankTime>> times_;  ///< by class and node, of the last step
  SimulatedStep result_;
};

}  // namespace

RankTime& RankTime::operator+=(const RankTime& other) {
  kernels += other.kernels;
  copies += other.copies;
  waits += other.waits;
  return *this;
}

CommunicationTime& CommunicationTime::operator+=(const CommunicationTime& other) {
  halos += other.halos;
  redistributions += other.redistributions;
  sums += other.sums;
  return *this;
}

SimulatedStep simulate(const nn::NetworkDescription& network, const nn::NetworkPlan& layers, const Machine& machine,
                       const KernelTimes& kernels, const SimulationOptions& options) {
  return Walk(network, layers, machine, kernels, options).run();
}

}  // namespace aloni::model

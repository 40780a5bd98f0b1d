#include <aloni/core/comm/engine/plans.hpp>

#include <aloni/core/comm/schedule/algorithms.hpp>
#include <aloni/core/error.hpp>

#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <utility>

namespace aloni::comm {

namespace {

constexpr std::array algorithm_names{"automatic",    "direct", "recursive_doubling",
                                     "rabenseifner", "ring",   "hierarchical"};

}  // namespace

std::string to_string(AllReduceAlgorithm a) { return algorithm_names[static_cast<std::size_t>(a)]; }

AllReduceAlgorithm parse_all_reduce_algorithm(std::string_view name) {
  const auto found = std::ranges::find(algorithm_names, name);
  if (found != algorithm_names.end()) return static_cast<AllReduceAlgorithm>(found - algorithm_names.begin());
  std::string all;
  for (const char* n : algorithm_names) all += std::string(all.empty() ? "" : ", ") + n;
  throw InvalidArgument("aloni::comm::parse_all_reduce_algorithm", "name", std::string(name), all);
}

namespace detail {

namespace {

constexpr std::size_t kept_plans = 64;
// Measured on two ranks of one node; docs/performance.md.
constexpr std::size_t latency_bound_bytes = 8 * 1024;
constexpr std::size_t direct_part_bytes = 512 * 1024;        // also for staged data, because ranks may differ in that
constexpr std::size_t hierarchical_part_bytes = 512 * 1024;  // small, so that link and nodes work at the same time
constexpr std::size_t message_part_bytes = 4 * 1024 * 1024;
constexpr std::size_t ring_segment_bytes = 256 * 1024;
constexpr std::size_t chain_segment_bytes = 128 * 1024;
constexpr std::size_t binomial_bytes = 64 * 1024;
constexpr std::size_t bruck_block_bytes = 256;  // each block travels about log2(p) / 2 times

std::uint32_t mix(std::uint32_t h, std::uint64_t value) {  // FNV-1a
  for (int i = 0; i < 8; ++i, value >>= 8) h = (h ^ static_cast<std::uint32_t>(value & 0xff)) * 16777619u;
  return h;
}

}  // namespace

Topology topology_of(const std::vector<std::vector<int>>& nodes, bool shared_memory) {
  Topology topology{.nodes = nodes, .one_island = shared_memory && nodes.size() == 1};
  for (const auto& node : nodes) topology.root_ranks.insert(topology.root_ranks.end(), node.begin(), node.end());
  return topology;
}

AllReduceChoice Plans::choose(const char* operation, AllReduceAlgorithm wanted, std::size_t bytes,
                              bool reproducible) const {
  using A = AllReduceAlgorithm;
  if (reproducible && (wanted == A::ring || wanted == A::hierarchical)) {
    throw Unsupported(operation, "algorithm", to_string(wanted),
                      "automatic, direct, recursive_doubling or rabenseifner: only these can be reproducible");
  }
  const std::size_t nodes = topology_.nodes.size();
  const bool even =
      std::ranges::all_of(topology_.nodes, [&](const auto& n) { return n.size() == topology_.nodes.front().size(); });
  if (wanted == A::direct && !topology_.one_island) {
    throw Unsupported(operation, "algorithm", "direct", "ranks that share memory; use automatic otherwise");
  }
  if (wanted == A::hierarchical && !even) {
    throw Unsupported(operation, "algorithm", "hierarchical",
                      "the same number of ranks on each node; use automatic otherwise");
  }
  if (wanted != A::automatic) return {wanted, "the caller's choice"};
  if (tuning_) {
    A best = A::automatic;
    double seconds = 0;
    for (const A algorithm : all_reduce_algorithms) {
      const double own = tuning_->measured_seconds(algorithm, std::max<std::size_t>(bytes, 1));
      if (own < 0 || (reproducible && (algorithm == A::ring || algorithm == A::hierarchical))) continue;
      if (best == A::automatic || own < seconds) {
        best = algorithm;
        seconds = own;
      }
    }
    if (best != A::automatic) return {best, "the fastest by the tuning"};
  }
  if (bytes <= latency_bound_bytes) return {A::recursive_doubling, "up to 8 KiB: the fewest messages in sequence"};
  if (topology_.one_island) return {A::direct, "all ranks share memory: one pass over the data"};
  if (!reproducible && nodes > 1 && even && topology_.nodes.front().size() > 1)
    return {A::hierarchical, "several nodes with equally many ranks: the least data between nodes"};
  return {A::rabenseifner, "above 8 KiB without memory shared by all ranks: the least data for each rank"};
}

Method Plans::method(const PlanKey& key, Index count) const {
  using K = Method::Kind;
  const auto p = static_cast<Index>(topology_.root_ranks.size());
  const std::size_t bytes = static_cast<std::size_t>(count) * key.element_bytes;
  switch (key.kind) {
    case OperationKind::broadcast:
      if (topology_.nodes.size() > 1) return {K::hierarchical, "several nodes: once to each node"};
      if (p <= 2 || bytes <= binomial_bytes)
        return {K::binomial, "two ranks or up to 64 KiB: the fewest messages in sequence"};
      return {K::chain, "above 64 KiB: every rank sends the data once, as a pipeline"};
    case OperationKind::reduce_scatter:
      return {K::ring, "the least data for each rank"};
    case OperationKind::all_gather:
      if (const auto best = count % p == 0 ? fastest(key, count, std::array{K::ring, K::bruck}) : std::nullopt)
        return *best;
      if (count % p == 0 && bytes <= latency_bound_bytes)
        return {K::bruck, "equal blocks, up to 8 KiB: the fewest messages"};
      return {K::ring, "above 8 KiB or unequal blocks: the least data for each rank"};
    case OperationKind::all_to_all:
      if (const auto best = fastest(key, count, std::array{K::pairwise, K::bruck})) return *best;
      if (p > 4 && bytes / static_cast<std::size_t>(p) <= bruck_block_bytes)
        return {K::bruck, "more than four ranks, blocks up to 256 bytes: the fewest messages"};
      return {K::pairwise, "up to four ranks or blocks above 256 bytes: each block travels once"};
    case OperationKind::barrier:
      return {K::dissemination, "the fewest messages in sequence"};
    default:
      throw InvalidArgument("aloni::comm::Plans", "kind", std::to_string(static_cast<int>(key.kind)), "a collective");
  }
}

Schedule Plans::schedule(const PlanKey& key, Index count) const {
  const bool has_algorithm = key.kind == OperationKind::all_reduce;
  return schedule(key, has_algorithm ? Method::Kind{} : method(key, count).kind, count, topology_.rank);
}

Schedule Plans::schedule(const PlanKey& key, Method::Kind method, Index count, int rank) const {
  const int p = static_cast<int>(topology_.root_ranks.size());
  const Team team = Team::all(rank, p);
  Builder b(rank);
  const auto elements = [&](std::size_t bytes) {
    return std::max<Index>(1, static_cast<Index>(bytes / key.element_bytes));
  };
  if (key.kind == OperationKind::all_reduce) {
    const Region data = b.output(count);
    switch (key.algorithm) {
      case AllReduceAlgorithm::direct:
        direct_all_reduce(b, team, data, key.staged);
        break;
      case AllReduceAlgorithm::ring:
        ring_all_reduce(b, team, data, ring_segment(key.element_bytes));
        break;
      case AllReduceAlgorithm::rabenseifner:
        rabenseifner_all_reduce(b, team, data);
        break;
      case AllReduceAlgorithm::hierarchical:
        hierarchical_all_reduce(b, rank, topology_.nodes, data);
        break;
      default:
        recursive_doubling_all_reduce(b, team, data);
    }
    return b.finish();
  }
  switch (key.kind) {
    case OperationKind::broadcast: {
      const Region data = b.output(count);
      if (method == Method::Kind::hierarchical) {
        hierarchical_broadcast(b, rank, topology_.nodes, data, key.root);
      } else if (method == Method::Kind::binomial) {
        binomial_broadcast(b, team, data, key.root);
      } else {
        chain_broadcast(b, team, data, key.root, elements(chain_segment_bytes));
      }
      break;
    }
    case OperationKind::reduce_scatter:
      ring_reduce_scatter(b, team, b.output(count), ring_segment(key.element_bytes));
      break;
    case OperationKind::all_gather:
      if (method == Method::Kind::bruck) {
        bruck_all_gather(b, team, b.output(count));
      } else {
        ring_all_gather(b, team, b.output(count));
      }
      break;
    case OperationKind::all_to_all: {
      const Region input = b.input(count), output = b.output(count);
      if (method == Method::Kind::bruck) {
        bruck_all_to_all(b, team, input, output);
      } else {
        const auto each = count / p;
        pairwise_all_to_all(b, team, input, output,
                            std::vector<std::vector<Index>>(static_cast<std::size_t>(p),
                                                            std::vector<Index>(static_cast<std::size_t>(p), each)));
      }
      break;
    }
    default:
      dissemination_barrier(b, team);
  }
  return b.finish();
}

/// Elements that a step reads and writes to combine them.
double combined_elements(const Step& step, std::size_t ranks) {
  if (step.kind == Step::Kind::reduce) return static_cast<double>(step.to.count);
  // p - 1 sums and p copies for p operands.
  if (step.kind == Step::Kind::combine)
    return static_cast<double>(step.to.count) * (2 * static_cast<double>(ranks) - 1);
  return 0;
}

double Plans::predict(double messages, double bytes, double combined_bytes) const {
  if (!tuning_) return -1;
  return messages * tuning_->latency + bytes * tuning_->seconds_per_byte +
         combined_bytes * tuning_->combine_seconds_per_byte;
}

/// Predicted seconds of the slowest rank: its messages one after the other, and its local reductions.
double Plans::predict(AllReduceAlgorithm algorithm, std::size_t bytes) const {
  constexpr Index count = 4096;  // the cost is scaled in proportion
  const PlanKey key{.kind = OperationKind::all_reduce, .algorithm = algorithm, .element_bytes = 4, .count = count};
  double slowest = 0;
  for (int r = 0; r < static_cast<int>(topology_.root_ranks.size()); ++r) {
    const Schedule s = schedule(key, {}, count, r);
    double combined = 0;
    for (const Step& step : s.steps) combined += combined_elements(step, s.exposed_to.size());
    const double scale = static_cast<double>(bytes) / static_cast<double>(count);
    slowest =
        std::max(slowest, predict(s.messages_sent(), static_cast<double>(s.elements_sent()) * scale, combined * scale));
  }
  return slowest;
}

/// Predicted seconds of rank 0, which has a largest block. A copy moves the bytes that an addition of as many moves.
double Plans::predict(const PlanKey& key, Method::Kind method, Index count) const {
  const Schedule s = schedule(key, method, count, 0);
  double moved = 0;
  for (const Step& step : s.steps)
    moved += step.kind == Step::Kind::copy ? static_cast<double>(step.to.count)
                                           : combined_elements(step, s.exposed_to.size());
  const double unit = key.element_bytes;
  return predict(s.messages_sent(), unit * static_cast<double>(s.elements_sent()), unit * moved);
}

/// The same on all ranks: it depends on the tuning and on rank 0. The first one of equals. Empty without tuning.
std::optional<Method> Plans::fastest(const PlanKey& key, Index count, std::span<const Method::Kind> candidates) const {
  if (!tuning_) return std::nullopt;
  const auto seconds = [&](Method::Kind kind) { return predict(key, kind, count); };
  return Method{*std::ranges::min_element(candidates, {}, seconds), "the fastest by the tuning"};
}

bool Plans::prefers_all_reduce(std::size_t bytes) const {
  if (!tuning_ || bytes == 0) return false;
  // A ring all-reduce is a reduce-scatter and an all-gather that send as much.
  const double ring = tuning_->measured_seconds(AllReduceAlgorithm::ring, bytes) / 2;
  return ring > 0 && std::ranges::any_of(all_reduce_algorithms, [&](AllReduceAlgorithm a) {
           const double seconds = tuning_->measured_seconds(a, bytes);
           return seconds >= 0 && seconds < ring;
         });
}

std::vector<AlgorithmReport> Plans::reports(std::size_t bytes, bool reproducible, AllReduceAlgorithm chosen) const {
  using A = AllReduceAlgorithm;
  std::vector<AlgorithmReport> reports;
  for (const A algorithm : all_reduce_algorithms) {
    AlgorithmReport report{.algorithm = algorithm, .chosen = algorithm == chosen};
    try {
      (void)choose("aloni::comm::AllReduce", algorithm, bytes, reproducible);
      if (tuning_) {
        report.predicted_seconds = predict(algorithm, bytes);
        report.measured_seconds = tuning_->measured_seconds(algorithm, std::max<std::size_t>(bytes, 1));
      }
    } catch (const Unsupported& error) {
      report.unsupported = "needs " + error.expectation();
    }
    reports.push_back(report);
  }
  return reports;
}

Index Plans::ring_segment(std::size_t element_bytes) {
  return std::max<Index>(1, static_cast<Index>(ring_segment_bytes / element_bytes));
}

Index Plans::part_elements(const PlanKey& key) const {
  if (key.part_elements > 0) return key.part_elements;
  const auto bytes = static_cast<std::size_t>(key.count) * key.element_bytes;
  std::size_t part_bytes = bytes;
  if (key.kind == OperationKind::all_reduce) {
    part_bytes = key.algorithm == AllReduceAlgorithm::direct         ? direct_part_bytes
                 : key.algorithm == AllReduceAlgorithm::hierarchical ? hierarchical_part_bytes
                                                                     : message_part_bytes;
    if (tuning_) {
      if (const std::size_t measured = tuning_->part_bytes(key.algorithm, bytes); measured > 0) part_bytes = measured;
    }
  } else if (key.kind == OperationKind::broadcast) {
    part_bytes = message_part_bytes;
  }
  return std::max<Index>(1, static_cast<Index>(part_bytes / key.element_bytes));
}

Plan Plans::make(const PlanKey& key) const {
  Plan plan;
  plan.part_elements = part_elements(key);
  const Index parts = std::max<Index>(1, (key.count + plan.part_elements - 1) / plan.part_elements);
  plan.parts = static_cast<std::uint32_t>(parts);
  plan.last = compile(schedule(key, key.count - (parts - 1) * plan.part_elements), topology_.root_ranks);
  if (parts > 1) plan.whole = compile(schedule(key, plan.part_elements), topology_.root_ranks);
  plan.hash = 2166136261u;
  for (const std::uint64_t value :
       {static_cast<std::uint64_t>(key.algorithm), static_cast<std::uint64_t>(key.root),
        static_cast<std::uint64_t>(plan.part_elements), static_cast<std::uint64_t>(topology_.root_ranks.size())})
    plan.hash = mix(plan.hash, value);
  return plan;
}

std::shared_ptr<const Plan> Plans::get(const Schedule& schedule, std::uint32_t identity) const {
  auto plan = std::make_shared<Plan>();
  plan->last = compile(schedule, topology_.root_ranks);
  plan->hash = identity;
  return plan;
}

std::shared_ptr<const Plan> Plans::get(const PlanKey& key) {
  if (latest_ < entries_.size() && entries_[latest_].key == key) return entries_[latest_].plan;
  const auto found = std::ranges::find(entries_, key, &Entry::key);
  if (found != entries_.end()) {
    latest_ = static_cast<std::size_t>(found - entries_.begin());
    return found->plan;
  }
  auto plan = std::make_shared<const Plan>(make(key));
  if (entries_.size() < kept_plans) {
    latest_ = entries_.size();
    entries_.push_back({key, plan});
  } else {
    latest_ = oldest_;
    entries_[oldest_] = {key, plan};
    oldest_ = (oldest_ + 1) % kept_plans;
  }
  return plan;
}

}  // namespace detail

}  // namespace aloni::comm

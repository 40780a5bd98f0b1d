#pragma once
// Chooses the algorithm of a collective, and caches the compiled programs for later calls of the same size.
#include <aloni/core/comm/collective_schedules.hpp>
#include <aloni/core/comm/collectives.hpp>
#include <aloni/core/comm/engine/program.hpp>
#include <aloni/core/comm/message.hpp>
#include <aloni/core/comm/tuning.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace aloni::comm::detail {

struct Plan {
  Program whole, last;
  std::uint32_t parts = 1;
  Index part_elements = 0;
  std::uint32_t hash = 0;  ///< hash of the properties that must be equal on all ranks
};

/// The properties that determine a plan.
struct PlanKey {
  OperationKind kind{};
  AllReduceAlgorithm algorithm{};  ///< for an all-reduce
  bool staged = false;             ///< this rank's data do not lie in shared memory
  std::uint32_t element_bytes = 1;
  int root = 0;
  Index count = 0;
  Index part_elements = 0;  ///< 0: chosen by size

  friend bool operator==(const PlanKey&, const PlanKey&) = default;
};

/// How the ranks of a communicator are distributed over nodes.
struct Topology {
  int rank = 0;
  std::vector<int> root_ranks{};
  std::vector<std::vector<int>> nodes{};  ///< ranks of the communicator on each node, ascending
  bool one_island = false;                ///< all ranks reach each other's memory
};

/// Ranks 0, 1, … on these nodes, ascending on each node. `shared_memory`: of the ranks of a node.
Topology topology_of(const std::vector<std::vector<int>>& nodes, bool shared_memory);

/// The algorithm of an all-reduce, and why it is taken.
struct AllReduceChoice {
  AllReduceAlgorithm algorithm{};
  const char* reason = "";
};

/// The algorithm of any other collective, and why it is taken.
struct Method {
  using Kind = CollectiveMethod;

  Kind kind{};
  const char* reason = "";
};

/// Elements that a step reads and writes to combine them; `ranks` take part in a combine step.
double combined_elements(const Step& step, std::size_t ranks);

class Plans {
 public:
  explicit Plans(Topology topology) : topology_(std::move(topology)) {}

  const Topology& topology() const { return topology_; }
  /// Algorithm for an all-reduce of `bytes`; equal on all ranks. Throws Unsupported, naming `operation`, if these ranks
  /// cannot use `wanted`.
  AllReduceChoice choose(const char* operation, AllReduceAlgorithm wanted, std::size_t bytes, bool reproducible) const;
  /// Algorithm of a collective that is not an all-reduce; equal on all ranks. A tuning decides by its model.
  Method method(const PlanKey& key, Index count) const;
  /// Whether the tuning has an all-reduce of `bytes` that takes less time than a reduce-scatter. The ranks of a
  /// reduce-scatter then keep their blocks of it.
  bool prefers_all_reduce(std::size_t bytes) const;
  void set_tuning(const Tuning& tuning) {
    tuning_ = tuning;
    entries_.clear();  // the part sizes may change
    oldest_ = latest_ = 0;
  }
  const std::optional<Tuning>& tuning() const { return tuning_; }
  /// All algorithms for an all-reduce of `bytes`; `chosen` is marked.
  std::vector<AlgorithmReport> reports(std::size_t bytes, bool reproducible, AllReduceAlgorithm chosen) const;
  /// Seconds predicted by the tuning's model; negative without tuning.
  double predict(double messages, double bytes, double combined_bytes) const;
  /// The schedule of a rank by this method; `method` does not count for an all-reduce, whose algorithm is in `key`.
  Schedule schedule(const PlanKey& key, Method::Kind method, Index count, int rank) const;
  /// Elements of one message of a ring, at most.
  static Index ring_segment(std::size_t element_bytes);
  /// Elements of one part of an operation; the last part may have fewer.
  Index part_elements(const PlanKey& key) const;
  /// Plan for `key`, from the cache of the latest plans or newly compiled.
  std::shared_ptr<const Plan> get(const PlanKey& key);
  /// Plan for a schedule of the user. `identity`: hash of its name, equal on all ranks of one operation.
  std::shared_ptr<const Plan> get(const Schedule& schedule, std::uint32_t identity) const;

 private:
  Plan make(const PlanKey& key) const;
  Schedule schedule(const PlanKey& key, Index count) const;
  double predict(AllReduceAlgorithm algorithm, std::size_t bytes) const;
  double predict(const PlanKey& key, Method::Kind method, Index count) const;
  std::optional<Method> fastest(const PlanKey& key, Index count, std::span<const Method::Kind> candidates) const;

  struct Entry {
    PlanKey key;
    std::shared_ptr<const Plan> plan;
  };
  Topology topology_;
  std::optional<Tuning> tuning_;
  std::vector<Entry> entries_;
  std::size_t oldest_ = 0, latest_ = 0;
};

}  // namespace aloni::comm::detail

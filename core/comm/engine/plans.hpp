#pragma once
// Which algorithm a collective takes, and the programs that were made for it, kept for the next call of that size.
#include <aloni/core/comm/collectives.hpp>
#include <aloni/core/comm/engine/program.hpp>
#include <aloni/core/comm/message.hpp>
#include <aloni/core/comm/tuning.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace aloni::comm::detail {

struct Plan {
  Program whole, last;
  std::uint32_t parts = 1;
  Index part_elements = 0;
  std::uint32_t hash = 0;  ///< of what all ranks must agree on
};

/// What a plan depends on.
struct PlanKey {
  OperationKind kind{};
  AllReduceAlgorithm algorithm{};  ///< of an all-reduce
  bool staged = false;             ///< the data isn't in shared memory
  std::uint32_t element_bytes = 1;
  int root = 0;
  Index count = 0;
  Index part_elements = 0;  ///< 0: chosen

  friend bool operator==(const PlanKey&, const PlanKey&) = default;
};

/// Who the ranks of a communicator are to each other.
struct Topology {
  int rank = 0;
  std::vector<int> root_ranks{};
  std::vector<std::vector<int>> nodes{};  ///< ranks of the communicator on each machine, ascending
  bool one_island = false;                ///< all reach each other's memory
};

/// The algorithm of an all-reduce, and why it is taken.
struct AllReduceChoice {
  AllReduceAlgorithm algorithm{};
  const char* reason = "";
};

/// The algorithm of any other collective, and why it is taken.
struct Method {
  enum class Kind : std::uint8_t { ring, bruck, pairwise, binomial, chain, hierarchical, dissemination };

  Kind kind{};
  const char* name = "";
  const char* reason = "";
};

/// Elements that a step reads and writes to combine them; `ranks` take part in a combine step.
double combined_elements(const Step& step, std::size_t ranks);

class Plans {
 public:
  explicit Plans(Topology topology) : topology_(std::move(topology)) {}

  const Topology& topology() const { return topology_; }
  /// The algorithm for an all-reduce of so much data; equal on all ranks. `operation`: for texts of errors.
  AllReduceChoice choose(const char* operation, AllReduceAlgorithm wanted, std::size_t bytes, bool reproducible) const;
  /// The algorithm of a collective that isn't an all-reduce; equal on all ranks.
  Method method(const PlanKey& key, Index count) const;
  void set_tuning(const Tuning& tuning) {
    tuning_ = tuning;
    entries_.clear();  // they may have other parts
    oldest_ = latest_ = 0;
  }
  /// All algorithms for an all-reduce of so much data, of which `chosen` is taken.
  std::vector<AlgorithmReport> reports(std::size_t bytes, bool reproducible, AllReduceAlgorithm chosen) const;
  /// Seconds by the tuning's model; negative without tuning.
  double predict(double messages, double bytes, double combined_bytes) const;
  /// Valid as long as the caller keeps it; the latest are kept here too.
  std::shared_ptr<const Plan> get(const PlanKey& key);
  /// Of a schedule that is not known here. `identity`: equal on all ranks that mean the same.
  std::shared_ptr<const Plan> get(const Schedule& schedule, std::uint32_t identity) const;

 private:
  Plan make(const PlanKey& key) const;
  Schedule schedule(const PlanKey& key, Index count) const { return schedule(key, count, topology_.rank); }
  Schedule schedule(const PlanKey& key, Index count, int rank) const;
  double predict(AllReduceAlgorithm algorithm, std::size_t bytes) const;

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

#pragma once
// Measured times of the implementations of kernel problems on a machine, by which planners choose. A plain value
// without knowledge of kernels: nn/local/convolution_times.hpp gives problems of convolutions their numbers. Copies
// share the table, so a MachineDescription with a large table is copied as fast as one without.
//
//   MeasuredImplementations measured({{numbers_of(problem), {{"onednn", 1.2e-3}, {"direct", 1.9e-3}}}});
//   measured.times().find(numbers_of(problem));
#include <aloni/core/index.hpp>

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace aloni {

/// The time of one implementation of a problem.
struct ImplementationTime {
  std::string implementation = {};  ///< "onednn"; for one engine of a library "cudnn engine 3"
  double seconds = 0;               ///< median of `runs`
  double spread = 0;                ///< half the difference of the quartiles, divided by the median
  int runs = 0;
  Index workspace_bytes = 0;  ///< of memory that it takes besides its operands

  friend bool operator==(const ImplementationTime&, const ImplementationTime&) = default;
};

class MeasuredImplementations {
 public:
  using Problem = std::vector<Index>;  ///< the numbers that define it
  using Times = std::map<Problem, std::vector<ImplementationTime>>;

  MeasuredImplementations() = default;
  /// `most_workspace_bytes`: implementations that take more are not chosen.
  MeasuredImplementations(Times times, Index most_workspace_bytes)
      : table_(std::make_shared<const Table>(Table{std::move(times), most_workspace_bytes})) {}

  bool empty() const { return times().empty(); }
  std::size_t size() const { return times().size(); }
  const Times& times() const {
    static const Times none;
    return table_ ? table_->times : none;
  }
  /// 0 without a table.
  Index most_workspace_bytes() const { return table_ ? table_->most_workspace_bytes : 0; }
  /// All numbers with all their bits, to compare tables between ranks. Empty without a table.
  std::string text() const;

  friend bool operator==(const MeasuredImplementations& a, const MeasuredImplementations& b) {
    return a.table_ == b.table_ || (a.times() == b.times() && a.most_workspace_bytes() == b.most_workspace_bytes());
  }

 private:
  struct Table {
    Times times;
    Index most_workspace_bytes = 0;
  };
  std::shared_ptr<const Table> table_;
};

}  // namespace aloni

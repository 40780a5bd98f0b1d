#pragma once
// Which sums may run at the same time. Two sums into the same cell must not, and must keep their order, so that equal
// inputs give equal bits whatever the number of threads.
#include <aloni/views/box.hpp>

#include <vector>

namespace aloni::halo::detail {

/// Cells of one of several tensors that a sum writes.
struct Target {
  int tensor = 0;
  views::Box box;
};

/// The batch of each target: 0, or one more than the last batch that holds an earlier target of the same tensor whose
/// box overlaps. Quadratic in the number of targets.
std::vector<int> batches_of(const std::vector<Target>& targets);

}  // namespace aloni::halo::detail

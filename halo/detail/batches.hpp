#pragma once
// Which sums may run at the same time. Two sums into the same cell must run one after another in a fixed order. Then
// equal inputs give equal bits for any number of threads.
#include <aloni/views/box.hpp>

#include <vector>

namespace aloni::halo::detail {

/// The cells that a sum writes, in one of several tensors.
struct Target {
  int tensor = 0;
  views::Box box;
};

/// The batch of each target: 0, or one more than the last batch with an earlier target that overlaps it in the same
/// tensor. The time is quadratic in the number of targets.
std::vector<int> batches_of(const std::vector<Target>& targets);

}  // namespace aloni::halo::detail

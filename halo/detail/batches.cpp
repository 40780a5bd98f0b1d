#include <aloni/halo/detail/batches.hpp>

#include <algorithm>

namespace aloni::halo::detail {

std::vector<int> batches_of(const std::vector<Target>& targets) {
  std::vector<int> batches(targets.size(), 0);
  for (std::size_t i = 0; i < targets.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      if (targets[j].tensor == targets[i].tensor && !intersect(targets[j].box, targets[i].box).empty())
        batches[i] = std::max(batches[i], batches[j] + 1);
  return batches;
}

}  // namespace aloni::halo::detail

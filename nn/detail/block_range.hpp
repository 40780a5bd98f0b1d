#pragma once
// The indices of one block of a distribution.
#include <aloni/halo/stencil.hpp>
#include <aloni/views/distribution.hpp>

#include <cstddef>

namespace aloni::nn::detail {

/// All indices if the dimension is replicated. `coordinate`: of the process grid in dimension `d`.
inline halo::Range block_range(const views::Distribution& distribution, views::Dim d, int coordinate) {
  if (distribution.replicated(d)) return {0, distribution.extents()[d]};
  const auto& borders = distribution.borders(d);
  return {borders[static_cast<std::size_t>(coordinate)], borders[static_cast<std::size_t>(coordinate) + 1]};
}

}  // namespace aloni::nn::detail

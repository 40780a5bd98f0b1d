#pragma once
// A factor of times per byte that depends on the size of an operation. The rate of a cache that is left is such a
// factor (parameterised LogP: Kielmann, Bal and Verstoep 2000).
#include <cstddef>
#include <vector>

namespace aloni::model {

struct SizeFactor {
  std::size_t bytes = 0;
  double factor = 1;

  friend bool operator==(const SizeFactor&, const SizeFactor&) = default;
};

/// The factor at a size: between two of them linear over the logarithm of the size, beyond them the factor of the
/// nearest size.
/// @pre `factors` is not empty, and its sizes ascend
double factor_at(const std::vector<SizeFactor>& factors, double bytes);

}  // namespace aloni::model

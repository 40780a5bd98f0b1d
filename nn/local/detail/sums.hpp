#pragma once
// Sums of a kernel over its indices. They are reduced into a view, so no call waits.
#include <aloni/nn/local/local_types.hpp>

namespace aloni::nn::local::detail {

/// The base of a functor whose operator() adds to `count` sums.
template <int count>
struct Sums {
  using value_type = double[];
  using size_type = Index;
  unsigned value_count = count;
  KOKKOS_FUNCTION void join(double into[], const double from[]) const {
    for (int i = 0; i < count; ++i) into[i] += from[i];
  }
  KOKKOS_FUNCTION void init(double sums[]) const {
    for (int i = 0; i < count; ++i) sums[i] = 0;
  }
};

}  // namespace aloni::nn::local::detail

#pragma once
// Loops over flat arrays.
#include <aloni/nn/local/detail/execution.hpp>

namespace aloni::nn::local::detail {

/// op(i) for each i: one index is a block of a flat array on a host, an element on a device.
template <class Exec, class Op>
void for_each_flat(const Exec& exec, const char* label, Index elements, const Op& op) {
  if (elements == 0) return;
  if constexpr (runs_on_host<Exec>) {
    constexpr Index block = 4096;
    Kokkos::parallel_for(label, Range<Exec>(exec, 0, (elements + block - 1) / block), [=](const Index b) {
      const Index end = (b + 1) * block < elements ? (b + 1) * block : elements;
#pragma GCC ivdep
      for (Index i = b * block; i < end; ++i) op(i);
    });
  } else {
    Kokkos::parallel_for(label, Range<Exec>(exec, 0, elements), op);
  }
}

}  // namespace aloni::nn::local::detail

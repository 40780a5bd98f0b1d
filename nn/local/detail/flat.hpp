#pragma once
// Loops over flat arrays.
#include <aloni/nn/local/detail/execution.hpp>

#include <type_traits>

namespace aloni::nn::local::detail {

/// A loop that always runs.
struct Always {
  KOKKOS_FUNCTION bool operator()() const { return true; }
};

template <class Op, class Runs>
struct GatedOperation {
  Op op;
  Runs runs;
  KOKKOS_FUNCTION void operator()(const Index i) const {
    if (runs()) op(i);
  }
};

/// op(i) for each i: one index is a block of a flat array on a host, an element on a device. Where `runs()` is false
/// the kernel does nothing.
template <class Exec, class Op, class Runs = Always>
void for_each_flat(const Exec& exec, const char* label, Index elements, const Op& op, const Runs& runs = {}) {
  if (elements == 0) return;
  if constexpr (runs_on_host<Exec>) {
    constexpr Index block = 4096;
    Kokkos::parallel_for(label, Range<Exec>(exec, 0, (elements + block - 1) / block), [=](const Index b) {
      if (!runs()) return;
      const Index end = (b + 1) * block < elements ? (b + 1) * block : elements;
#pragma GCC ivdep
      for (Index i = b * block; i < end; ++i) op(i);
    });
  } else {
    if constexpr (std::is_same_v<Runs, Always>) {
      Kokkos::parallel_for(label, Range<Exec>(exec, 0, elements), op);
    } else {
      Kokkos::parallel_for(label, Range<Exec>(exec, 0, elements), GatedOperation<Op, Runs>{op, runs});
    }
  }
}

}  // namespace aloni::nn::local::detail

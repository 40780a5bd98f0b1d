#pragma once
// One loop for all kernels that treat each element alone: out(i) = op(in(i)…), any strides, fast where rows are contiguous.
#include <aloni/nn/local/detail/execution.hpp>

#include <string>

namespace aloni::nn::local::detail {

template <class Exec, class Op, class Out, class... In>
void elementwise(const Exec& exec, const char* label, const Op& op, const Out& out, const In&... in) {
  const Rows rows = rows_of(out);
  if (rows.elements() == 0) return;
  if constexpr (runs_on_host<Exec>) {
    if (views::is_dense(out) && (views::is_dense(in) && ...)) {
      constexpr Index block = 4096;  // one share of work: long enough to hide the loop's start, short enough to balance
      const Index elements = rows.elements();
      auto* const to = out.data();
      Kokkos::parallel_for(label, Range<Exec>(exec, 0, (elements + block - 1) / block),
                           [=, ... from = in.data()](const Index b) {
                             const Index end = (b + 1) * block < elements ? (b + 1) * block : elements;
                             for (Index i = b * block; i < end; ++i) to[i] = op(from[i]...);
                           });
      return;
    }
    const bool contiguous = has_contiguous_rows(out) && (has_contiguous_rows(in) && ...);
    Kokkos::parallel_for(label, Range<Exec>(exec, 0, rows.rows()), [=](const Index r) {
      Index n, d, h;
      rows.row(r, n, d, h);
      if (contiguous) {
        auto row = [&](const auto& v) { return &v(n, d, h, 0, 0); };
        auto loop = [&](auto* to, const auto*... from) {
          for (Index i = 0; i < rows.width * rows.channels; ++i) to[i] = op(from[i]...);
        };
        loop(row(out), row(in)...);
      } else {
        for (Index w = 0; w < rows.width; ++w)
          for (Index c = 0; c < rows.channels; ++c) out(n, d, h, w, c) = op(in(n, d, h, w, c)...);
      }
    });
  } else {
    Kokkos::parallel_for(
        label, Range<Exec>(exec, 0, rows.elements()), KOKKOS_LAMBDA(const Index i) {
          Index n, d, h, w, c;
          rows.element(i, n, d, h, w, c);
          out(n, d, h, w, c) = op(in(n, d, h, w, c)...);
        });
  }
}

}  // namespace aloni::nn::local::detail

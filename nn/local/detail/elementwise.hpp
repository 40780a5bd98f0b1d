#pragma once
// One loop for all kernels that compute each element alone: out = op(a, b), op(a) or op(). Views may have any strides;
// contiguous rows are fast.
#include <aloni/nn/local/detail/execution.hpp>
#include <aloni/nn/local/detail/flat.hpp>

#include <type_traits>

namespace aloni::nn::local::detail {

/// op of the values at index i, as many as it takes. Pointers of values that it does not take may be null.
template <class Op, class A, class B>
KOKKOS_INLINE_FUNCTION auto apply(const Op& op, const A* a, const B* b, Index i) {
  if constexpr (std::is_invocable_v<Op, A, B>) {
    return op(a[i], b[i]);
  } else if constexpr (std::is_invocable_v<Op, A>) {
    return op(a[i]);
  } else {
    return op();
  }
}

template <class Op, class Out, class In>
struct SingleElement {
  Rows rows;
  Op op;
  Out out;
  In a, b;
  KOKKOS_FUNCTION void operator()(const Index i) const {
    Index n, d, h, w, c;
    rows.element(i, n, d, h, w, c);
    using T = typename In::value_type;
    if constexpr (std::is_invocable_v<Op, T, T>) {
      out(n, d, h, w, c) = op(a(n, d, h, w, c), b(n, d, h, w, c));
    } else if constexpr (std::is_invocable_v<Op, T>) {
      out(n, d, h, w, c) = op(a(n, d, h, w, c));
    } else {
      out(n, d, h, w, c) = op();
    }
  }
};

template <class To>
struct Convert {
  template <class From>
  KOKKOS_FUNCTION To operator()(From x) const {
    return static_cast<To>(x);
  }
};

/// The element at a position in memory, of dense views. On a device it spares the divisions of SingleElement, which
/// would take longer than the memory.
template <class Op, class Out, class In>
struct DenseElement {
  Op op;
  Out* out;
  const In *a, *b;
  KOKKOS_FUNCTION void operator()(const Index i) const { out[i] = apply(op, a, b, i); }
};

/// Inputs that op does not take are default-constructed views. The inputs may have another type than the result.
template <class Exec, class Op, class Out, class T = Out>
void elementwise(const Exec& exec, const char* label, const Op& op, const Tensor<Out, Exec>& out,
                 const InTensor<T, Exec>& a = {}, const InTensor<T, Exec>& b = {}) {
  const Rows rows = rows_of(out);
  if (rows.elements() == 0) return;
  constexpr bool binary = std::is_invocable_v<Op, T, T>, unary = !binary && std::is_invocable_v<Op, T>;
  auto all = [&](auto property) {
    return property(out) && (!(unary || binary) || property(a)) && (!binary || property(b));
  };
  if (all([](const auto& v) { return views::is_dense(v); })) {
    for_each_flat(exec, label, rows.elements(), DenseElement<Op, Out, T>{op, out.data(), a.data(), b.data()});
    return;
  }
  const SingleElement<Op, Tensor<Out, Exec>, Tensor<const T, Exec>> element{rows, op, out, a, b};
  if constexpr (runs_on_host<Exec>) {
    const bool whole_rows = all([](const auto& v) { return has_contiguous_rows(v); });
    if (whole_rows || all([](const auto& v) { return has_contiguous_channels(v); })) {
      // A run is a row or a pixel.
      const Index runs = whole_rows ? 1 : rows.width, length = rows.width * rows.channels / runs;
      Kokkos::parallel_for(label, Range<Exec>(exec, 0, rows.rows()), [=](const Index r) {
        Index n, d, h;
        rows.row(r, n, d, h);
        auto first = [&](const auto& v, Index w) { return v.data() == nullptr ? nullptr : &v(n, d, h, w, 0); };
        for (Index w = 0; w < runs; ++w) {
          auto* const to = first(out, w);
          const auto *const from_a = first(a, w), *const from_b = first(b, w);
          for (Index j = 0; j < length; ++j) to[j] = apply(op, from_a, from_b, j);
        }
      });
    } else {
      Kokkos::parallel_for(label, Range<Exec>(exec, 0, rows.elements()), element);
    }
  } else {
    Kokkos::parallel_for(label, Range<Exec>(exec, 0, rows.elements()), element);
  }
}

}  // namespace aloni::nn::local::detail

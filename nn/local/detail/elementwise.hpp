#pragma once
// One loop for all kernels that compute each element alone: out = op(a, b), op(a) or op(). Views may have any strides;
// contiguous rows are fast. A device has one thread for each pack of elements.
#include <aloni/nn/local/detail/execution.hpp>
#include <aloni/nn/local/detail/flat.hpp>
#include <aloni/nn/local/detail/pack.hpp>

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

/// N neighbouring elements at the pack i of each array.
template <int N, class Op, class Out, class In>
KOKKOS_INLINE_FUNCTION void apply_to_pack(const Op& op, Out* out, const In* a, const In* b) {
  Pack<Out, N> results;
  Pack<In, N> first, second;
  if constexpr (std::is_invocable_v<Op, In, In> || std::is_invocable_v<Op, In>) first = load_pack<N>(a);
  if constexpr (std::is_invocable_v<Op, In, In>) second = load_pack<N>(b);
  for (int j = 0; j < N; ++j) results.value[j] = apply(op, first.value, second.value, j);
  store_pack(out, results);
}

/// One index is N neighbouring channels.
template <class Op, class Out, class In, int N>
struct EachPack {
  Rows rows;  ///< its channels are packs
  Op op;
  Out out;
  In a, b;
  KOKKOS_FUNCTION void operator()(const Index i) const {
    Index n, d, h, w, c;
    rows.element(i, n, d, h, w, c);
    c *= N;
    using T = typename In::value_type;
    constexpr bool binary = std::is_invocable_v<Op, T, T>, reads = binary || std::is_invocable_v<Op, T>;
    const typename In::const_value_type *first = nullptr, *second = nullptr;
    if constexpr (reads) first = &a(n, d, h, w, c);
    if constexpr (binary) second = &b(n, d, h, w, c);
    apply_to_pack<N>(op, &out(n, d, h, w, c), first, second);
  }
};

template <class To>
struct Convert {
  template <class From>
  KOKKOS_FUNCTION To operator()(From x) const {
    return static_cast<To>(x);
  }
};

/// Dense views: one index is one element, or N of them. On a device it spares the divisions of EachPack, which would
/// take longer than the memory.
template <class Op, class Out, class In, int N>
struct DenseElements {
  Op op;
  Out* out;
  const In *a, *b;
  Index elements;
  KOKKOS_FUNCTION void operator()(const Index i) const {
    const Index begin = i * N;
    if constexpr (N == 1) {
      out[i] = apply(op, a, b, i);
    } else if (begin + N <= elements) {
      apply_to_pack<N>(op, out + begin, a + begin, b + begin);
    } else {
      for (Index k = begin; k < elements; ++k) out[k] = apply(op, a, b, k);
    }
  }
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
  using Whole = Tensor<Out, Exec>;
  using Part = Tensor<const T, Exec>;
  if (all([](const auto& v) { return views::is_dense(v); })) {
    const Index elements = rows.elements();
    if constexpr (!runs_on_host<Exec>) {
      constexpr int n = most_in_pack<Out, T>;
      if (all([](const auto& v) { return is_aligned_for<n>(v.data()); })) {
        const DenseElements<Op, Out, T, n> packs{op, out.data(), a.data(), b.data(), elements};
        Kokkos::parallel_for(label, Range<Exec>(exec, 0, (elements + n - 1) / n), packs);
        return;
      }
    }
    for_each_flat(exec, label, elements, DenseElements<Op, Out, T, 1>{op, out.data(), a.data(), b.data(), elements});
    return;
  }
  const EachPack<Op, Whole, Part, 1> element{rows, op, out, a, b};
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
    constexpr int n = most_in_pack<Out, T>;
    if (all([](const auto& v) { return has_packs<n>(v); })) {
      EachPack<Op, Whole, Part, n> packs{rows, op, out, a, b};
      packs.rows.channels /= n;
      Kokkos::parallel_for(label, Range<Exec>(exec, 0, packs.rows.elements()), packs);
    } else {
      Kokkos::parallel_for(label, Range<Exec>(exec, 0, rows.elements()), element);
    }
  }
}

}  // namespace aloni::nn::local::detail

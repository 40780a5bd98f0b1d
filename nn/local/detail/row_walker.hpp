#pragma once
// Loops and memory of the convolutions that a host computes row by row (`direct`, `depthwise`). Rows of the result are
// shared out among the threads. A row of the result is a sum over terms: a row of the source with the weights of one
// kernel row.
//
//   RowScratch<T> scratch{.slots_h = kernel_height, .slot = row_elements, .row = row_elements};   // of one thread
//   scratch.use(memory, threads, kernel_rows);                      // memory: threads * scratch.elements()
//   share_out(exec, threads, label, output_rows(p).rows(), [=](Index thread, Index begin, Index end) {
//     scratch.walk<ConvolutionPass::forward>(
//         p, thread, begin, end, weights, weights_of_kernel_row,
//         [&](Index n, Index id, Index ih) { return x.row(n, id, ih); },
//         [&](Index n, Index od, Index oh, Index num_terms) { …; });  // scratch.terms_of(thread)[0, num_terms)
//   });
#include <aloni/nn/local/convolution_problem.hpp>
#include <aloni/nn/local/detail/direct_kernels.hpp>
#include <aloni/nn/local/detail/direct_rows.hpp>
#include <aloni/nn/local/detail/execution.hpp>

#include <algorithm>
#include <vector>

namespace aloni::nn::local::detail {

/// In dimension s, the source index that kernel index k pairs with result index i; -1 if there is none. Forward: the
/// input that output i reads. Backward-data: the output that reads input i.
template <ConvolutionPass pass>
Index source_of(const ConvolutionProblem& p, int s, Index i, Index k) {
  if constexpr (pass == ConvolutionPass::forward) {
    const Index input = i * p.stride[s] + k * p.dilation[s] + p.offset[s];
    return input >= 0 && input < p.input[s] ? input : -1;
  } else {
    const Index scaled = i - p.offset[s] - k * p.dilation[s];
    if (scaled < 0 || scaled % p.stride[s] != 0) return -1;
    const Index output = scaled / p.stride[s];
    return output < p.output[s] ? output : -1;
  }
}

inline Rows output_rows(const ConvolutionProblem& p) {
  return {p.samples, p.output[0], p.output[1], p.output[2], p.filters};
}
inline Rows input_rows(const ConvolutionProblem& p) {
  return {p.samples, p.input[0], p.input[1], p.input[2], p.channels};
}

/// f(kernel row, source depth, source height) for each kernel row that pairs the result row (d, h) with a source row.
template <ConvolutionPass pass, class F>
void for_each_kernel_row(const ConvolutionProblem& p, Index d, Index h, const F& f) {
  for (Index kd = 0; kd < p.kernel[0]; ++kd) {
    const Index source_d = source_of<pass>(p, 0, d, kd);
    if (source_d < 0) continue;
    for (Index kh = 0; kh < p.kernel[1]; ++kh) {
      const Index source_h = source_of<pass>(p, 1, h, kh);
      if (source_h >= 0) f(kd * p.kernel[1] + kh, source_d, source_h);
    }
  }
}

/// `elements` of one thread, rounded up so that no two threads write to the same cache line. With shared lines, the
/// forward pass of LeNet-5's first layer was only 1.4 times as fast on two threads as on one.
template <class E>
constexpr Index apart(Index elements) {
  constexpr Index line = std::max<Index>(1, 64 / sizeof(E));
  return elements == 0 ? 0 : (elements + line - 1) / line * line + line;
}

/// An array of each thread.
template <class E>
class PerThread {
 public:
  void resize(Index threads, Index elements) {
    stride_ = apart<E>(elements);
    all_.resize(threads * stride_);
  }
  E* of(Index thread) { return all_.data() + thread * stride_; }
  const E* of(Index thread) const { return all_.data() + thread * stride_; }

 private:
  Index stride_ = 0;
  std::vector<E> all_;
};

/// Memory of each thread: copied rows of the source, a buffer for rows, sums, and the terms of one row. The members are
/// numbers of elements of one thread.
template <class T>
struct RowScratch {
  Index slots_d = 1, slots_h = 1, slot = 0;  ///< copied rows
  Index row = 0;                             ///< a row of results, or rows of dy
  Index sums = 0;                            ///< gradients of filters and bias

  Index elements() const { return apart<T>(slots_d * slots_h * slot + row + sums); }

  /// @pre the numbers stay as they are from here on
  void use(T* memory, Index threads, Index kernel_rows) {
    memory_ = memory;
    tags_.resize(threads, slots_d * slots_h);
    terms_.resize(threads, kernel_rows);
  }

  /// An empty cache with other numbers than those above. @pre they need no more memory
  RowCache<T> cache(Index thread, Index depth_slots, Index height_slots, Index slot_elements) {
    RowCache<T> rows{memory_ + thread * elements(), tags_.of(thread), depth_slots, height_slots, slot_elements};
    rows.forget();
    return rows;
  }
  RowCache<T> cache(Index thread) { return cache(thread, slots_d, slots_h, slot); }
  T* row_of(Index thread) const { return memory_ + thread * elements() + slots_d * slots_h * slot; }
  T* sums_of(Index thread) const { return row_of(thread) + row; }
  RowTerm<T>* terms_of(Index thread) { return terms_.of(thread); }

  /// For each result row in [begin, end): makes terms of the rows source(n, d, h) and the weights of the kernel row.
  /// Then calls body(n, d, h, number of terms).
  template <ConvolutionPass pass, class Source, class Body>
  void walk(const ConvolutionProblem& p, Index thread, Index begin, Index end, const T* weights,
            Index weights_of_kernel_row, const Source& source, const Body& body) {
    const Rows results = pass == ConvolutionPass::forward ? output_rows(p) : input_rows(p);
    RowTerm<T>* const terms = terms_of(thread);
    for (Index r = begin; r < end; ++r) {
      Index n, d, h, num_terms = 0;
      results.row(r, n, d, h);
      for_each_kernel_row<pass>(p, d, h, [&](Index kernel_row, Index source_d, Index source_h) {
        terms[num_terms++] = {source(n, source_d, source_h), weights + kernel_row * weights_of_kernel_row};
      });
      body(n, d, h, num_terms);
    }
  }

 private:
  T* memory_ = nullptr;
  PerThread<Index> tags_;
  PerThread<RowTerm<T>> terms_;
};

/// Filters that are packed, or whose sums are added, together: a cache line of the packed order.
inline constexpr Index filter_block = 16;
inline Index filter_blocks(Index filters) { return (filters + filter_block - 1) / filter_block; }

/// filters, values -> values, padded filters, with zeros for the padding, for blocks [begin, end) of the padded
/// filters.
template <class T>
void pack_filters(const T* from, Index filters, Index values, Index padded, Index begin, Index end, T* packed) {
  for (Index b = begin; b < end; ++b) {
    const Index first = b * filter_block, last = std::min(first + filter_block, padded);
    const Index real = std::clamp<Index>(filters, first, last);
    for (Index j = 0; j < values; ++j) {
      for (Index f = first; f < real; ++f) packed[j * padded + f] = from[f * values + j];
      for (Index f = real; f < last; ++f) packed[j * padded + f] = T{0};
    }
  }
}

/// Adds the sums of the threads in the order of the threads: dw[filter, value], and db where it is wanted. A thread's
/// sums are values × padded filters, then padded filters of the bias.
template <class T, class Exec>
void add_threads(const Exec& exec, const char* label, const RowScratch<T>& scratch, Index threads, Index tasks,
                 Index filters, Index padded, Index values, const Tensor<T, Exec>& dw, const Array<T, Exec>& db) {
  const Index rows = values + (db.extent(0) > 0 ? 1 : 0);
  share_out(exec, threads, label, filter_blocks(filters), [=, &scratch](Index, Index begin, Index end) {
    for (Index b = begin; b < end; ++b) {
      const Index first = b * filter_block, count = std::min(filter_block, filters - first);
      for (Index j = 0; j < rows; ++j) {
        T sum[filter_block] = {};
        for (Index t = 0; t < tasks; ++t) {
          const T* const from = scratch.sums_of(t) + j * padded + first;
          for (Index k = 0; k < count; ++k) sum[k] += from[k];
        }
        T* const to = j < values ? dw.data() + first * values + j : db.data() + first;
        const Index step = j < values ? values : 1;
        for (Index k = 0; k < count; ++k) to[k * step] = sum[k];
      }
    }
  });
}

}  // namespace aloni::nn::local::detail

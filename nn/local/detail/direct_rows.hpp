#pragma once
// Rows of strided tensors on a host: access, copies with a cache, and shares of work for threads.
#include <aloni/nn/local/detail/execution.hpp>

#include <algorithm>

namespace aloni::nn::local::detail {

/// A tensor as pointer and strides in elements.
template <class T>
struct Strided {
  T* data;
  Index n, d, h, w, c;
  T* row(Index in, Index id, Index ih) const { return data + in * n + id * d + ih * h; }
};

template <class View>
auto strided(const View& v) {
  auto stride = [&](int i) { return static_cast<Index>(v.stride(i)); };
  return Strided<typename View::value_type>{v.data(),  stride(0), stride(1),
                                            stride(2), stride(3), v.extent(4) <= 1 ? Index{1} : stride(4)};
}

/// Copied rows of one thread, found again by slot. Rows that are in use together have different slots.
template <class T>
struct RowCache {
  T* memory;
  Index* tags;
  Index slots_d, slots_h, slot_elements;

  void forget() { std::fill(tags, tags + slots_d * slots_h, Index{-1}); }

  /// A dense copy of columns [first, first + columns) of row (n, d, h), with zeros outside the `width` columns of the
  /// source. Each channel of the source appears `repeat` times in a row; `channels` counts them all.
  const T* row(const Strided<const T>& source, Index n, Index d, Index h, Index height, Index depth, Index first,
               Index columns, Index width, Index channels, Index repeat = 1) {
    const Index slot = (d % slots_d) * slots_h + h % slots_h;
    T* const out = memory + slot * slot_elements;
    const Index tag = (n * depth + d) * height + h;
    if (tags[slot] == tag) return out;
    tags[slot] = tag;
    const Index begin = std::clamp<Index>(-first, 0, columns), end = std::clamp<Index>(width - first, begin, columns);
    std::fill(out, out + begin * channels, T{0});
    const T* const from = source.row(n, d, h);
    if (source.c == 1 && source.w == channels && repeat == 1) {
      std::copy(from + (first + begin) * channels, from + (first + end) * channels, out + begin * channels);
    } else {
      for (Index q = begin; q < end; ++q)
        for (Index c = 0; c < channels; ++c)
          out[q * channels + c] = from[(first + q) * source.w + c / repeat * source.c];
    }
    std::fill(out + end * channels, out + columns * channels, T{0});
    return out;
  }
};

constexpr Index rounded_up(Index n, Index to) { return (n + to - 1) / to * to; }

/// Copies a row with any strides into a buffer with `pixel` elements from one pixel to the next.
template <class T>
void read_row(const T* row, const Strided<const T>& strides, Index pixels, Index channels, T* buffer, Index pixel) {
  for (Index q = 0; q < pixels; ++q)
    for (Index c = 0; c < channels; ++c) buffer[q * pixel + c] = row[q * strides.w + c * strides.c];
}

/// Copies a dense buffer into a row with any strides.
template <class T>
void write_row(const T* buffer, Index pixels, Index channels, T* row, const Strided<T>& strides) {
  for (Index q = 0; q < pixels; ++q)
    for (Index c = 0; c < channels; ++c) row[q * strides.w + c * strides.c] = buffer[q * channels + c];
}

/// Calls body(thread, begin, end) for equal shares of [0, work).
template <class Exec, class Body>
void share_out(const Exec& exec, Index threads, const char* label, Index work, const Body& body) {
  const Index tasks = std::min(threads, work);
  Kokkos::parallel_for(label, Range<Exec>(exec, 0, tasks),
                       [=](const Index t) { body(t, work * t / tasks, work * (t + 1) / tasks); });
}

}  // namespace aloni::nn::local::detail

#pragma once
// Converts boxes of a plan to offsets and strides in memory: in a tensor, or in a message, where a move's source box is
// dense.
#include <aloni/halo/transfer.hpp>
#include <aloni/views/strided_copy.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace aloni::halo::detail {

// One side of a copy: offset of the first cell, and strides. A mirrored dimension starts at its end and steps down; a
// replicated dimension has stride 0.
struct Walk {
  Index offset = 0;
  std::array<Index, views::num_dims> strides{};
};

inline Walk walk(const std::array<Index, views::num_dims>& strides, const std::array<Index, views::num_dims>& first,
                 const Move& move, bool along_source) {
  Walk w;
  for (std::size_t i = 0; i < views::num_dims; ++i) {
    const int step = along_source ? move.step[i] : 1;
    w.strides[i] = step * strides[i];
    w.offset += first[i] * strides[i];
    if (step < 0) w.offset += (move.source.hi[i] - move.source.lo[i] - 1) * strides[i];
  }
  return w;
}

inline std::array<Index, views::num_dims> extents(const views::Box& b) { return views::extents_of(b).values; }

inline std::array<Index, views::num_dims> dense_strides(const views::Box& b) {
  std::array<Index, views::num_dims> strides;
  Index stride = 1;
  for (std::size_t i = views::num_dims; i-- > 0; stride *= b.hi[i] - b.lo[i]) strides[i] = stride;
  return strides;
}

template <class T, class Mem>
std::array<Index, views::num_dims> strides_of(const TensorRef<T, Mem>& tensor) {
  std::array<Index, views::num_dims> strides;
  for (std::size_t i = 0; i < views::num_dims; ++i)
    strides[i] = static_cast<Index>(tensor.data.stride(static_cast<int>(i)));
  return strides;
}

template <class T, class Mem>
Walk walk_source(const TensorRef<T, Mem>& tensor, const Move& move, bool by_destination) {
  std::array<Index, views::num_dims> first;
  for (std::size_t i = 0; i < views::num_dims; ++i) first[i] = move.source.lo[i] - tensor.box.lo[i];
  return walk(strides_of(tensor), first, move, by_destination);
}

template <class T, class Mem>
Walk walk_box(const TensorRef<T, Mem>& tensor, const views::Box& box) {
  Walk w;
  w.strides = strides_of(tensor);
  for (std::size_t i = 0; i < views::num_dims; ++i) w.offset += (box.lo[i] - tensor.box.lo[i]) * w.strides[i];
  return w;
}

inline Walk walk_message(Index at, const Move& move, bool by_destination) {
  Walk w = walk(dense_strides(move.source), {}, move, by_destination);
  w.offset += at;
  return w;
}

inline views::StridedCopy copy(const std::array<Index, views::num_dims>& extents, const Walk& source,
                               const Walk& destination) {
  return {source.offset, destination.offset, extents, source.strides, destination.strides};
}

/// Whether a move copies every source cell to one destination cell, in the same order.
inline bool is_plain(const Move& m) {
  return std::ranges::all_of(m.step, [](std::int8_t s) { return s == 1; });
}

/// Number of elements in memory from the first to the last cell of a box.
inline std::size_t span_of(const views::Box& box, const std::array<Index, views::num_dims>& strides) {
  Index last = 0;
  for (std::size_t i = 0; i < views::num_dims; ++i) last += (box.hi[i] - box.lo[i] - 1) * strides[i];
  return static_cast<std::size_t>(last) + 1;
}

/// Number of elements of a box that are contiguous in memory with these strides.
inline Index run_of(const views::Box& box, const std::array<Index, views::num_dims>& strides) {
  Index run = 1;
  for (bool grows = true; grows;) {
    grows = false;
    for (std::size_t i = 0; i < views::num_dims; ++i) {
      const Index extent = box.hi[i] - box.lo[i];
      if (extent <= 1 || strides[i] != run) continue;
      run *= extent;
      grows = true;
    }
  }
  return run;
}

}  // namespace aloni::halo::detail

#include <aloni/nn/local/detail/filter_reorder.hpp>

#include <aloni/nn/local/detail/vector_types.hpp>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <numeric>
#include <utility>

namespace aloni::nn::local::detail {

namespace {

template <int lanes>
[[gnu::always_inline]] inline Vector<float, lanes> load(const float* from) {
  return *reinterpret_cast<const Vector<float, lanes>*>(from);
}
template <int lanes>
[[gnu::always_inline]] inline void store(float* to, Vector<float, lanes> values) {
  *reinterpret_cast<Vector<float, lanes>*>(to) = values;
}

/// to[c * to_row + r] = from[r * from_row + c] for a square of `lanes` rows and columns, by vectors.
template <int lanes>
[[gnu::always_inline]] inline void transpose_square(const float* from, Index from_row, float* to, Index to_row);

template <>
[[gnu::always_inline]] inline void transpose_square<4>(const float* from, Index from_row, float* to, Index to_row) {
  using V = Vector<float, 4>;
  const V x0 = load<4>(from), x1 = load<4>(from + from_row), x2 = load<4>(from + 2 * from_row),
          x3 = load<4>(from + 3 * from_row);
  const V a0 = __builtin_shufflevector(x0, x1, 0, 4, 1, 5), a1 = __builtin_shufflevector(x0, x1, 2, 6, 3, 7);
  const V a2 = __builtin_shufflevector(x2, x3, 0, 4, 1, 5), a3 = __builtin_shufflevector(x2, x3, 2, 6, 3, 7);
  store<4>(to, __builtin_shufflevector(a0, a2, 0, 1, 4, 5));
  store<4>(to + to_row, __builtin_shufflevector(a0, a2, 2, 3, 6, 7));
  store<4>(to + 2 * to_row, __builtin_shufflevector(a1, a3, 0, 1, 4, 5));
  store<4>(to + 3 * to_row, __builtin_shufflevector(a1, a3, 2, 3, 6, 7));
}

/// Pairs of rows, pairs of pairs, and then halves: 24 shuffles within halves of vectors or of whole halves.
template <>
[[gnu::always_inline]] inline void transpose_square<8>(const float* from, Index from_row, float* to, Index to_row) {
  using V = Vector<float, 8>;
  V u[8];
#pragma GCC unroll 2
  for (int half = 0; half < 8; half += 4) {
    const float* const x = from + half * from_row;
    const V x0 = load<8>(x), x1 = load<8>(x + from_row), x2 = load<8>(x + 2 * from_row), x3 = load<8>(x + 3 * from_row);
    const V a0 = __builtin_shufflevector(x0, x1, 0, 8, 1, 9, 4, 12, 5, 13);
    const V a1 = __builtin_shufflevector(x0, x1, 2, 10, 3, 11, 6, 14, 7, 15);
    const V a2 = __builtin_shufflevector(x2, x3, 0, 8, 1, 9, 4, 12, 5, 13);
    const V a3 = __builtin_shufflevector(x2, x3, 2, 10, 3, 11, 6, 14, 7, 15);
    u[half] = __builtin_shufflevector(a0, a2, 0, 1, 8, 9, 4, 5, 12, 13);
    u[half + 1] = __builtin_shufflevector(a0, a2, 2, 3, 10, 11, 6, 7, 14, 15);
    u[half + 2] = __builtin_shufflevector(a1, a3, 0, 1, 8, 9, 4, 5, 12, 13);
    u[half + 3] = __builtin_shufflevector(a1, a3, 2, 3, 10, 11, 6, 7, 14, 15);
  }
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    store<8>(to + c * to_row, __builtin_shufflevector(u[c], u[c + 4], 0, 1, 2, 3, 8, 9, 10, 11));
    store<8>(to + (c + 4) * to_row, __builtin_shufflevector(u[c], u[c + 4], 4, 5, 6, 7, 12, 13, 14, 15));
  }
}

template <int lanes, int tile>
[[gnu::always_inline]] inline void transpose(const float* from, Index from_row, float* to, Index to_row) {
  for (int c = 0; c < tile; c += lanes)
    for (int r = 0; r < tile; r += lanes)
      transpose_square<lanes>(from + r * from_row + c, from_row, to + c * to_row + r, to_row);
}

template <int tile>
[[gnu::always_inline]] inline void copy_rows(const float* from, Index from_row, float* to, Index to_row) {
  for (int r = 0; r < tile; ++r) std::memcpy(to + r * to_row, from + r * from_row, tile * sizeof(float));
}

template <int lanes, int tile>
[[gnu::always_inline]] inline void reorder_tiles(const FilterOrderInMemory& from, const float* source,
                                                 const FilterOrderInMemory& to, float* target, Index f) {
  const bool transposes = (from.channel == 1) != (to.channel == 1);
  const Index from_row = from.channel == 1 ? from.filter : from.channel;
  const Index to_row = to.channel == 1 ? to.filter : to.channel;
  for (std::size_t t = 0; t < to.taps.size(); ++t) {
    for (Index c = 0; c < to.channels; c += tile) {
      float* const y = target + to.place_of(f, c) + to.taps[t];
      if (f >= to.filters) {
        for (int r = 0; r < tile; ++r) std::memset(y + r * to_row, 0, tile * sizeof(float));
        continue;
      }
      const float* const x = source + from.place_of(f, c) + from.taps[t];
      transposes ? transpose<lanes, tile>(x, from_row, y, to_row) : copy_rows<tile>(x, from_row, y, to_row);
    }
  }
}

template <int lanes>
[[gnu::always_inline]] inline void reorder_rows(const FilterOrderInMemory& from, const float* source,
                                                const FilterOrderInMemory& to, float* target, Index begin, Index end,
                                                int tile) {
  for (Index f = begin; f < end; f += tile)
    tile == 16 ? reorder_tiles<lanes, 16>(from, source, to, target, f)
               : reorder_tiles<lanes, 8>(from, source, to, target, f);
}

// Vectors that every processor of the target architecture has.
void reorder_baseline(const FilterOrderInMemory& from, const float* source, const FilterOrderInMemory& to,
                      float* target, Index begin, Index end, int tile) {
  reorder_rows<4>(from, source, to, target, begin, end, tile);
}
#if defined(__x86_64__)
__attribute__((target("avx2"))) void reorder_avx2(const FilterOrderInMemory& from, const float* source,
                                                  const FilterOrderInMemory& to, float* target, Index begin, Index end,
                                                  int tile) {
  reorder_rows<8>(from, source, to, target, begin, end, tile);
}
#endif

/// 16 where both orders have it; a line of a cache has as many.
int tile_of(const FilterOrderInMemory& from, const FilterOrderInMemory& to) {
  Index common = 16;
  for (const FilterOrderInMemory* const order : {&from, &to})
    for (const Index n :
         {order->filters, order->padded_filters, order->channels, order->filter_block, order->channel_block})
      common = std::gcd(common, n);
  return common >= 8 ? static_cast<int>(common) : 0;
}

constexpr Index filters_of_part = 16;

}  // namespace

FilterOrderInMemory plain_order(Index filters, Index taps, Index channels) {
  FilterOrderInMemory order{.filters = filters,
                            .channels = channels,
                            .padded_filters = filters,
                            .filter_block = filters,
                            .channel_block = channels,
                            .filter = taps * channels,
                            .channel = 1};
  for (Index t = 0; t < taps; ++t) order.taps.push_back(t * channels);
  return order;
}

FilterOrderInMemory flipped_order(Index filters, Index taps, Index channels) {
  FilterOrderInMemory order = plain_order(filters, taps, channels);
  std::swap(order.filters, order.channels);
  std::swap(order.filter_block, order.channel_block);
  std::swap(order.filter, order.channel);
  order.padded_filters = order.filters;
  std::ranges::reverse(order.taps);
  return order;
}

bool can_reorder(const FilterOrderInMemory& from, const FilterOrderInMemory& to) {
  const auto has_neighbours = [](const FilterOrderInMemory& order) { return order.channel == 1 || order.filter == 1; };
  return tile_of(from, to) > 0 && from.filters == to.filters && from.channels == to.channels &&
         from.taps.size() == to.taps.size() && has_neighbours(from) && has_neighbours(to);
}

Index reorder_parts(const FilterOrderInMemory& to) {
  return (to.padded_filters + filters_of_part - 1) / filters_of_part;
}

void reorder(const FilterOrderInMemory& from, const float* source, const FilterOrderInMemory& to, float* target,
             Index part) {
  const Index begin = part * filters_of_part, end = std::min(begin + filters_of_part, to.padded_filters);
  const int tile = tile_of(from, to);
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2")) return reorder_avx2(from, source, to, target, begin, end, tile);
#endif
  reorder_baseline(from, source, to, target, begin, end, tile);
}

}  // namespace aloni::nn::local::detail

#include <aloni/core/comm/detail/reducer.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

namespace aloni::comm::detail {

namespace {

template <Reduction op, class T>
inline T apply(T a, T b) {
  if constexpr (op == Reduction::sum) return a + b;
  if constexpr (op == Reduction::product) return a * b;
  // A value that is not a number wins over all numbers.
  if constexpr (op == Reduction::min) return a < b || a != a ? a : b;
  if constexpr (op == Reduction::max) return b < a || a != a ? a : b;
}

template <Reduction op, class T>
inline void combine_elements(void* to, const void* first, const void* second, std::size_t count) {
  T* const t = static_cast<T*>(to);
  const T* const a = static_cast<const T*>(first);
  const T* const b = static_cast<const T*>(second);
#pragma GCC ivdep
  for (std::size_t i = 0; i < count; ++i) t[i] = apply<op>(a[i], b[i]);
}

template <Reduction op, class T>
inline void combine_both_elements(void* first, void* second, std::size_t count) {
  T* const a = static_cast<T*>(first);
  T* const b = static_cast<T*>(second);
#pragma GCC ivdep
  for (std::size_t i = 0; i < count; ++i) {
    const T value = apply<op>(a[i], b[i]);
    a[i] = value;
    b[i] = value;
  }
}

template <Reduction op, class T>
struct Baseline {
  static void combine(void* to, const void* first, const void* second, std::size_t count) {
    combine_elements<op, T>(to, first, second, count);
  }
  static void combine_both(void* a, void* b, std::size_t count) { combine_both_elements<op, T>(a, b, count); }
};

#if defined(__x86_64__) && defined(__GNUC__)
// As long as data are in cache, a third faster than SSE2; AVX-512 is no faster.
template <Reduction op, class T>
struct Avx2 {
  [[gnu::target("avx2")]] static void combine(void* to, const void* first, const void* second, std::size_t count) {
    combine_elements<op, T>(to, first, second, count);
  }
  [[gnu::target("avx2")]] static void combine_both(void* a, void* b, std::size_t count) {
    combine_both_elements<op, T>(a, b, count);
  }
};
const bool has_avx2 = __builtin_cpu_supports("avx2");
#else
template <Reduction op, class T>
using Avx2 = Baseline<op, T>;
constexpr bool has_avx2 = false;
#endif

template <Reduction op, class T>
Reducer of() {
  if (has_avx2) return {Avx2<op, T>::combine, Avx2<op, T>::combine_both, sizeof(T)};
  return {Baseline<op, T>::combine, Baseline<op, T>::combine_both, sizeof(T)};
}

template <class T>
Reducer of_type(Reduction reduction) {
  switch (reduction) {
    case Reduction::sum:
      return of<Reduction::sum, T>();
    case Reduction::min:
      return of<Reduction::min, T>();
    case Reduction::max:
      return of<Reduction::max, T>();
    case Reduction::product:
      return of<Reduction::product, T>();
  }
  return {};
}

constexpr std::size_t block_bytes = 4096;  // a few of them stay in the first-level cache

/// One block of the reduction over leaves first … last - 1 of the tree, in `to` or, when it is a single operand, where that is.
class Tree {
 public:
  Tree(const Reducer& reducer, std::span<std::byte* const> operands)
      : reducer_(reducer),
        operands_(operands),
        power_(std::bit_floor(operands.size())),
        extra_(operands.size() - power_) {}

  std::size_t leaves() const { return power_; }

  const std::byte* evaluate(std::size_t first, std::size_t last, std::size_t at, std::size_t bytes, std::byte* to,
                            std::size_t depth) {
    const auto operand = [&](std::size_t i) { return operands_[i] + at; };
    const std::size_t count = bytes / reducer_.element_bytes;
    if (last - first == 1) {
      if (first >= extra_) return operand(first + extra_);
      reducer_.combine(to, operand(2 * first), operand(2 * first + 1), count);
      return to;
    }
    const std::size_t middle = (first + last) / 2;
    const std::byte* const low = evaluate(first, middle, at, bytes, to, depth + 1);
    const std::byte* const high = evaluate(middle, last, at, bytes, scratch_[depth].data(), depth + 1);
    reducer_.combine(to, low, high, count);
    return to;
  }

 private:
  const Reducer& reducer_;
  std::span<std::byte* const> operands_;
  std::size_t power_, extra_;
  alignas(64) std::array<std::array<std::byte, block_bytes>, 12> scratch_;
};

}  // namespace

Reducer reducer_for(ElementType type, Reduction reduction) {
  switch (type) {
    case ElementType::float32:
      return of_type<float>(reduction);
    case ElementType::float64:
      return of_type<double>(reduction);
    case ElementType::int32:
      return of_type<std::int32_t>(reduction);
    case ElementType::int64:
      return of_type<std::int64_t>(reduction);
    case ElementType::uint64:
      return of_type<std::uint64_t>(reduction);
    case ElementType::bytes:
      break;
  }
  return {nullptr, nullptr, 1};
}

void combine_all(const Reducer& reducer, std::span<std::byte* const> operands, std::size_t count) {
  if (operands.size() < 2 || count == 0) return;
  if (operands.size() == 2) return reducer.combine_both(operands[0], operands[1], count);
  Tree tree(reducer, operands);
  alignas(64) std::array<std::byte, block_bytes> result;
  const std::size_t bytes = count * reducer.element_bytes;
  const std::size_t block = block_bytes / reducer.element_bytes * reducer.element_bytes;
  for (std::size_t at = 0; at < bytes; at += block) {
    const std::size_t n = std::min(block, bytes - at);
    tree.evaluate(0, tree.leaves(), at, n, result.data(), 0);
    for (std::byte* const operand : operands) std::memcpy(operand + at, result.data(), n);
  }
}

}  // namespace aloni::comm::detail

#include <aloni/views/strided_copy.hpp>

#include <aloni/views/detail/instantiate.hpp>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace aloni::views {

namespace detail {

template <class T>
CopyTask<T> make_task(const T* source, T* destination, const StridedCopy& copy, CopyMode mode) {
  CopyTask<T> task;
  task.source = source == nullptr ? nullptr : source + copy.source_offset;
  task.destination = destination + copy.destination_offset;
  task.kind = source == nullptr          ? CopyTask<T>::Kind::fill
              : mode == CopyMode::assign ? CopyTask<T>::Kind::assign
                                         : CopyTask<T>::Kind::add;
  struct Dimension {
    Index extent, source, destination;
  };
  std::vector<Dimension> kept, summed;
  for (std::size_t i = 0; i < 5; ++i) {
    if (copy.extents[i] <= 0) return task;  // cells = 0
    if (copy.extents[i] == 1) continue;
    const Dimension d{copy.extents[i], source == nullptr ? 0 : copy.source_strides[i], copy.destination_strides[i]};
    (d.destination == 0 ? summed : kept).push_back(d);
  }
  std::stable_sort(kept.begin(), kept.end(), [](const Dimension& a, const Dimension& b) {
    const auto size = [](Index stride) { return stride < 0 ? -stride : stride; };
    return size(a.destination) > size(b.destination);
  });
  std::vector<Dimension> merged;
  for (const Dimension& d : kept) {
    if (!merged.empty() && merged.back().source == d.source * d.extent &&
        merged.back().destination == d.destination * d.extent)
      merged.back() = {merged.back().extent * d.extent, d.source, d.destination};
    else
      merged.push_back(d);
  }
  // The loops below need at least two dimensions. A single long row is split in two dimensions, so that threads can
  // share it.
  constexpr Index long_row = 1 << 14;
  if (merged.empty()) merged.push_back({1, 1, 1});
  const Dimension last = merged.back();
  if (merged.size() == 1 && last.extent >= 2 * long_row && last.extent % long_row == 0) {
    merged.back() = {last.extent / long_row, last.source * long_row, last.destination * long_row};
    merged.push_back({long_row, last.source, last.destination});
  } else if (merged.size() == 1) {
    merged.insert(merged.begin(), {1, 0, 0});
  }
  task.kept = static_cast<int>(merged.size());
  merged.insert(merged.end(), summed.begin(), summed.end());
  task.total = static_cast<int>(merged.size());
  task.cells = 1;
  for (std::size_t i = 0; i < merged.size(); ++i) {
    task.extents[i] = merged[i].extent;
    task.source_strides[i] = merged[i].source;
    task.destination_strides[i] = merged[i].destination;
    if (static_cast<int>(i) < task.kept) task.cells *= merged[i].extent;
  }
  return task;
}

template <class T>
KOKKOS_INLINE_FUNCTION T sum_of_sources(const CopyTask<T>& task, const T* source) {
  Index at[CopyTask<T>::max_dims] = {};
  T sum{};
  while (true) {
    sum += *source;
    int i = task.total - 1;
    for (; i >= task.kept; --i) {
      source += task.source_strides[i];
      if (++at[i] < task.extents[i]) break;
      source -= task.extents[i] * task.source_strides[i];
      at[i] = 0;
    }
    if (i < task.kept) return sum;
  }
}

struct alignas(16) WideCell {
  std::uint64_t first, second;
};

/// Number: 32 bits if the cells of the task fit. A device divides 64 bits in a hundred instructions, 32 bits in twenty.
template <class Number, class T>
KOKKOS_INLINE_FUNCTION void find_cell(const CopyTask<T>& task, Index cell, const T*& source, T*& destination) {
  auto rest = static_cast<Number>(cell);
  for (int i = task.kept - 1; i >= 0; --i) {
    const auto extent = static_cast<Number>(task.extents[i]);
    const Number quotient = rest / extent;
    const auto at = static_cast<Index>(rest - quotient * extent);
    rest = quotient;
    source += at * task.source_strides[i];
    destination += at * task.destination_strides[i];
  }
}

template <class T>
KOKKOS_INLINE_FUNCTION void run_cell(const CopyTask<T>& task, Index cell) {
  const T* source = task.source;
  T* destination = task.destination;
  if (task.cells <= 0x7fffffff)
    find_cell<std::uint32_t>(task, cell, source, destination);
  else
    find_cell<std::uint64_t>(task, cell, source, destination);
  if (task.wide) {
    *reinterpret_cast<WideCell*>(destination) = *reinterpret_cast<const WideCell*>(source);
    return;
  }
  if (task.kind == CopyTask<T>::Kind::fill) {
    *destination = task.value;
    return;
  }
  const T value = task.kept == task.total ? *source : sum_of_sources(task, source);
  *destination = task.kind == CopyTask<T>::Kind::add ? *destination + value : value;
}

// --- host: rows ---

/// An address that may lie outside the allocation: for prefetches only.
template <class T>
const void* beyond(const T* p, Index cells) {
  return reinterpret_cast<const void*>(reinterpret_cast<std::uintptr_t>(p) +
                                       static_cast<std::uintptr_t>(cells) * sizeof(T));
}

// `rows` rows of N cells each. Short rows are common: a column of ghosts is W×C = 1×6 numbers wide. A call of memcpy or
// a loop of unknown length costs more than such a row. Lengths known to the compiler run several times faster.
template <int N, bool Add, class T>
void copy_short_rows(const T* __restrict source, T* __restrict destination, Index rows, Index source_stride,
                     Index destination_stride) {
  // The hardware prefetcher does not find rows that are far apart. A prefetch beyond the last row is harmless.
  constexpr Index ahead = 16, far = 256 / sizeof(T);
  if (std::abs(source_stride) >= far && std::abs(destination_stride) >= far) {
    for (Index r = 0; r < rows; ++r, source += source_stride, destination += destination_stride) {
      __builtin_prefetch(beyond(source, ahead * source_stride));
      __builtin_prefetch(beyond(destination, ahead * destination_stride), 1);
      for (int i = 0; i < N; ++i) destination[i] = Add ? destination[i] + source[i] : source[i];
    }
    return;
  }
  for (Index r = 0; r < rows; ++r, source += source_stride, destination += destination_stride)
    for (int i = 0; i < N; ++i) destination[i] = Add ? destination[i] + source[i] : source[i];
}

constexpr std::size_t cache_line = 64;

// Short rows that are far apart lie on different pages: each costs a cache miss and a TLB miss on both sides. Many such
// rows of whole cache lines are written past the caches, so that no line is read only to be overwritten. Their sources
// are prefetched. A column of 16,384 × 64 bytes from another rank's View took 350 µs instead of 500 µs; reading it
// afterwards takes 5 % longer. Rows that are closer together, for example some channels of each pixel, go through the
// caches, because the next kernel reads them at once.
#ifdef __SSE2__
template <class T>
bool may_stream(const T* destination, Index cells, Index n, Index destination_stride) {
  constexpr std::size_t many = 256 * 1024, longest_row = 1024, far = 4096;  // bytes
  const std::size_t row = static_cast<std::size_t>(n) * sizeof(T);
  const std::size_t step = static_cast<std::size_t>(std::abs(destination_stride)) * sizeof(T);
  return row % cache_line == 0 && row <= longest_row && step % cache_line == 0 && step >= far &&
         static_cast<std::size_t>(cells) * sizeof(T) >= many &&
         reinterpret_cast<std::uintptr_t>(destination) % cache_line == 0;
}

template <class T>
void stream_rows(const T* __restrict source, T* __restrict destination, Index rows, Index n, Index source_stride,
                 Index destination_stride) {
  const Index lines = n * static_cast<Index>(sizeof(T)) / static_cast<Index>(cache_line);
  const Index ahead = std::max<Index>(1, 32 / lines);
  constexpr Index cells = cache_line / sizeof(T), vectors = cache_line / sizeof(__m128i);
  for (Index r = 0; r < rows; ++r, source += source_stride, destination += destination_stride) {
    const T* const next = source + std::min(ahead, rows - 1 - r) * source_stride;
    for (Index l = 0; l < lines; ++l) {
      __builtin_prefetch(next + l * cells, 0, 0);
      const auto* const from = reinterpret_cast<const __m128i*>(source + l * cells);
      auto* const to = reinterpret_cast<__m128i*>(destination + l * cells);
      for (Index i = 0; i < vectors; ++i) _mm_stream_si128(to + i, _mm_loadu_si128(from + i));
    }
  }
  _mm_sfence();  // the next kernel may run on another thread
}
#endif

template <bool Add, class T>
void copy_contiguous_rows(const T* __restrict source, T* __restrict destination, Index rows, Index n,
                          Index source_stride, Index destination_stride, Index cells_of_task) {
#ifdef __SSE2__
  if constexpr (!Add) {
    if (may_stream(destination, cells_of_task, n, destination_stride))
      return stream_rows(source, destination, rows, n, source_stride, destination_stride);
  }
#endif
  const auto with = [&]<int N>(std::integral_constant<int, N>) {
    copy_short_rows<N, Add>(source, destination, rows, source_stride, destination_stride);
  };
  switch (n) {
    case 1:
      return with(std::integral_constant<int, 1>{});
    case 2:
      return with(std::integral_constant<int, 2>{});
    case 3:
      return with(std::integral_constant<int, 3>{});
    case 4:
      return with(std::integral_constant<int, 4>{});
    case 6:
      return with(std::integral_constant<int, 6>{});
    case 8:
      return with(std::integral_constant<int, 8>{});
    case 12:
      return with(std::integral_constant<int, 12>{});
    case 16:
      return with(std::integral_constant<int, 16>{});
    default:
      break;
  }
  for (Index r = 0; r < rows; ++r, source += source_stride, destination += destination_stride) {
    if constexpr (Add) {
      for (Index i = 0; i < n; ++i) destination[i] += source[i];
    } else {
      std::memcpy(destination, source, static_cast<std::size_t>(n) * sizeof(T));
    }
  }
}

template <class T>
void run_rows_of_block(const CopyTask<T>& task, const T* source, T* destination, Index rows) {
  using Kind = typename CopyTask<T>::Kind;
  const int inner = task.kept - 1, outer = task.kept - 2;
  const Index n = task.extents[inner], ss = task.source_strides[inner], ds = task.destination_strides[inner];
  const Index source_step = task.source_strides[outer], destination_step = task.destination_strides[outer];
  if (task.kind == Kind::fill) {
    for (Index r = 0; r < rows; ++r, destination += destination_step) {
      if (ds == 1)
        std::fill_n(destination, n, task.value);
      else
        for (Index i = 0; i < n; ++i) destination[i * ds] = task.value;
    }
  } else if (task.kept != task.total) {
    for (Index r = 0; r < rows; ++r, source += source_step, destination += destination_step)
      for (Index i = 0; i < n; ++i) {
        const T value = sum_of_sources(task, source + i * ss);
        T& cell = destination[i * ds];
        cell = task.kind == Kind::add ? cell + value : value;
      }
  } else if (ss == 1 && ds == 1) {
    if (task.kind == Kind::add)
      copy_contiguous_rows<true>(source, destination, rows, n, source_step, destination_step, task.cells);
    else
      copy_contiguous_rows<false>(source, destination, rows, n, source_step, destination_step, task.cells);
  } else if (task.kind == Kind::add) {
    for (Index r = 0; r < rows; ++r, source += source_step, destination += destination_step)
      for (Index i = 0; i < n; ++i) destination[i * ds] += source[i * ss];
  } else {
    for (Index r = 0; r < rows; ++r, source += source_step, destination += destination_step)
      for (Index i = 0; i < n; ++i) destination[i * ds] = source[i * ss];
  }
}

// Rows [begin, end) of a task, row-major over all kept dimensions but the innermost.
template <class T>
void run_rows(const CopyTask<T>& task, Index begin, Index end) {
  const int outer = task.kept - 2;
  Index at[CopyTask<T>::max_dims] = {};
  const T* source = task.source;
  T* destination = task.destination;
  Index rest = begin;
  for (int i = outer; i >= 0; --i) {
    at[i] = rest % task.extents[i];
    rest /= task.extents[i];
    source += at[i] * task.source_strides[i];
    destination += at[i] * task.destination_strides[i];
  }
  while (begin < end) {
    const Index rows = std::min(end - begin, task.extents[outer] - at[outer]);
    run_rows_of_block(task, source, destination, rows);
    begin += rows;
    if (begin == end) return;
    source -= at[outer] * task.source_strides[outer];
    destination -= at[outer] * task.destination_strides[outer];
    at[outer] = 0;
    for (int i = outer - 1; i >= 0; --i) {
      source += task.source_strides[i];
      destination += task.destination_strides[i];
      if (++at[i] < task.extents[i]) break;
      source -= task.extents[i] * task.source_strides[i];
      destination -= task.extents[i] * task.destination_strides[i];
      at[i] = 0;
    }
  }
}

// Cells per row of one task, or of a group of tasks that take turns.
template <class T>
Index cells_per_row(const CopyTask<T>* tasks) {
  Index n = 0;
  for (Index t = 0; t < tasks->group; ++t) n += tasks[t].extents[tasks[t].kept - 1];
  return n;
}
template <class T>
Index rows_of(const CopyTask<T>& task) {
  return task.cells / task.extents[task.kept - 1];
}
template <class T>
void run_rows_of_group(const CopyTask<T>* tasks, Index begin, Index end) {
  constexpr Index turn = 128;
  if (tasks->group == 1) return run_rows(*tasks, begin, end);
  for (Index row = begin; row < end; row += turn)
    for (Index t = 0; t < tasks->group; ++t) run_rows(tasks[t], row, std::min(row + turn, end));
}

template <class T>
bool can_take_turns(const CopyTask<T>& a, const CopyTask<T>& b) {
  constexpr std::size_t longest_row = 256;  // bytes; longer rows use enough cells of each page anyway
  const auto is_short = [&](const CopyTask<T>& t) {
    const int inner = t.kept - 1;
    return t.kept == t.total && t.kind != CopyTask<T>::Kind::fill && t.source_strides[inner] == 1 &&
           t.destination_strides[inner] == 1 && static_cast<std::size_t>(t.extents[inner]) * sizeof(T) <= longest_row;
  };
  if (!is_short(a) || !is_short(b) || a.kept != b.kept) return false;
  for (int i = 0; i < a.kept - 1; ++i)
    if (a.extents[i] != b.extents[i] || a.source_strides[i] != b.source_strides[i] ||
        a.destination_strides[i] != b.destination_strides[i])
      return false;
  return true;
}

/// Moves the tasks of one batch that can take turns next to each other, in the order of the first task of each group.
template <class T>
void group(std::vector<CopyTask<T>>& tasks) {
  for (std::size_t first = 0; first < tasks.size();) {
    std::size_t next = first + 1;
    for (std::size_t i = next; i < tasks.size(); ++i) {
      if (!can_take_turns(tasks[first], tasks[i])) continue;
      tasks[i].group = 0;
      std::rotate(tasks.begin() + static_cast<std::ptrdiff_t>(next), tasks.begin() + static_cast<std::ptrdiff_t>(i),
                  tasks.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      ++next;
    }
    tasks[first].group = static_cast<Index>(next - first);
    first = next;
  }
}

// Runs one of `parts` equal shares of the cells of several tasks, rounded to whole rows.
template <class T>
struct HostShare {
  const CopyTask<T>* tasks;
  Index count, cells, parts;

  KOKKOS_FUNCTION void operator()(Index part) const { KOKKOS_IF_ON_HOST((run(part);)) }

  void run(Index part) const {
    if (parts == 1) {
      for (Index t = 0; t < count; t += tasks[t].group) run_rows_of_group(tasks + t, 0, rows_of(tasks[t]));
      return;
    }
    const Index begin = cells / parts * part + std::min(part, cells % parts);
    const Index end = begin + cells / parts + (part < cells % parts ? 1 : 0);
    Index first = 0;
    for (Index t = 0; t < count && first < end; t += tasks[t].group) {
      const Index n = cells_per_row(tasks + t), rows = rows_of(tasks[t]);
      const auto row_at = [&](Index cell) { return std::clamp<Index>((cell - first + n - 1) / n, 0, rows); };
      const Index from = begin <= first ? 0 : row_at(begin), to = row_at(end);
      if (from < to) run_rows_of_group(tasks + t, from, to);
      first += n * rows;
    }
  }
};

template <class T, class Exec>
void launch_on_host(const Exec& exec, const std::string& label, const CopyTask<T>* tasks, Index count, Index cells) {
  constexpr Index worth_a_thread = 4096;
  const Index parts = std::clamp<Index>(cells / worth_a_thread, 1, static_cast<Index>(exec.concurrency()));
  Kokkos::parallel_for(label, Kokkos::RangePolicy<Exec, Kokkos::IndexType<Index>>(exec, 0, parts),
                       HostShare<T>{tasks, count, cells, parts});
}

// --- device: cells ---

/// Makes a plain copy one of wide cells, if rows and addresses allow it.
template <class T>
void widen(CopyTask<T>& task) {
  constexpr Index values = sizeof(WideCell) / sizeof(T);
  const auto is_wide = [](const void* p) { return reinterpret_cast<std::uintptr_t>(p) % sizeof(WideCell) == 0; };
  const int last = task.kept - 1;
  if (values < 2 || sizeof(T) * values != sizeof(WideCell) || task.kind != CopyTask<T>::Kind::assign ||
      task.kept != task.total || !is_wide(task.source) || !is_wide(task.destination) ||
      task.source_strides[last] != 1 || task.destination_strides[last] != 1 || task.extents[last] % values != 0)
    return;
  for (int i = 0; i < last; ++i)
    if (task.source_strides[i] % values != 0 || task.destination_strides[i] % values != 0) return;
  task.extents[last] /= values;
  task.source_strides[last] = task.destination_strides[last] = values;
  task.cells /= values;
  task.wide = true;
}

template <class T>
struct DeviceCell {
  const CopyTask<T>* tasks;
  const Index* first_cells;
  Index count;

  KOKKOS_FUNCTION void operator()(Index cell) const {
    Index lo = 0, hi = count;  // finds the last task whose first cell is ≤ cell
    while (hi - lo > 1) {
      const Index middle = (lo + hi) / 2;
      (first_cells[middle] <= cell ? lo : hi) = middle;
    }
    run_cell(tasks[lo], cell - first_cells[lo]);
  }
};

template <class T>
struct DeviceTask {
  CopyTask<T> task;
  KOKKOS_FUNCTION void operator()(Index cell) const { run_cell(task, cell); }
};

template <class T, class Exec>
void launch_one(const Exec& exec, const std::string& label, CopyTask<T> task) {
  if (task.cells == 0) return;
  if constexpr (is_host_space<Exec>) {
    launch_on_host(exec, label, &task, 1, task.cells);
  } else {
    widen(task);
    Kokkos::parallel_for(label, Kokkos::RangePolicy<Exec, Kokkos::IndexType<Index>>(exec, 0, task.cells),
                         DeviceTask<T>{task});
  }
}

}  // namespace detail

template <class T, class Exec>
StridedCopyList<T, Exec>::StridedCopyList(const Exec& exec, std::string label, const std::vector<Entry>& entries)
    : label_(std::move(label)) {
  std::vector<detail::CopyTask<T>> tasks, batch;
  std::vector<Index> first_cells;
  const auto end_batch = [&] {
    if (batch.empty()) return;
    if constexpr (detail::is_host_space<Exec>) detail::group(batch);
    batches_.push_back({static_cast<Index>(tasks.size()), static_cast<Index>(batch.size()), 0});
    for (const auto& task : batch) {
      first_cells.push_back(batches_.back().cells);
      batches_.back().cells += task.cells;
    }
    tasks.insert(tasks.end(), batch.begin(), batch.end());
    batch.clear();
  };
  int number = 0;
  for (const Entry& entry : entries) {
    auto task = detail::make_task(entry.source, entry.destination, entry.copy, entry.mode);
    if (task.cells == 0) continue;
    task.value = entry.value;
    if constexpr (!detail::is_host_space<Exec>) detail::widen(task);
    if (entry.batch != number) end_batch();
    number = entry.batch;
    batch.push_back(task);
  }
  end_batch();
  if (tasks.empty()) return;
  using Kokkos::view_alloc, Kokkos::WithoutInitializing;
  tasks_ = decltype(tasks_)(view_alloc(exec, WithoutInitializing, label_ + ", tasks"), tasks.size());
  Kokkos::deep_copy(exec, tasks_,
                    Kokkos::View<const detail::CopyTask<T>*, Kokkos::HostSpace>(tasks.data(), tasks.size()));
  if constexpr (!detail::is_host_space<Exec>) {
    first_cells_ =
        decltype(first_cells_)(view_alloc(exec, WithoutInitializing, label_ + ", first cells"), tasks.size());
    Kokkos::deep_copy(exec, first_cells_,
                      Kokkos::View<const Index*, Kokkos::HostSpace>(first_cells.data(), tasks.size()));
  }
  exec.fence("aloni::views::StridedCopyList: the host's lists go out of scope");
}

template <class T, class Exec>
void StridedCopyList<T, Exec>::run(const Exec& exec) const {
  if (batches_.empty()) return;
  if constexpr (detail::is_host_space<Exec>) {
    if (exec.concurrency() == 1) {  // one thread keeps the order of batches without separate kernels
      Index cells = 0;
      for (const Batch& b : batches_) cells += b.cells;
      detail::launch_on_host(exec, label_, tasks_.data(), static_cast<Index>(tasks_.extent(0)), cells);
      return;
    }
  }
  for (const Batch& b : batches_) {
    if constexpr (detail::is_host_space<Exec>)
      detail::launch_on_host(exec, label_, tasks_.data() + b.first_task, b.tasks, b.cells);
    else
      Kokkos::parallel_for(
          label_, Kokkos::RangePolicy<Exec, Kokkos::IndexType<Index>>(exec, 0, b.cells),
          detail::DeviceCell<T>{tasks_.data() + b.first_task, first_cells_.data() + b.first_task, b.tasks});
  }
}

template <class T, class Exec>
void strided_copy(const Exec& exec, const std::string& label, const T* source, T* destination, const StridedCopy& copy,
                  CopyMode mode) {
  detail::launch_one(exec, label, detail::make_task(source, destination, copy, mode));
}

template <class T, class Exec>
void fill(const Exec& exec, const std::string& label, const LocalView<T, typename Exec::memory_space>& view, T value) {
  auto task = detail::make_task<T>(nullptr, view.data(), between(view, view), CopyMode::assign);
  task.value = value;
  detail::launch_one(exec, label, task);
}

#define INSTANTIATE(T, Exec)                                                                               \
  template class StridedCopyList<T, Exec>;                                                                 \
  template void strided_copy(const Exec&, const std::string&, const T*, T*, const StridedCopy&, CopyMode); \
  template void fill(const Exec&, const std::string&, const LocalView<T, Exec::memory_space>&, T);
ALONI_INSTANTIATE_FOR_SPACES(INSTANTIATE)
ALONI_INSTANTIATE_SPACES(INSTANTIATE, std::int32_t)
ALONI_INSTANTIATE_SPACES(INSTANTIATE, std::int64_t)
ALONI_INSTANTIATE_SPACES(INSTANTIATE, comm::bfloat16)
ALONI_INSTANTIATE_SPACES(INSTANTIATE, comm::float16)
#undef INSTANTIATE

}  // namespace aloni::views

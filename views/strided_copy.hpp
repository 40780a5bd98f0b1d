#pragma once
// The one primitive that moves tensor data within a memory space: boxes of up to five dimensions with any strides on
// both sides. Packing, unpacking, redistribution within a rank, mirrored and replicated ghosts, their adjoints,
// layout conversion: all are strided copies.
//
//   strided_copy(exec, "aloni::example: rows", x.data(), y.data(), between(x, y), CopyMode::assign);
//
// What runs again and again is prepared once as a StridedCopyList: many copies, one kernel, no allocation at run
// time.
//
// Strides count elements and may be zero or negative. A zero source stride replicates; a zero destination stride
// sums: each destination cell becomes (assign) or is increased by (add) the sum of its sources, in a fixed order,
// within one work item. Source and destination cells of one copy must not overlap.
#include <aloni/core/bfloat16.hpp>
#include <aloni/core/index.hpp>
#include <aloni/views/local_view.hpp>

#include <Kokkos_Core.hpp>

#include <array>
#include <string>
#include <type_traits>
#include <vector>

namespace aloni::views {

struct StridedCopy {
  Index source_offset = 0, destination_offset = 0;
  std::array<Index, 5> extents{1, 1, 1, 1, 1}, source_strides{}, destination_strides{};
};

enum class CopyMode { assign, add };

/// The copy of all cells of one view to the cells of another with the same extents. Rank 5.
template <class SourceView, class DestinationView>
StridedCopy between(const SourceView& source, const DestinationView& destination) {
  StridedCopy copy;
  for (std::size_t i = 0; i < 5; ++i) {
    copy.extents[i] = static_cast<Index>(source.extent(i));
    copy.source_strides[i] = static_cast<Index>(source.stride(static_cast<int>(i)));
    copy.destination_strides[i] = static_cast<Index>(destination.stride(static_cast<int>(i)));
  }
  return copy;
}

namespace detail {

/// A strided copy in its simplest form: unit extents dropped, dimensions that continue each other merged, the one
/// with the smallest destination stride innermost, summed dimensions after all others.
template <class T>
struct CopyTask {
  enum class Kind { assign, add, fill };

  const T* source = nullptr;
  T* destination = nullptr;
  T value{};  ///< of fill
  Kind kind = Kind::assign;
  int kept = 0, total = 0;  ///< dimensions [0, kept) enumerate destination cells, [kept, total) are summed
  Index cells = 0;          ///< destination cells
  /// This and so many behind it have rows of the same number and distance. Host spaces take turns with them, some rows at a time, because
  /// the two sides of a block lie in the same cache lines, or pages at least. 0: it is in such a group, not the first.
  Index group = 1;
  /// Five that are summed and the two that are always kept.
  static constexpr int max_dims = 7;
  Index extents[max_dims] = {}, source_strides[max_dims] = {}, destination_strides[max_dims] = {};
};

template <class T>
CopyTask<T> make_task(const T* source, T* destination, const StridedCopy& copy, CopyMode mode);

/// A host space runs rows, a device single cells.
template <class Exec>
inline constexpr bool is_host_space = std::is_same_v<typename Exec::memory_space, Kokkos::HostSpace>;

}  // namespace detail

/// Copies prepared once and run as often as wanted, in one kernel per batch. Here and below T is float, double, std::int32_t,
/// std::int64_t or comm::bfloat16, Exec the default execution space or the default host execution space.
template <class T, class Exec>
class StridedCopyList {
 public:
  using memory_space = typename Exec::memory_space;

  struct Entry {
    const T* source = nullptr;  ///< null: the destination cells become `value`, the mode is ignored
    T* destination = nullptr;
    StridedCopy copy;
    CopyMode mode = CopyMode::assign;
    int batch = 0;  ///< batches run one after another; within one no two entries may write the same cell
    T value{};
  };

  StridedCopyList() = default;
  /// Allocates; batches ascending in `entries`. Empty copies are dropped. `label` starts with "aloni::".
  StridedCopyList(const Exec& exec, std::string label, const std::vector<Entry>& entries);

  /// Asynchronous on `exec`. Does nothing when there is nothing to copy.
  void run(const Exec& exec) const;
  bool empty() const { return batches_.empty(); }

 private:
  struct Batch {
    Index first_task = 0, tasks = 0, cells = 0;
  };

  std::string label_;
  std::vector<Batch> batches_;
  Kokkos::View<detail::CopyTask<T>*, memory_space> tasks_;
  Kokkos::View<Index*, memory_space> first_cells_;  ///< of each task within its batch
};

/// Asynchronous on `exec`; allocates nothing itself. @pre both pointers are valid on `exec` for all cells that the
/// copy names
template <class T, class Exec>
void strided_copy(const Exec& exec, const std::string& label, const T* source, T* destination, const StridedCopy& copy,
                  CopyMode mode = CopyMode::assign);

/// Asynchronous on `exec`; allocates nothing itself.
template <class T, class Exec>
void fill(const Exec& exec, const std::string& label, const LocalView<T, typename Exec::memory_space>& view, T value);

}  // namespace aloni::views

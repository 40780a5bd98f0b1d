#pragma once
// Copies boxes of up to five dimensions within a memory space, with any strides on both sides. All data movement within
// a rank is a strided copy: packing, unpacking, redistribution, mirrored and replicated ghosts, adjoints, layout
// conversion.
//
//   strided_copy(exec, "aloni::example: rows", x.data(), y.data(), between(x, y), CopyMode::assign);
//
// Copies that run many times are prepared once as a StridedCopyList: many copies, one kernel, no allocation in run().
//
// Strides count elements and may be zero or negative. A zero source stride replicates. A zero destination stride sums:
// each destination cell becomes (assign) or is increased by (add) the sum of its source cells. One work item computes
// the sum, in a fixed order. Source and destination cells of one copy must not overlap.
#include <aloni/core/bfloat16.hpp>
#include <aloni/core/float16.hpp>
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

/// The copy of all cells of one view to another view. @pre both have rank 5 and equal extents
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

/// A strided copy in normal form: without dimensions of extent 1, contiguous dimensions merged, the smallest
/// destination stride innermost, summed dimensions after all others.
template <class T>
struct CopyTask {
  enum class Kind { assign, add, fill };

  const T* source = nullptr;
  T* destination = nullptr;
  T value{};  ///< for Kind::fill
  Kind kind = Kind::assign;
  int kept = 0, total = 0;  ///< dimensions [0, kept) enumerate destination cells, [kept, total) are summed
  Index cells = 0;          ///< number of destination cells
  /// Number of tasks in the group that starts with this task; 0: in a group, but not its first task. The tasks of a
  /// group have equal row counts and row distances. Host spaces alternate between them every few rows, because the two
  /// sides of a block lie in the same cache lines or at least pages.
  Index group = 1;
  bool wide = false;  ///< a cell is 16 bytes of neighbouring values
  /// Five summed dimensions and the two kept ones that every task has.
  static constexpr int max_dims = 7;
  Index extents[max_dims] = {}, source_strides[max_dims] = {}, destination_strides[max_dims] = {};
};

template <class T>
CopyTask<T> make_task(const T* source, T* destination, const StridedCopy& copy, CopyMode mode);

/// Host spaces copy row by row, devices cell by cell.
template <class Exec>
inline constexpr bool is_host_space = std::is_same_v<typename Exec::memory_space, Kokkos::HostSpace>;

}  // namespace detail

/// Copies that are prepared once and run many times, with one kernel per batch. Here and below T is float, double,
/// std::int32_t, std::int64_t, comm::bfloat16 or comm::float16; Exec is the default execution space or the default host
/// execution space.
template <class T, class Exec>
class StridedCopyList {
 public:
  using memory_space = typename Exec::memory_space;

  struct Entry {
    const T* source = nullptr;  ///< null: the destination cells become `value`; `mode` is ignored
    T* destination = nullptr;
    StridedCopy copy;
    CopyMode mode = CopyMode::assign;
    int batch = 0;  ///< batches run one after another; entries of one batch must not write the same cell
    T value{};
  };

  StridedCopyList() = default;
  /// Allocates memory and waits for `exec`. Drops empty copies.
  /// @pre `entries` are ascending by batch; `label` starts with "aloni::"
  StridedCopyList(const Exec& exec, std::string label, const std::vector<Entry>& entries);

  /// Asynchronous on `exec`. An empty list launches no kernel.
  void run(const Exec& exec) const;
  bool empty() const { return batches_.empty(); }

 private:
  struct Batch {
    Index first_task = 0, tasks = 0, cells = 0;
  };

  std::string label_;
  std::vector<Batch> batches_;
  Kokkos::View<detail::CopyTask<T>*, memory_space> tasks_;
  Kokkos::View<Index*, memory_space> first_cells_;  ///< number of each task's first cell within its batch
};

/// One strided copy. Asynchronous on `exec`; allocates no memory.
/// @pre both pointers are valid on `exec` for all cells of the copy
template <class T, class Exec>
void strided_copy(const Exec& exec, const std::string& label, const T* source, T* destination, const StridedCopy& copy,
                  CopyMode mode = CopyMode::assign);

/// Sets all cells of the view to `value`. Asynchronous on `exec`; allocates no memory.
template <class T, class Exec>
void fill(const Exec& exec, const std::string& label, const LocalView<T, typename Exec::memory_space>& view, T value);

}  // namespace aloni::views

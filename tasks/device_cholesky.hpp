#pragma once
// Tile Cholesky factorisation on a device: A = L Lᵀ. The tasks are those of cholesky() (cholesky.hpp). Each worker
// submits its tasks to a stream of its own and waits for their end, so kernels of several workers run side by side.
//
//   TileMatrix<double> a(TileDistribution(n, n, 1024), TilePart::lower);
//   a.fill(element);
//   const DeviceReport report = cholesky_on_device(a, {.workers = 4});     // a holds L
//   report.swaps.bytes();                                                  // copied between host and device
//
// Use cholesky() instead for matrices of a few thousand rows. Tiles of 1,000 rows and more keep a device busy; the 256
// rows of a host core do not.
//
// A matrix may be larger than the memory of the device. It is in host memory, and the device has slots for some of its
// tiles (memory_limit.hpp). TileCache chooses them as for limits of host memory. Two further streams copy tiles, one in
// each direction. They bring the tiles of the next tasks while kernels run. The least limit is three tiles.
//
// Matrix products of tiles with b rows take 2 b³ operations, and a tile has b² elements. So the copies stay behind the
// kernels if each loaded tile serves enough products. The order of the tasks sees to that (task_order.hpp). If copies
// take most of the time, larger tiles help, as long as some dozens fit.
#include <aloni/tasks/memory_limit.hpp>
#include <aloni/tasks/runtime.hpp>
#include <aloni/tasks/tile_matrix.hpp>

#include <cstddef>
#include <optional>

namespace aloni::tasks {

/// Bytes of the device that stay free if no limit is given: the libraries load their kernels there.
inline constexpr Index device_reserve = Index{512} << 20;

struct DeviceReport {
  RunReport run = {};                          ///< of the tasks; with copies only if not all tiles fit
  double copy_seconds = 0;                     ///< before and after the tasks; 0 if copies ran beside the tasks
  std::size_t device_bytes = 0;                ///< memory of the tiles on the device
  SwapCounts swaps = {};                       ///< copies of tiles to the device and back
  Index compulsory_bytes = 0;                  ///< the least that any run copies
  Index slots = 0;                             ///< tiles on the device
  std::optional<views::TileShape> block = {};  ///< of the order, in tiles; none if all tiles fit
};

/// Replaces the lower triangle of `a` by L, on the device that Kokkos uses. The result differs from that of cholesky()
/// in its last bits, because the libraries of the device add in other orders. The limit does not change the bits.
/// If all tiles fit into the limit, they are copied to the device before the tasks and back after them. Otherwise the
/// memory of `a` is page-locked during the run, and tiles are copied while tasks run.
/// options.workers: host threads, each with a stream; 4 keep a device busy while one waits.
/// limit.bytes: of the device, for tiles; 0: the free bytes less device_reserve. The libraries take memory besides.
/// @pre as many rows as columns, on one rank; rows of a tile are a multiple of its columns; options.owns and
/// options.worker_scope are empty; limit.bytes, limit.most_tasks ≥ 0. Throws InvalidArgument.
/// Throws InvalidArgument for a limit below the least, which it names: 3 tiles, each in multiples of 256 bytes.
/// Throws Unsupported in builds and processes without a device, and for a matrix on several ranks. Also if the free
/// memory of the device is smaller than the limit. Without a limit: smaller than the least limit plus the reserve.
/// Throws FactorisationError as cholesky(), and Error for an error of the device. After an error `a` is unchanged if
/// all tiles fit and the copies to the host had not begun. Otherwise it holds a part of the work. Not collective.
template <class T>
DeviceReport cholesky_on_device(TileMatrix<T>& a, const RuntimeOptions& options = {}, const MemoryLimit& limit = {});

}  // namespace aloni::tasks

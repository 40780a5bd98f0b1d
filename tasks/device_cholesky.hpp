#pragma once
// Tile Cholesky factorisation on a device: A = L Lᵀ. The tasks are those of cholesky() (cholesky.hpp). Each worker
// submits its tasks to a stream of its own and waits for their end, so kernels of several workers run side by side.
//
//   TileMatrix<double> a(TileDistribution(n, n, 1024), TilePart::lower);
//   a.fill(element);
//   const DeviceReport report = cholesky_on_device(a, {.workers = 4});     // a holds L
//
// Use cholesky() instead if the matrix does not fit into the memory of the device. Tiles of 1,000 rows and more keep a
// device busy; the 256 rows of a host core do not.
#include <aloni/tasks/runtime.hpp>
#include <aloni/tasks/tile_matrix.hpp>

#include <cstddef>

namespace aloni::tasks {

struct DeviceReport {
  RunReport run;                 ///< of the tasks, without copies
  double copy_seconds = 0;       ///< of all tiles to the device and back
  std::size_t device_bytes = 0;  ///< memory of the tiles on the device
};

/// Replaces the lower triangle of `a` by L. All tiles are copied to the device that Kokkos uses, and back at the end.
/// The result differs from that of cholesky() in its last bits, because the libraries of the device add in other
/// orders. options.workers: host threads, each with a stream; 4 keep a device busy while one waits.
/// @pre as many rows as columns, on one rank; options.owns and options.worker_scope are empty. Throws InvalidArgument.
/// Throws Unsupported in builds and processes without a device, for a matrix on several ranks, and if the tiles do not
/// fit into the free memory of the device. Throws FactorisationError as cholesky(), and Error for an error of the
/// device. After an error `a` is unchanged, if the copies to the host had not begun. Not collective.
template <class T>
DeviceReport cholesky_on_device(TileMatrix<T>& a, const RuntimeOptions& options = {});

}  // namespace aloni::tasks

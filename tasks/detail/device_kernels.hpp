#pragma once
// The kernels of tasks on tiles in the memory of a device, and the copies of tiles. The device is the present one of
// the calling thread, which Kokkos chooses for the thread that starts it. cuda_kernels.cpp calls cuBLAS and cuSOLVER.
// Builds without a device have no_cuda_kernels.cpp, where device_refusal() gives the reason.
#include <aloni/tasks/detail/tile_kernels.hpp>

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

namespace aloni::tasks::detail {

/// Why this process cannot compute on a device. None if it can.
std::optional<std::string> device_refusal();

/// Free bytes in the memory of the device.
std::size_t free_device_bytes(const char* operation);

struct FreeDevice {
  void operator()(std::byte* data) const;
};
using DeviceBytes = std::unique_ptr<std::byte, FreeDevice>;
/// Memory of the device, aligned to 256 bytes. Throws Error. @pre bytes > 0
DeviceBytes allocate_device(const char* operation, std::size_t bytes);

/// Keeps host memory page-locked. Copies between it and the device then run beside the host and beside kernels.
class PageLock {
 public:
  /// Memory that is page-locked already stays so. Throws Error. @pre bytes > 0; the memory outlives the object
  PageLock(const char* operation, void* data, std::size_t bytes);
  ~PageLock();
  PageLock(const PageLock&) = delete;
  PageLock& operator=(const PageLock&) = delete;

 private:
  void* data_;  ///< null if another owner has locked it
};

/// A point in the work of a queue, for which other queues can wait.
class DeviceEvent {
 public:
  /// Throws Error.
  explicit DeviceEvent(const char* operation);
  DeviceEvent(DeviceEvent&&) noexcept;
  ~DeviceEvent();

 private:
  friend class DeviceQueue;
  struct Handle;
  std::unique_ptr<Handle> handle_;
};

/// The work of a queue. Handles of libraries take memory of the device.
enum class QueueWork { copies, copies_and_kernels };

/// A stream of the device, with the handles of its libraries. One thread uses it at a time.
/// Asynchronous: work runs in its order; it has ended after finish(). The functions throw Error, also for an error of
/// earlier work of the device.
class DeviceQueue {
 public:
  /// `operation`: for error texts; it outlives the object.
  explicit DeviceQueue(const char* operation, QueueWork work = QueueWork::copies_and_kernels);
  /// Waits for all work.
  ~DeviceQueue();
  DeviceQueue(const DeviceQueue&) = delete;
  DeviceQueue& operator=(const DeviceQueue&) = delete;

  /// Makes the device of this queue the present one of the calling thread. Before its first call on another thread.
  void use_on_this_thread() const;
  void copy_to_device(void* device, const void* host, std::size_t bytes);
  void copy_to_host(void* host, const void* device, std::size_t bytes);
  /// Sets the event to the end of the work so far. Earlier waits for the event keep their meaning.
  void record(DeviceEvent& event);
  /// Later work of this queue waits on the device until the event has come. The host goes on. An event that was never
  /// recorded has come.
  void wait(const DeviceEvent& event);
  /// Waits for all work.
  void finish();

  // As the functions in tile_kernels.hpp. Blocks are in the memory of the device. @pre copies_and_kernels

  /// Allocates what potrf() needs for so many rows, with such a stride, so that it allocates nothing.
  template <class T>
  void prepare_potrf(int rows, int stride);

  /// Waits, because it looks at the pivots. Throws FactorisationError.
  template <class T>
  void potrf(TileBlock<T> a, const views::Tile& tile, Index first_column);
  template <class T>
  void trsm(char side, char triangle, char op, char diagonal, ConstBlock<T> a, TileBlock<T> b);
  template <class T>
  void subtract_square(ConstBlock<T> a, TileBlock<T> c);
  template <class T>
  void subtract_product(char op_a, ConstBlock<T> a, char op_b, ConstBlock<T> b, TileBlock<T> c);

 private:
  struct Handles;
  /// Elements of the workspace for potrf of the block, which is allocated.
  template <class T>
  int potrf_elements(TileBlock<T> a);

  std::unique_ptr<Handles> handles_;
};

}  // namespace aloni::tasks::detail

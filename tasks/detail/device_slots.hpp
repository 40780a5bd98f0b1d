#pragma once
// DeviceSlots: slots of a LimitedRun in the memory of a device. The tiles without a slot are in host memory. Copies run
// on two streams of their own, one for each direction, beside the kernels of the workers.
//
//   DeviceSlots slots("cholesky_on_device", [&](const TileId& t) { … });   // the tile in page-locked host memory
//   LimitedRun run("cholesky_on_device", rule, bytes, slots, limit, workers);
//   … in the body of a task, before its kernels:
//   slots.await(queue, run.number(tile));
//
// No thread waits for a copy. A copy counts as done once it is submitted, and later work waits for it on the device:
//   - A kernel waits for the copies of its tiles: await().
//   - A load waits for the last copy of its tile, which may still write the host memory that it reads.
//   - A load waits for the last copy of the tile that had the slot before, which may still read the slot.
// Each tile has one event, that of its last copy. An event that is set again later makes a waiter wait too long, but
// never forever: all copies for which it waits were submitted before.
//
// Each task reads its tiles before it writes them. A task that does not (Access::write) would need a wait for the slot.
//
// The other orders need no event. A task ends when its kernels have ended, because its worker waits for them. So a copy
// that follows a task of the tile, or of the tile that had the slot before, follows its kernels.
#include <aloni/tasks/detail/device_kernels.hpp>
#include <aloni/tasks/detail/slot_memory.hpp>

#include <functional>
#include <vector>

namespace aloni::tasks::detail {

class DeviceSlots final : public SlotMemory {
 public:
  /// `host`: the elements of a tile in host memory; page-locked, or copies wait. `operation` outlives the object.
  /// Throws Error.
  DeviceSlots(const char* operation, std::function<std::byte*(const TileId&)> host);
  /// Waits for all copies.
  ~DeviceSlots() override;

  Index alignment() const override { return 256; }  // that of allocate_device()
  /// Memory of the device.
  std::size_t bytes() const { return bytes_; }
  /// Throws Error.
  std::byte* allocate(Index tiles, Index slots, std::size_t bytes) override;
  /// Throw Error, also for an error of earlier work of the device.
  void load(const TileMove& move) override;
  void write_back(const TileMove& move) override;
  void finish() override;

  /// Later work of `queue` waits for the last copy of the tile. @pre a running task on `queue` uses the tile. Any
  /// thread. Throws Error.
  void await(DeviceQueue& queue, std::int32_t number) const { queue.wait(copied_[static_cast<std::size_t>(number)]); }

 private:
  const char* operation_;
  std::function<std::byte*(const TileId&)> host_;
  DeviceQueue in_, out_;
  DeviceBytes memory_;
  std::size_t bytes_ = 0;
  std::vector<DeviceEvent> copied_;      // by tile: its last copy
  std::vector<std::int32_t> last_tile_;  // by slot: the tile that was copied last; -1: none
};

}  // namespace aloni::tasks::detail

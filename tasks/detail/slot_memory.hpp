#pragma once
// SlotMemory: the memory of the slots of a LimitedRun, and the copies of tiles into it and out of it.
//   HostSlots     host memory; a TileStore has the tiles without a slot
//   DeviceSlots   memory of a device; host memory has the tiles without a slot (device_slots.hpp)
#include <aloni/core/huge_pages.hpp>
#include <aloni/tasks/memory_limit.hpp>
#include <aloni/tasks/tile_store.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace aloni::tasks::detail {

/// A tile and its slot.
struct TileMove {
  TileId tile;
  std::int32_t number = 0;        ///< of the tile, below that of allocate()
  std::int32_t slot = 0;          ///< below that of allocate()
  std::span<std::byte> contents;  ///< in the slot
};

/// One thread at a time calls the functions.
class SlotMemory {
 public:
  virtual ~SlotMemory() = default;
  SlotMemory(const SlotMemory&) = delete;
  SlotMemory& operator=(const SlotMemory&) = delete;

  /// Of each slot, in bytes.
  virtual Index alignment() const = 0;
  /// Memory for `slots` slots and `bytes` bytes in all, aligned. Once.
  virtual std::byte* allocate(Index tiles, Index slots, std::size_t bytes) = 0;

  // Asynchronous: a copy may still run when its function returns. Later copies of the tile, and those that use the
  // slot, then wait for it. How tasks wait is the matter of the class. finish() waits for all copies.

  /// Copies the tile into its slot.
  virtual void load(const TileMove& move) = 0;
  /// Copies the tile out of its slot. @pre the tasks that wrote it have ended
  virtual void write_back(const TileMove& move) = 0;
  virtual void finish() = 0;

 protected:
  SlotMemory() = default;
};

/// Copies have ended when their functions return.
class HostSlots final : public SlotMemory {
 public:
  /// `store` outlives the object.
  explicit HostSlots(TileStore& store) : store_(store) {}

  Index alignment() const override { return slot_alignment; }
  /// Throws std::bad_alloc.
  std::byte* allocate(Index, Index, std::size_t bytes) override {
    const std::size_t aligned = array_alignment(bytes, slot_alignment);
    memory_ = {static_cast<std::byte*>(array_memory()->allocate(bytes, aligned)),
               [bytes, aligned](std::byte* p) { array_memory()->deallocate(p, bytes, aligned); }};
    return memory_.get();
  }
  /// Throw as TileStore.
  void load(const TileMove& move) override { store_.read(move.tile, move.contents); }
  void write_back(const TileMove& move) override { store_.write(move.tile, move.contents); }
  void finish() override {}

 private:
  TileStore& store_;
  std::shared_ptr<std::byte> memory_;
};

}  // namespace aloni::tasks::detail

#pragma once
// Device memory that the other ranks of a node can open. A pool of segments, as SharedHeap is on the host.
//
//   DeviceHeap heap(device, shared_heap);
//   void* p = heap.allocate(bytes);                            // aligned to 256 bytes, not initialized
//   auto where = heap.address_of(p, bytes);                    // travels in a message
//   auto opened = open_device_memory(device, *where, count);   // on the other rank; closed with the last copy
//
// When the owner may free a segment. An owner must not free memory that another process has open: the result is
// undefined (cudaIpcOpenMemHandle). So each segment has a word in shared host memory: a generation, and the number of
// processes that have the segment open.
//   - A reader first adds itself to the number, by an atomic exchange that fails if the generation is another one. Only
//     then it opens the memory. It closes the memory first, and subtracts itself afterwards.
//   - The owner frees an empty segment only if it can exchange (generation, 0) for (generation + 1, 0). From then on
//     no reader can add itself.
// So no reader has a freed segment open, in whatever order the ranks release their objects. No rank waits, and no call
// is collective. Until the last reader closes a segment, the owner keeps it, and uses it for its own later memory. A
// heap that ends leaves such segments to the process, which tries again whenever a heap of it takes or frees memory. A
// reader that died never subtracts itself. Its family is poisoned then, and a poisoned heap frees nothing more: the
// driver does so when the process ends.
//
// Freed memory becomes other memory of the owner at once. Kernels of other ranks may then no longer read it; so a
// transfer makes its stream wait for its readers. deallocate() waits for all work of this process on the device, as
// cudaFree does.
#include <aloni/core/comm/device/device_sharing.hpp>
#include <aloni/core/comm/shared_heap.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <memory_resource>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace aloni::comm::detail {

/// The word of a segment, in host memory that the ranks of a node share.
class SegmentUsers {
 public:
  /// Generation 0, no users: of new shared memory, which is zero.
  static SegmentUsers& at(std::byte* shared) { return *reinterpret_cast<SegmentUsers*>(shared); }

  std::uint32_t generation() const { return static_cast<std::uint32_t>(word_.load() >> 32); }
  std::uint32_t users() const { return static_cast<std::uint32_t>(word_.load()); }
  /// One user more. False if the segment of this generation no longer exists.
  bool enter(std::uint32_t generation) noexcept;
  void leave() noexcept { word_.fetch_sub(1); }
  /// Ends the generation if it has no users.
  bool retire() noexcept;

 private:
  std::atomic<std::uint64_t> word_;
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "processes share it");
};

/// Allocates from segments of device memory. Thread-safe. allocate() throws InvalidArgument above max_bytes and for an
/// alignment above that of segments, CommunicationError if the device has no memory.
class DeviceHeap final : public std::pmr::memory_resource {
 public:
  static constexpr std::size_t alignment = 256;
  /// CUDA shares whole blocks of this size, so segments are multiples of it (CUDA C++ Programming Guide, Interprocess
  /// Communication).
  static constexpr std::size_t granularity = std::size_t{2} << 20;
  /// Small blocks share segments of this size. Larger ones have a segment of their own.
  static constexpr std::size_t segment_bytes = std::size_t{32} << 20;

  struct Address {
    DeviceHandle handle{};
    std::uint64_t offset = 0;  ///< bytes from the start of the segment
    std::uint32_t generation = 0;
    SharedAddress users{};  ///< the word of the segment
  };

  /// `words`: has the words of the segments.
  DeviceHeap(std::shared_ptr<DeviceSharing> device, std::shared_ptr<SharedHeap> words);
  DeviceHeap(const DeviceHeap&) = delete;
  DeviceHeap& operator=(const DeviceHeap&) = delete;
  ~DeviceHeap() override;

  /// None if this heap does not contain the whole range, or no other rank can open it.
  std::optional<Address> address_of(const void* data, std::size_t bytes);
  /// After a failure: frees no segment and no block from now on, and waits for no device.
  void abandon() noexcept;
  /// Device memory of this heap.
  std::size_t bytes() const;

 private:
  using Ranges = std::map<std::size_t, std::size_t>;  // offset → bytes

  struct Segment {
    std::byte* data = nullptr;
    std::size_t bytes = 0;
    std::byte* word = nullptr;
    std::optional<DeviceHandle> handle = {};
    bool exported = false;  // whether `handle` has been asked for
    Ranges used = {}, free = {};
  };
  /// Segments of heaps that have ended, which other processes have open.
  struct Left {
    std::shared_ptr<DeviceSharing> device;
    std::shared_ptr<SharedHeap> words;
    std::byte *data, *word;
  };
  struct LeftBehind {
    std::mutex mutex;
    std::vector<Left> segments;
  };
  static LeftBehind& left_behind();
  static void free_left_behind() noexcept;

  void* do_allocate(std::size_t bytes, std::size_t align) override;
  void do_deallocate(void* p, std::size_t bytes, std::size_t align) override;
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override { return this == &other; }

  static void* take(Segment& segment, std::size_t wanted);
  Segment& add_segment(std::size_t bytes);
  void free_empty_segments(bool all) noexcept;
  bool is_abandoned() const;
  [[noreturn]] void fail(std::size_t bytes) const;

  mutable std::mutex mutex_;
  std::shared_ptr<DeviceSharing> device_;
  std::shared_ptr<SharedHeap> words_;
  std::vector<Segment> segments_;
  std::vector<std::byte*> free_words_;
  bool abandoned_ = false;
};

/// Opens memory of another process. `users`: the word of its segment, mapped in this process. Null if the segment does
/// not exist any more, or this process cannot reach it. The last copy of the pointer closes it.
std::shared_ptr<std::byte> open_device_memory(const std::shared_ptr<DeviceSharing>& device,
                                              const DeviceHeap::Address& address, std::shared_ptr<std::byte> users);

}  // namespace aloni::comm::detail

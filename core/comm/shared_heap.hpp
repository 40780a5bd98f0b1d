#pragma once
// Memory that the other ranks of a node can read and write directly. Each rank creates its segments (memfd) alone.
// Another rank opens a segment through the owner's /proc entry when it first needs it.
//
//   SharedHeap heap;
//   void* p = heap.allocate(bytes);                            // aligned to 64 bytes, not initialized
//   SharedAddress where = heap.address_of(p, bytes);           // travels in a message
//   std::byte* same = peer_memory.at(where, bytes);            // on the other rank
//
// Why not MPI's shared windows: creating one is collective, so allocating a View would be a collective operation. Open
// MPI also keeps them in named files. A memfd has no name and vanishes with its last process, even after kill -9. It is
// not limited by the size of /dev/shm (64 MB in many containers). It needs ranks that may open each other's /proc
// entries: one user, one PID namespace. Other ranks communicate through MPI.
#include <aloni/core/comm/transport.hpp>

#include <cstddef>
#include <map>
#include <memory_resource>
#include <mutex>
#include <vector>

namespace aloni::comm {

/// One mapped memfd. Movable.
class SharedSegment {
 public:
  /// Creates a segment of `bytes` zeros, with mode 0600, closed on exec. Throws CommunicationError.
  explicit SharedSegment(std::size_t bytes);
  /// Maps a segment of another process; `bytes` 0: its whole size. Throws CommunicationError if the process does not
  /// exist, access is denied, or the segment is smaller.
  SharedSegment(int process, int descriptor, std::size_t bytes);
  SharedSegment(SharedSegment&& other) noexcept;
  SharedSegment& operator=(SharedSegment&& other) noexcept;
  ~SharedSegment();

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  /// File descriptor; -1 for a segment of another process.
  int descriptor() const { return descriptor_; }
  /// Replaces the shared memory by private memory at the same addresses, and copies the ranges `used` (offset → bytes).
  /// Later writes of other processes are not visible.
  void detach(const std::map<std::size_t, std::size_t>& used) noexcept;

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  int descriptor_ = -1;
};

/// Allocates from shared segments. Thread-safe.
class SharedHeap final : public std::pmr::memory_resource {
 public:
  static constexpr std::size_t alignment = 64;

  /// Address for other ranks; its descriptor is -1 if this heap does not contain the whole range.
  SharedAddress address_of(const void* data, std::size_t bytes) const;
  std::size_t bytes_in_use() const;
  /// After a failure, when other ranks may still write: detaches all segments (SharedSegment::detach). Afterwards
  /// address_of() returns descriptor -1 for all memory, and allocate() throws std::bad_alloc.
  void detach() noexcept;

 private:
  struct Segment {
    SharedSegment memory;
    std::map<std::size_t, std::size_t> used, free;  // offset → bytes
  };

  void* do_allocate(std::size_t bytes, std::size_t align) override;
  void do_deallocate(void* p, std::size_t bytes, std::size_t align) override;
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override { return this == &other; }

  mutable std::mutex mutex_;
  std::vector<Segment> segments_;  // never shrinks: other ranks may have mapped them
  bool detached_ = false;
};

/// The heap of another process. Maps each segment at its first use.
class PeerMemory {
 public:
  PeerMemory() = default;
  explicit PeerMemory(int process) : process_(process) {}
  /// Address of that memory in this process. Throws CommunicationError if the process no longer exists, or the range is
  /// outside the segment.
  std::byte* at(const SharedAddress& address, std::size_t bytes);

 private:
  int process_ = -1;
  std::vector<std::byte*> bases_;  // indexed by segment
  std::vector<std::size_t> sizes_;
  std::vector<SharedSegment> segments_;
};

}  // namespace aloni::comm

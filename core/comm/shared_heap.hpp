#pragma once
// Memory that the other ranks of a node can read and write directly: anonymous segments (memfd), made by each rank alone and
// opened by the others through the owner's process handle when they first need them.
//
//   SharedHeap heap;
//   void* p = heap.allocate(bytes);                            // aligned to 64 bytes, not initialized
//   SharedAddress where = heap.address_of(p, bytes);           // travels in a message
//   std::byte* same = peer_memory.at(where, bytes);            // on the other rank
//
// Why not MPI's shared windows: those are made by all ranks together, so that allocating one View would be a collective
// operation, and Open MPI keeps them in files under a name. A memfd has no name, vanishes with its last process, also after
// kill -9, and isn't limited by the size of /dev/shm (64 MB in many containers). It needs ranks that may look into each
// other's /proc entry: of one user, in one PID namespace. Others talk through MPI.
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
  /// Makes one of `bytes` zeros, mode 0600, closed on exec. Throws CommunicationError.
  explicit SharedSegment(std::size_t bytes);
  /// Maps another process's. Throws CommunicationError: no such process, not permitted, not a segment of that size.
  SharedSegment(int process, int descriptor, std::size_t bytes);
  SharedSegment(SharedSegment&& other) noexcept;
  SharedSegment& operator=(SharedSegment&& other) noexcept;
  ~SharedSegment();

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  /// -1 for another process's.
  int descriptor() const { return descriptor_; }
  /// From here on the same addresses hold private memory with the same values in `used`: what others still write isn't seen.
  void detach(const std::map<std::size_t, std::size_t>& used) noexcept;

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  int descriptor_ = -1;
};

/// Any thread may allocate and deallocate.
class SharedHeap final : public std::pmr::memory_resource {
 public:
  static constexpr std::size_t alignment = 64;

  /// descriptor -1 when the range isn't (whole) in this heap.
  SharedAddress address_of(const void* data, std::size_t bytes) const;
  std::size_t bytes_in_use() const;
  /// After a failure, when others may still write: see SharedSegment::detach. address_of finds nothing any more.
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
  std::vector<Segment> segments_;  // never shrinks: others may have mapped them
  bool detached_ = false;
};

/// The segments of another process's heap, mapped as they are met.
class PeerMemory {
 public:
  PeerMemory() = default;
  explicit PeerMemory(int process) : process_(process) {}
  /// Throws CommunicationError when the process doesn't exist any more.
  std::byte* at(const SharedAddress& address, std::size_t bytes);

 private:
  int process_ = -1;
  std::vector<std::byte*> bases_;  // by number of segment
  std::vector<std::size_t> sizes_;
  std::vector<SharedSegment> segments_;
};

}  // namespace aloni::comm

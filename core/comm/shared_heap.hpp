#pragma once
// Memory that the other ranks of a node can read and write directly. Each rank creates its memory (memfd) alone.
// Another rank opens it through the owner's /proc entry when it first needs it.
//
//   SharedHeap heap;
//   void* p = heap.allocate(bytes);                            // aligned to 64 bytes, not initialized
//   SharedAddress where = heap.address_of(p, bytes);           // travels in a message
//   std::byte* same = peer_memory.at(where, bytes);            // on the other rank
//
// A heap is one file, which only grows. Segments are ranges of this file that its owner has mapped. An empty segment
// goes back to the system: its pages at once, its mapping too, its range of the file for later segments. The other
// ranks learn this from addresses: an address contains the number and the range of its segment. A known number with
// another range means that the old segment is gone; the rank then drops its mapping. A rank therefore never keeps more
// mappings of a heap than the heap had segments at one time. A mapping that is out of date shows the file, as all
// mappings do: no rank can read the memory of another segment instead.
//
// Why one file and not one for each segment: a process may open few files, 1024 by default. And if a descriptor is
// closed and used again, it leads other ranks to a wrong file.
//
// Why not MPI's shared windows: creating one is collective, so allocating a View would be a collective operation. Open
// MPI also keeps them in named files. A memfd has no name and vanishes with its last process, even after kill -9. It is
// not limited by the size of /dev/shm (64 MB in many containers). It needs ranks that may open each other's /proc
// entries: one user, one PID namespace. Other ranks communicate through MPI.
#include <aloni/core/comm/transport.hpp>

#include <cstddef>
#include <map>
#include <memory>
#include <memory_resource>
#include <mutex>
#include <string>
#include <vector>

namespace aloni::comm {

/// An anonymous file (memfd) of this process, with mode 0600, closed on exec. Movable.
class SharedFile {
 public:
  SharedFile() = default;
  SharedFile(SharedFile&& other) noexcept;
  SharedFile& operator=(SharedFile&& other) noexcept;
  ~SharedFile();

  /// File descriptor; -1 before the first grow().
  int descriptor() const { return descriptor_; }
  /// Creates the file at the first call. Afterwards it has at least `bytes` bytes; new ones are zero. Throws
  /// CommunicationError.
  void grow(std::size_t bytes);
  /// Returns the pages of a range to the system. The range then contains zeros. Nothing in a child of the creator.
  void give_back(std::size_t begin, std::size_t bytes) noexcept;

 private:
  int descriptor_ = -1, process_ = -1;
  std::size_t bytes_ = 0;
};

/// A mapped range of a memfd. Movable. Children of this process (fork) do not have the mapping.
class SharedSegment {
 public:
  /// Creates a file of `bytes` zeros and maps it. Throws CommunicationError.
  explicit SharedSegment(std::size_t bytes);
  /// Memory of this process only, with descriptor -1. Throws CommunicationError.
  static SharedSegment not_shared(std::size_t bytes);
  /// Why this process cannot create segments: a sandbox without memfd, a limit of file sizes. Empty if it can.
  static std::string why_not_available();
  /// Maps a range of `file`, which must outlive this object. Throws CommunicationError.
  SharedSegment(const SharedFile& file, std::size_t begin, std::size_t bytes);
  /// Maps a range of a file of another process. Throws PeerMemoryLost if the process or its file does not exist,
  /// CommunicationError if access is denied or the file is smaller.
  SharedSegment(int process, int descriptor, std::size_t bytes, std::size_t begin = 0);
  SharedSegment(SharedSegment&& other) noexcept;
  SharedSegment& operator=(SharedSegment&& other) noexcept;
  ~SharedSegment();

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  /// File descriptor of the file that the first constructor created; otherwise -1.
  int descriptor() const { return file_.descriptor(); }
  /// Replaces the shared memory by private memory at the same addresses, and copies the ranges `used` (offset → bytes).
  /// Later writes of other processes are not visible. Without memory for a copy the segment stays shared.
  void detach(const std::map<std::size_t, std::size_t>& used) noexcept;

 private:
  SharedSegment() = default;

  SharedFile file_;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// Allocates from shared segments. Thread-safe. allocate() throws InvalidArgument above max_bytes and for an alignment
/// that is no power of two, CommunicationError if the system refuses the memory.
class SharedHeap final : public std::pmr::memory_resource {
 public:
  static constexpr std::size_t alignment = 64;

  /// `shared` false: the heap takes memory of this process only, for systems that refuse shared memory. address_of()
  /// then returns descriptor -1.
  explicit SharedHeap(bool shared = true) : shared_(shared) {}

  /// Address for other ranks; its descriptor is -1 if this heap does not contain the whole range.
  SharedAddress address_of(const void* data, std::size_t bytes) const;
  std::size_t bytes_in_use() const;
  /// After a failure, when other ranks may still write: detaches all segments (SharedSegment::detach). Afterwards
  /// address_of() returns descriptor -1 for all memory, and allocate() throws std::bad_alloc.
  void detach() noexcept;

 private:
  using Ranges = std::map<std::size_t, std::size_t>;  // offset → bytes

  struct Segment {
    SharedSegment memory;
    std::size_t begin;  // within the file
    Ranges used, free;
  };

  void* do_allocate(std::size_t bytes, std::size_t align) override;
  void do_deallocate(void* p, std::size_t bytes, std::size_t align) override;
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override { return this == &other; }

  static void* take(Segment& segment, std::size_t wanted, std::size_t unit);
  Segment& add_segment(std::size_t bytes);
  void remove_if_empty(std::unique_ptr<Segment>& segment);

  mutable std::mutex mutex_;
  SharedFile file_;
  std::size_t file_bytes_ = 0;
  Ranges gaps_;                                     // ranges of the file without a segment
  std::vector<std::unique_ptr<Segment>> segments_;  // null: a number for the next segment
  bool detached_ = false;
  bool shared_;
};

/// The heap of another process. Maps each segment at its first use.
class PeerMemory {
 public:
  PeerMemory() = default;
  explicit PeerMemory(int process) : process_(process) {}
  /// Address of that memory in this process. Valid until the owner frees the memory. Throws PeerMemoryLost if the
  /// process no longer exists, CommunicationError if the range is outside the segment.
  std::byte* at(const SharedAddress& address, std::size_t bytes);
  /// As at(), but the memory stays mapped until the last copy of the pointer is gone. After the owner has freed the
  /// memory, its contents are undefined.
  std::shared_ptr<std::byte> open(const SharedAddress& address, std::size_t bytes);

 private:
  struct Mapping {
    std::byte* data = nullptr;
    std::uint64_t begin = 0, size = 0;  // of the segment within the file of its owner
    std::shared_ptr<SharedSegment> segment;
  };

  int process_ = -1;
  std::vector<Mapping> mappings_;  // indexed by segment
};

}  // namespace aloni::comm

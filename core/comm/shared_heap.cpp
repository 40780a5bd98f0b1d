#include <aloni/core/comm/shared_heap.hpp>

#include <aloni/core/error.hpp>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <string>
#include <system_error>
#include <utility>

namespace aloni::comm {

namespace {

constexpr std::size_t page = 4096;
constexpr std::size_t segment_bytes = std::size_t{64} << 20;
// When a block of at least this size is freed, its pages return to the system.
constexpr std::size_t returned_bytes = std::size_t{1} << 20;

constexpr std::size_t round_up(std::size_t n, std::size_t to) { return (n + to - 1) / to * to; }

[[noreturn]] void fail(const char* what, const std::string& value, const char* expectation) {
  const std::string reason = std::generic_category().message(errno);
  throw CommunicationError("aloni::comm::SharedSegment", what, value + ": " + reason, expectation);
}

std::byte* map(int descriptor, std::size_t bytes) {
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (p == MAP_FAILED) return nullptr;
  // Works if the system allows huge pages for shared memory: shmem_enabled "advise" or "within_size".
  madvise(p, bytes, MADV_HUGEPAGE);
  return static_cast<std::byte*>(p);
}

}  // namespace

SharedSegment::SharedSegment(std::size_t bytes) : bytes_(bytes) {
  descriptor_ = memfd_create("aloni", MFD_CLOEXEC);
  if (descriptor_ < 0) fail("memfd_create", std::to_string(bytes) + " bytes", "an anonymous file");
  fchmod(descriptor_, 0600);
  if (ftruncate(descriptor_, static_cast<off_t>(bytes)) != 0 || !(data_ = map(descriptor_, bytes))) {
    const int code = errno;
    close(descriptor_);
    errno = code;
    fail("mmap", std::to_string(bytes) + " bytes", "shared memory of that size");
  }
}

SharedSegment::SharedSegment(int process, int descriptor, std::size_t bytes) : bytes_(bytes) {
  const std::string path = "/proc/" + std::to_string(process) + "/fd/" + std::to_string(descriptor);
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) fail("open", path, "memory of a running process of the same user and PID namespace");
  struct stat status {};
  if (fstat(file, &status) != 0 || (bytes_ == 0 && (bytes_ = static_cast<std::size_t>(status.st_size)) == 0) ||
      static_cast<std::size_t>(status.st_size) < bytes_ || !(data_ = map(file, bytes_))) {
    const int code = errno;
    close(file);
    errno = code;
    fail("mmap", path, "a segment of the size that its owner announced");
  }
  close(file);  // the mapping remains valid
}

SharedSegment::SharedSegment(SharedSegment&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      bytes_(other.bytes_),
      descriptor_(std::exchange(other.descriptor_, -1)) {}

SharedSegment& SharedSegment::operator=(SharedSegment&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

SharedSegment::~SharedSegment() {
  if (data_) munmap(data_, bytes_);
  if (descriptor_ >= 0) close(descriptor_);
}

void SharedSegment::detach(const std::map<std::size_t, std::size_t>& used) noexcept {
  void* copy = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (copy == MAP_FAILED) return;
  for (const auto& [offset, bytes] : used) std::memcpy(static_cast<std::byte*>(copy) + offset, data_ + offset, bytes);
  if (mremap(copy, bytes_, bytes_, MREMAP_MAYMOVE | MREMAP_FIXED, data_) == MAP_FAILED) munmap(copy, bytes_);
}

void* SharedHeap::do_allocate(std::size_t bytes, std::size_t align) {
  const std::size_t unit = std::max({align, alignment, bytes >= page ? page : alignment});
  const std::size_t wanted = round_up(std::max<std::size_t>(bytes, 1), unit);
  const std::lock_guard lock(mutex_);
  if (detached_) throw std::bad_alloc();  // other ranks could not reach the memory
  const auto take = [&](Segment& s) -> void* {
    for (auto it = s.free.begin(); it != s.free.end(); ++it) {
      const auto [offset, size] = *it;
      const std::size_t first = round_up(offset, unit);
      if (first + wanted > offset + size) continue;
      s.free.erase(it);
      if (first > offset) s.free[offset] = first - offset;
      if (first + wanted < offset + size) s.free[first + wanted] = offset + size - first - wanted;
      s.used[first] = wanted;
      return s.memory.data() + first;
    }
    return nullptr;
  };
  for (Segment& s : segments_) {
    if (void* p = take(s)) return p;
  }
  const std::size_t size = std::max(segment_bytes, round_up(wanted, page));
  segments_.push_back({SharedSegment(size), {}, {{0, size}}});
  return take(segments_.back());
}

void SharedHeap::do_deallocate(void* p, std::size_t, std::size_t) {
  const std::lock_guard lock(mutex_);
  const auto* const address = static_cast<std::byte*>(p);
  for (Segment& s : segments_) {
    if (address < s.memory.data() || address >= s.memory.data() + s.memory.bytes()) continue;
    const auto block = s.used.find(static_cast<std::size_t>(address - s.memory.data()));
    if (block == s.used.end()) return;
    auto [offset, size] = *block;
    s.used.erase(block);
    if (size >= returned_bytes && !detached_) {
      fallocate(s.memory.descriptor(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                static_cast<off_t>(size));
    }
    auto next = s.free.lower_bound(offset);
    if (next != s.free.end() && next->first == offset + size) {
      size += next->second;
      next = s.free.erase(next);
    }
    if (next != s.free.begin()) {
      const auto before = std::prev(next);
      if (before->first + before->second == offset) {
        before->second += size;
        return;
      }
    }
    s.free[offset] = size;
    return;
  }
}

SharedAddress SharedHeap::address_of(const void* data, std::size_t bytes) const {
  const std::lock_guard lock(mutex_);
  if (detached_) return {};
  const auto* const address = static_cast<const std::byte*>(data);
  for (std::size_t i = 0; i < segments_.size(); ++i) {
    const SharedSegment& s = segments_[i].memory;
    if (address >= s.data() && address + bytes <= s.data() + s.bytes()) {
      return {static_cast<std::uint32_t>(i), s.descriptor(), static_cast<std::uint64_t>(address - s.data())};
    }
  }
  return {};
}

std::size_t SharedHeap::bytes_in_use() const {
  const std::lock_guard lock(mutex_);
  std::size_t sum = 0;
  for (const Segment& s : segments_) {
    for (const auto& [offset, bytes] : s.used) sum += bytes;
  }
  return sum;
}

void SharedHeap::detach() noexcept {
  const std::lock_guard lock(mutex_);
  if (std::exchange(detached_, true)) return;
  for (Segment& s : segments_) s.memory.detach(s.used);
}

std::byte* PeerMemory::at(const SharedAddress& address, std::size_t bytes) {
  const std::size_t i = address.segment;
  if (i >= bases_.size()) {
    bases_.resize(i + 1);
    sizes_.resize(i + 1);
  }
  if (!bases_[i]) {
    segments_.emplace_back(process_, address.descriptor, 0);
    bases_[i] = segments_.back().data();
    sizes_[i] = segments_.back().bytes();
  }
  if (address.offset > sizes_[i] || bytes > sizes_[i] - address.offset) {
    throw CommunicationError("aloni::comm::PeerMemory", "address of another rank's memory",
                             std::to_string(bytes) + " bytes from offset " + std::to_string(address.offset),
                             "a range within its segment of " + std::to_string(sizes_[i]) + " bytes");
  }
  return bases_[i] + address.offset;
}

}  // namespace aloni::comm

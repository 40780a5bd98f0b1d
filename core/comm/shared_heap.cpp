#include <aloni/core/comm/shared_heap.hpp>

#include <aloni/core/error.hpp>
#include <aloni/core/huge_pages.hpp>
#include <aloni/core/index.hpp>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <limits>
#include <new>
#include <string>
#include <system_error>
#include <utility>

namespace aloni::comm {

namespace {

constexpr std::size_t page = 4096;
constexpr std::size_t segment_bytes = std::size_t{64} << 20;
// Segments begin and end at multiples of a huge page within the file: only then can the system use huge pages.
constexpr std::size_t huge_page = huge_page_bytes;
// When a block of at least this size is freed, its pages return to the system.
constexpr std::size_t returned_bytes = std::size_t{1} << 20;

constexpr std::size_t round_up(std::size_t n, std::size_t to) { return (n + to - 1) / to * to; }

std::string reason() { return std::generic_category().message(errno); }

[[noreturn]] void fail(const char* what, const std::string& value, const char* expectation) {
  throw CommunicationError("aloni::comm::SharedSegment", what, value + ": " + reason(), expectation);
}

/// An address for a mapping. From a huge page on it begins with one, as segments do within the file: only then can huge
/// pages of the file be mapped. Null if the system refuses.
void* reserve(std::size_t bytes) {
  const std::size_t spare = bytes >= huge_page ? huge_page : 0;
  void* const p = mmap(nullptr, bytes + spare, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED || spare == 0) return p == MAP_FAILED ? nullptr : p;
  auto* const begin = static_cast<std::byte*>(p);
  const std::size_t before = (huge_page - reinterpret_cast<std::uintptr_t>(p) % huge_page) % huge_page;
  const std::size_t used = round_up(bytes, page);
  if (before > 0) munmap(begin, before);
  if (const std::size_t end = round_up(bytes + spare, page); before + used < end)
    munmap(begin + before + used, end - before - used);
  return begin + before;
}

std::byte* map(int descriptor, std::size_t begin, std::size_t bytes) {
  void* const place = reserve(bytes);
  if (!place) return nullptr;
  void* const p =
      mmap(place, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, descriptor, static_cast<off_t>(begin));
  if (p == MAP_FAILED) {
    munmap(place, bytes);
    return nullptr;
  }
  // Works if the system allows huge pages for shared memory: shmem_enabled "advise" or "within_size".
  use_huge_pages(p, bytes);
  // A child of this process is no rank: it must not write this memory, nor keep it after the end of this process.
  madvise(p, bytes, MADV_DONTFORK);
  return static_cast<std::byte*>(p);
}

/// RLIMIT_FSIZE. A larger file would end the process by SIGXFSZ.
std::size_t file_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
    return std::numeric_limits<std::size_t>::max();
  return limit.rlim_cur;
}

/// Adds a range to disjoint ranges (offset → bytes) and merges it with its neighbours.
void add_range(std::map<std::size_t, std::size_t>& ranges, std::size_t offset, std::size_t bytes) {
  auto next = ranges.lower_bound(offset);
  if (next != ranges.end() && next->first == offset + bytes) {
    bytes += next->second;
    next = ranges.erase(next);
  }
  if (next != ranges.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      before->second += bytes;
      return;
    }
  }
  ranges[offset] = bytes;
}

}  // namespace

SharedFile::SharedFile(SharedFile&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      process_(other.process_),
      bytes_(std::exchange(other.bytes_, 0)) {}

SharedFile& SharedFile::operator=(SharedFile&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(process_, other.process_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

SharedFile::~SharedFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

void SharedFile::grow(std::size_t bytes) {
  if (descriptor_ < 0) {
    descriptor_ = memfd_create("aloni", MFD_CLOEXEC);
    if (descriptor_ < 0) fail("memfd_create", std::to_string(bytes) + " bytes", "an anonymous file");
    fchmod(descriptor_, 0600);
    process_ = getpid();
  }
  if (bytes <= bytes_) return;
  if (bytes > file_limit()) {
    errno = EFBIG;
    fail("ulimit -f", std::to_string(bytes) + " bytes", "a larger limit for the size of files");
  }
  if (ftruncate(descriptor_, static_cast<off_t>(bytes)) != 0)
    fail("ftruncate", std::to_string(bytes) + " bytes", "shared memory of that size");
  bytes_ = bytes;
}

void SharedFile::give_back(std::size_t begin, std::size_t bytes) noexcept {
  if (descriptor_ < 0 || getpid() != process_) return;
  fallocate(descriptor_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(begin),
            static_cast<off_t>(bytes));
}

SharedSegment SharedSegment::not_shared(std::size_t bytes) {
  SharedSegment segment;
  void* const p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) fail("mmap", std::to_string(bytes) + " bytes", "memory of that size");
  segment.data_ = static_cast<std::byte*>(p);
  segment.bytes_ = bytes;
  return segment;
}

std::string SharedSegment::why_not_available() {
  if (const std::size_t limit = file_limit(); limit < segment_bytes)
    return "files are limited to " + std::to_string(limit) + " bytes, ulimit -f";
  const int descriptor = memfd_create("aloni", MFD_CLOEXEC);
  if (descriptor < 0) return "memfd_create: " + std::generic_category().message(errno);
  close(descriptor);
  return "";
}

SharedSegment::SharedSegment(std::size_t bytes) : bytes_(bytes) {
  file_.grow(bytes);
  if (!(data_ = map(file_.descriptor(), 0, bytes)))
    fail("mmap", std::to_string(bytes) + " bytes", "shared memory of that size");
}

SharedSegment::SharedSegment(const SharedFile& file, std::size_t begin, std::size_t bytes)
    : data_(map(file.descriptor(), begin, bytes)), bytes_(bytes) {
  if (!data_) fail("mmap", std::to_string(bytes) + " bytes", "shared memory of that size");
}

SharedSegment::SharedSegment(int process, int descriptor, std::size_t bytes, std::size_t begin) : bytes_(bytes) {
  const std::string path = "/proc/" + std::to_string(process) + "/fd/" + std::to_string(descriptor);
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) {
    const char* const expected = "memory of a running process of the same user and PID namespace";
    if (errno != ENOENT && errno != ESRCH) fail("open", path, expected);
    throw PeerMemoryLost("aloni::comm::SharedSegment", "open", path + ": " + reason(), expected);
  }
  struct stat status {};
  if (fstat(file, &status) != 0 || static_cast<std::size_t>(status.st_size) < begin ||
      static_cast<std::size_t>(status.st_size) - begin < bytes || !(data_ = map(file, begin, bytes))) {
    const int code = errno;
    close(file);
    errno = code;
    fail("mmap", path, "a segment of the size that its owner announced");
  }
  close(file);  // the mapping remains valid
}

SharedSegment::SharedSegment(SharedSegment&& other) noexcept
    : file_(std::move(other.file_)), data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}

SharedSegment& SharedSegment::operator=(SharedSegment&& other) noexcept {
  std::swap(file_, other.file_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

SharedSegment::~SharedSegment() {
  if (data_) munmap(data_, bytes_);
}

void SharedSegment::detach(const std::map<std::size_t, std::size_t>& used) noexcept {
  void* copy = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (copy == MAP_FAILED) return;
  for (const auto& [offset, bytes] : used) std::memcpy(static_cast<std::byte*>(copy) + offset, data_ + offset, bytes);
  // Not mremap(): UCX replaces that function by one of four arguments, which moves the copy to address 0.
  const long moved = syscall(SYS_mremap, copy, bytes_, bytes_, MREMAP_MAYMOVE | MREMAP_FIXED, data_);
  if (moved == -1) munmap(copy, bytes_);
}

void* SharedHeap::take(Segment& s, std::size_t wanted, std::size_t unit) {
  const auto base = reinterpret_cast<std::uintptr_t>(s.memory.data());  // aligned to pages only
  for (auto it = s.free.begin(); it != s.free.end(); ++it) {
    const auto [offset, size] = *it;
    const std::size_t first = round_up(base + offset, unit) - base;
    if (first + wanted > offset + size) continue;
    s.free.erase(it);
    if (first > offset) s.free[offset] = first - offset;
    if (first + wanted < offset + size) s.free[first + wanted] = offset + size - first - wanted;
    s.used[first] = wanted;
    return s.memory.data() + first;
  }
  return nullptr;
}

SharedHeap::Segment& SharedHeap::add_segment(std::size_t bytes) {
  const auto gap = std::ranges::find_if(gaps_, [&](const auto& range) { return range.second >= bytes; });
  const std::size_t begin = gap == gaps_.end() ? file_bytes_ : gap->first;
  if (gap == gaps_.end() && shared_) file_.grow(begin + bytes);
  auto segment = std::make_unique<Segment>(Segment{
      shared_ ? SharedSegment(file_, begin, bytes) : SharedSegment::not_shared(bytes), begin, {}, {{0, bytes}}});
  const auto number = std::ranges::find_if(segments_, [](const auto& s) { return !s; });
  auto& place = number == segments_.end() ? segments_.emplace_back() : *number;
  if (gap == gaps_.end()) {
    file_bytes_ = begin + bytes;
  } else {
    const std::size_t rest = gap->second - bytes;
    gaps_.erase(gap);
    if (rest > 0) gaps_[begin + bytes] = rest;
  }
  place = std::move(segment);
  return *place;
}

void* SharedHeap::do_allocate(std::size_t bytes, std::size_t align) {
  constexpr const char* operation = "aloni::comm::SharedHeap::allocate";
  constexpr auto most = static_cast<std::size_t>(max_bytes);  // below it, none of the sums here overflows
  if (bytes > most) throw InvalidArgument(operation, "bytes", std::to_string(bytes), "at most " + std::to_string(most));
  if (!std::has_single_bit(align) || align > most)
    throw InvalidArgument(operation, "alignment", std::to_string(align), "a power of two, at most 2^61");
  const std::size_t unit = std::max({align, alignment, bytes >= page ? page : alignment});
  const std::size_t wanted = round_up(std::max<std::size_t>(bytes, 1), unit);
  const std::lock_guard lock(mutex_);
  if (detached_) throw std::bad_alloc();  // other ranks could not reach the memory
  for (const auto& s : segments_) {
    if (void* const p = s ? take(*s, wanted, unit) : nullptr) return p;
  }
  const std::size_t with_alignment = wanted + (unit > page ? unit : 0);
  return take(add_segment(std::max(segment_bytes, round_up(with_alignment, huge_page))), wanted, unit);
}

void SharedHeap::do_deallocate(void* p, std::size_t, std::size_t) {
  const std::lock_guard lock(mutex_);
  const auto* const address = static_cast<std::byte*>(p);
  for (auto& s : segments_) {
    if (!s || address < s->memory.data() || address >= s->memory.data() + s->memory.bytes()) continue;
    const auto block = s->used.find(static_cast<std::size_t>(address - s->memory.data()));
    if (block == s->used.end()) return;
    const auto [offset, size] = *block;
    s->used.erase(block);
    add_range(s->free, offset, size);
    if (detached_) return;  // other ranks may still write
    if (size >= returned_bytes) file_.give_back(s->begin + offset, size);
    return remove_if_empty(s);
  }
}

void SharedHeap::remove_if_empty(std::unique_ptr<Segment>& segment) {
  if (!segment->used.empty()) return;
  const std::size_t bytes = segment->memory.bytes();
  // One small segment stays: otherwise a program with few small blocks would map it again and again.
  const bool another =
      std::ranges::any_of(segments_, [&](const auto& s) { return s && s != segment && s->used.empty(); });
  if (bytes == segment_bytes && !another) return;
  const std::size_t begin = segment->begin;
  segment.reset();
  file_.give_back(begin, bytes);
  add_range(gaps_, begin, bytes);
}

SharedAddress SharedHeap::address_of(const void* data, std::size_t bytes) const {
  const std::lock_guard lock(mutex_);
  if (detached_) return {};
  const auto* const address = static_cast<const std::byte*>(data);
  for (std::size_t i = 0; i < segments_.size(); ++i) {
    if (!segments_[i]) continue;
    const SharedSegment& s = segments_[i]->memory;
    const auto offset = static_cast<std::size_t>(address - s.data());  // beyond the segment if the address is below it
    if (offset <= s.bytes() && bytes <= s.bytes() - offset)
      return {static_cast<std::uint32_t>(i), file_.descriptor(), segments_[i]->begin, s.bytes(), offset};
  }
  return {};
}

std::size_t SharedHeap::bytes_in_use() const {
  const std::lock_guard lock(mutex_);
  std::size_t sum = 0;
  for (const auto& s : segments_) {
    if (!s) continue;
    for (const auto& [offset, bytes] : s->used) sum += bytes;
  }
  return sum;
}

void SharedHeap::detach() noexcept {
  const std::lock_guard lock(mutex_);
  if (std::exchange(detached_, true)) return;
  for (const auto& s : segments_) {
    if (s) s->memory.detach(s->used);
  }
}

std::byte* PeerMemory::at(const SharedAddress& address, std::size_t bytes) {
  if (address.segment >= mappings_.size()) mappings_.resize(address.segment + std::size_t{1});
  Mapping& m = mappings_[address.segment];
  if (!m.segment || m.begin != address.begin || m.size != address.size) {
    m = {};  // its segment is gone
    m.segment = std::make_shared<SharedSegment>(process_, address.descriptor, address.size, address.begin);
    m.data = m.segment->data();
    m.begin = address.begin;
    m.size = address.size;
  }
  if (address.offset > m.size || bytes > m.size - address.offset) {
    throw CommunicationError("aloni::comm::PeerMemory", "address of another rank's memory",
                             std::to_string(bytes) + " bytes from offset " + std::to_string(address.offset),
                             "a range within its segment of " + std::to_string(m.size) + " bytes");
  }
  return m.data + address.offset;
}

std::shared_ptr<std::byte> PeerMemory::open(const SharedAddress& address, std::size_t bytes) {
  std::byte* const p = at(address, bytes);
  return {mappings_[address.segment].segment, p};
}

}  // namespace aloni::comm

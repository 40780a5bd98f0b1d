#include <aloni/core/comm/device/device_heap.hpp>

#include <aloni/core/error.hpp>
#include <aloni/core/index.hpp>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

namespace aloni::comm::detail {

namespace {

constexpr std::size_t up_to_multiple(std::size_t n, std::size_t of) { return (n + of - 1) / of * of; }
constexpr std::size_t word_bytes = 64;  // a cache line for each word

}  // namespace

bool SegmentUsers::enter(std::uint32_t generation) noexcept {
  std::uint64_t word = word_.load();
  do {
    if (static_cast<std::uint32_t>(word >> 32) != generation) return false;
  } while (!word_.compare_exchange_weak(word, word + 1));
  return true;
}

bool SegmentUsers::retire() noexcept {
  std::uint64_t word = word_.load() & ~std::uint64_t{0xffffffff};
  return word_.compare_exchange_strong(word, word + (std::uint64_t{1} << 32));
}

DeviceHeap::DeviceHeap(std::shared_ptr<DeviceSharing> device, std::shared_ptr<SharedHeap> words)
    : device_(std::move(device)), words_(std::move(words)) {}

// Views may outlive Kokkos and the device: free() ignores errors.
DeviceHeap::~DeviceHeap() {
  const std::lock_guard lock(mutex_);
  if (abandoned_) return;
  free_empty_segments(true);
  if (!segments_.empty()) {
    LeftBehind& left = left_behind();
    const std::lock_guard lock_of_all(left.mutex);
    for (const Segment& s : segments_) left.segments.push_back({device_, words_, s.data, s.word});
  }
  for (std::byte* const word : free_words_) words_->deallocate(word, word_bytes, word_bytes);
}

DeviceHeap::LeftBehind& DeviceHeap::left_behind() {
  static auto* const left = new LeftBehind;  // outlives all heaps
  return *left;
}

void DeviceHeap::free_left_behind() noexcept {
  LeftBehind& left_segments = left_behind();
  const std::lock_guard lock(left_segments.mutex);
  std::erase_if(left_segments.segments, [](const Left& left) {
    if (!SegmentUsers::at(left.word).retire()) return false;
    left.device->free(left.data);
    return true;
  });
}

void* DeviceHeap::take(Segment& s, std::size_t wanted) {
  for (auto it = s.free.begin(); it != s.free.end(); ++it) {
    const auto [offset, size] = *it;
    if (wanted > size) continue;
    s.free.erase(it);
    if (wanted < size) s.free[offset + wanted] = size - wanted;
    s.used[offset] = wanted;
    return s.data + offset;
  }
  return nullptr;
}

DeviceHeap::Segment& DeviceHeap::add_segment(std::size_t bytes) {
  std::byte* data = device_->allocate(bytes);
  if (!data) {
    free_empty_segments(true);
    data = device_->allocate(bytes);
  }
  if (!data) fail(bytes);
  Segment segment{.data = data, .bytes = bytes, .free = {{0, bytes}}};
  if (free_words_.empty()) {
    segment.word = static_cast<std::byte*>(words_->allocate(word_bytes, word_bytes));
    std::memset(segment.word, 0, word_bytes);
  } else {
    segment.word = free_words_.back();
    free_words_.pop_back();
  }
  return segments_.emplace_back(std::move(segment));
}

/// Keeps one empty segment of the usual size, unless `all`.
void DeviceHeap::free_empty_segments(bool all) noexcept {
  if (abandoned_) return;
  bool kept = all;
  std::erase_if(segments_, [&](const Segment& s) {
    if (!s.used.empty()) return false;
    if (!kept && s.bytes == segment_bytes) {
      kept = true;
      return false;
    }
    if (!SegmentUsers::at(s.word).retire()) return false;
    device_->free(s.data);
    free_words_.push_back(s.word);
    return true;
  });
  free_left_behind();
}

void DeviceHeap::fail(std::size_t bytes) const {
  std::size_t open_elsewhere = 0;
  for (const Segment& s : segments_)
    if (s.used.empty() && SegmentUsers::at(s.word).users() > 0) open_elsewhere += s.bytes;
  std::string expectation = "that much memory on the device";
  if (open_elsewhere > 0) {
    expectation += "; " + std::to_string(open_elsewhere) +
                   " bytes are free here, but open on other ranks: release the transfers and networks there too";
  }
  throw CommunicationError("aloni::comm::DeviceHeap::allocate", "memory", std::to_string(bytes) + " bytes",
                           expectation);
}

void* DeviceHeap::do_allocate(std::size_t bytes, std::size_t align) {
  constexpr const char* operation = "aloni::comm::DeviceHeap::allocate";
  constexpr auto most = static_cast<std::size_t>(max_bytes);  // below it, no sum here overflows
  if (bytes > most) throw InvalidArgument(operation, "bytes", std::to_string(bytes), "at most " + std::to_string(most));
  if (align > alignment)
    throw InvalidArgument(operation, "alignment", std::to_string(align), "at most " + std::to_string(alignment));
  const std::size_t wanted = up_to_multiple(std::max<std::size_t>(bytes, 1), alignment);
  const std::lock_guard lock(mutex_);
  const bool large = wanted > segment_bytes / 2;
  for (Segment& s : segments_) {
    if (large && (!s.used.empty() || s.bytes > 2 * wanted)) continue;  // it would keep the segment of small blocks
    if (void* const p = take(s, wanted)) return p;
  }
  free_left_behind();
  return take(add_segment(large ? up_to_multiple(wanted, granularity) : segment_bytes), wanted);
}

void DeviceHeap::do_deallocate(void* p, std::size_t, std::size_t) {
  if (is_abandoned()) return;  // the device may wait for a rank that has failed
  device_->synchronise();
  const std::lock_guard lock(mutex_);
  const auto* const address = static_cast<std::byte*>(p);
  for (Segment& s : segments_) {
    if (address < s.data || address >= s.data + s.bytes) continue;
    const auto block = s.used.find(static_cast<std::size_t>(address - s.data));
    if (block == s.used.end()) return;
    const auto offset = block->first;
    std::size_t size = block->second;
    s.used.erase(block);
    auto next = s.free.lower_bound(offset);
    if (next != s.free.end() && next->first == offset + size) {
      size += next->second;
      next = s.free.erase(next);
    }
    if (next != s.free.begin() && std::prev(next)->first + std::prev(next)->second == offset) {
      std::prev(next)->second += size;
    } else {
      s.free[offset] = size;
    }
    return free_empty_segments(false);
  }
}

std::optional<DeviceHeap::Address> DeviceHeap::address_of(const void* data, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (abandoned_) return {};
  const auto* const address = static_cast<const std::byte*>(data);
  for (Segment& s : segments_) {
    if (address < s.data || address >= s.data + s.bytes) continue;
    const auto offset = static_cast<std::size_t>(address - s.data);
    if (bytes > s.bytes - offset) return {};
    if (!std::exchange(s.exported, true)) s.handle = device_->handle_of(s.data);
    const SharedAddress users = words_->address_of(s.word, word_bytes);
    if (!s.handle || users.descriptor < 0) return {};
    return Address{*s.handle, offset, SegmentUsers::at(s.word).generation(), users};
  }
  return {};
}

void DeviceHeap::abandon() noexcept {
  const std::lock_guard lock(mutex_);
  abandoned_ = true;
}

bool DeviceHeap::is_abandoned() const {
  const std::lock_guard lock(mutex_);
  return abandoned_;
}

std::size_t DeviceHeap::bytes() const {
  const std::lock_guard lock(mutex_);
  std::size_t sum = 0;
  for (const Segment& s : segments_) sum += s.bytes;
  return sum;
}

std::shared_ptr<std::byte> open_device_memory(const std::shared_ptr<DeviceSharing>& device,
                                              const DeviceHeap::Address& address, std::shared_ptr<std::byte> users) {
  // A segment is opened once in this process, also if it contains several tensors.
  static std::mutex mutex;
  static auto* const opened = new std::map<std::pair<DeviceSharing*, DeviceHandle>, std::weak_ptr<std::byte>>;
  const std::lock_guard lock(mutex);
  std::erase_if(*opened, [](const auto& entry) { return entry.second.expired(); });
  auto& known = (*opened)[{device.get(), address.handle}];
  std::shared_ptr<std::byte> base = known.lock();
  if (!base) {
    SegmentUsers& word = SegmentUsers::at(users.get());
    if (!word.enter(address.generation)) return nullptr;
    std::byte* const data = device->open(address.handle);
    if (!data) {
      word.leave();
      return nullptr;
    }
    base = std::shared_ptr<std::byte>(data, [device, users = std::move(users)](std::byte* p) {
      device->synchronise();  // kernels of this process may still read
      device->close(p);
      SegmentUsers::at(users.get()).leave();
    });
    known = base;
  }
  return {base, base.get() + address.offset};
}

}  // namespace aloni::comm::detail

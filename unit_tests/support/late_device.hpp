#pragma once
// A device made of host memory that does its work late. It shares memory and events between the ranks of a node as CUDA
// does, so that direct reading by events runs without a device.
//
//   const auto device = std::make_shared<LateDevice>(LateDevice::Options{.seed = 7});
//   comm::detail::set_device(comm, device);                  // on all ranks
//   device->submit(nullptr, [=] { … });                      // runs later, on the thread of the device
//   device->synchronise();
//
// All streams are one queue. Its thread waits a random time before each piece of work, and the host before each record.
// So a missing event, and a message before its record, give wrong numbers. As on a device, await() stands for the last
// record() before its call. The device counts what an owner must not do: free memory that another process has open.
#include <aloni/core/comm/device/device_sharing.hpp>
#include <aloni/core/comm/shared_heap.hpp>

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>

namespace aloni::test {

class LateDevice final : public comm::detail::DeviceSharing {
 public:
  using Handle = comm::detail::DeviceHandle;

  struct Options {
    std::uint64_t seed = 0;
    std::chrono::microseconds longest_delay{100};  ///< before each piece of work; the shortest is 0
    std::size_t memory = std::size_t{1} << 30;     ///< bytes
    bool shares_memory = true, shares_events = true, opens_events = true;
    int ignored_event = -1;  ///< the await() of this event does nothing; events count from 0 on each rank
  };

  explicit LateDevice(const Options& options) : options_(options), random_(options.seed) {
    worker_ = std::thread([this] { work(); });
  }
  ~LateDevice() override {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    worker_.join();
  }

  /// How often this process freed memory that another one had open.
  int freed_while_open() const { return freed_while_open_; }
  /// Memory of this process that exists.
  std::size_t bytes() const { return bytes_; }
  /// How many kernels of this process have run.
  int kernels() const { return kernels_; }

  std::byte* allocate(std::size_t bytes) override {
    if (bytes_ + bytes > options_.memory) return nullptr;
    auto segment = std::make_unique<comm::SharedSegment>(page + bytes);
    auto* const head = new (segment->data()) Head;
    head->number = ++allocations_;
    std::byte* const data = segment->data() + page;
    bytes_ += bytes;
    owned_[data] = {std::move(segment), bytes};
    return data;
  }
  void free(std::byte* data) noexcept override {
    if (head_of(data).users > 0) ++freed_while_open_;
    const auto found = owned_.find(data);
    bytes_ -= found->second.second;
    owned_.erase(found);
  }
  std::optional<Handle> handle_of(std::byte* data) override {
    if (!options_.shares_memory) return {};
    const auto& [segment, bytes] = owned_.at(data);
    return pack({getpid(), segment->descriptor(), page + bytes, head_of(data).number});
  }
  std::byte* open(const Handle& handle) override {
    const Name name = unpack(handle);
    if (name.process == getpid()) return nullptr;  // as CUDA
    try {
      auto segment = std::make_unique<comm::SharedSegment>(name.process, name.descriptor, name.bytes);
      std::byte* const data = segment->data() + page;
      if (head_of(data).number != name.number) return nullptr;  // freed, and its descriptor is in use again
      ++head_of(data).users;
      const std::lock_guard lock(opened_mutex_);
      opened_memory_[data] = std::move(segment);
      return data;
    } catch (const std::exception&) {
      return nullptr;
    }
  }
  void close(std::byte* data) noexcept override {
    --head_of(data).users;
    const std::lock_guard lock(opened_mutex_);
    opened_memory_.erase(data);
  }

  std::string description() override { return "late device " + std::to_string(options_.seed); }
  void synchronise() noexcept override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return queue_.empty() && !busy_; });
  }
  bool is_complete(void*) override {
    const std::lock_guard lock(mutex_);
    return queue_.empty() && !busy_;
  }
  bool defers() const override { return true; }
  void submit(void*, std::function<void()> kernels) override { push({std::move(kernels), nullptr, 0}); }

 private:
  static constexpr std::size_t page = 4096;

  struct Head {
    std::atomic<int> users{0};
    std::uint64_t number = 0;
  };
  struct Slot {
    std::atomic<std::uint64_t> recorded{0}, reached{0};
  };
  struct Name {
    int process = 0, descriptor = -1;
    std::uint64_t bytes = 0, number = 0;
  };
  struct Operation {
    std::function<void()> kernels;
    Slot* slot;            ///< null: kernels
    std::uint64_t number;  ///< of the record
    bool is_record = false;
  };

  class Event final : public comm::detail::DeviceEvent {
   public:
    Event(LateDevice& device, Slot& slot, int number, const Handle& handle)
        : device_(device), slot_(slot), number_(number), handle_(handle) {}
    Handle handle() const override { return handle_; }
    void record(void*) override {
      device_.delay_host();  // a message that is sent before the record arrives before it
      device_.push({{}, &slot_, ++slot_.recorded, true});
    }
    void await(void*) override {
      if (number_ != device_.options_.ignored_event) device_.push({{}, &slot_, slot_.recorded.load()});
    }

   private:
    LateDevice& device_;
    Slot& slot_;
    int number_;
    Handle handle_;
  };

  std::unique_ptr<comm::detail::DeviceEvent> make_event() override {
    if (!options_.shares_events) return nullptr;
    if (!slots_) slots_ = std::make_unique<comm::SharedSegment>(max_events * sizeof(Slot));
    auto* const slot = new (slots_->data() + static_cast<std::size_t>(events_) * sizeof(Slot)) Slot;
    const Handle handle = pack({getpid(), slots_->descriptor(), 0, static_cast<std::uint64_t>(events_)});
    return std::make_unique<Event>(*this, *slot, events_++, handle);
  }
  std::unique_ptr<comm::detail::DeviceEvent> open_event(const Handle& handle) override {
    if (!options_.opens_events) return nullptr;
    const Name name = unpack(handle);
    auto& slots = opened_slots_[name.process];
    try {
      if (!slots)
        slots = std::make_unique<comm::SharedSegment>(name.process, name.descriptor, max_events * sizeof(Slot));
    } catch (const std::exception&) {
      return nullptr;
    }
    auto* const slot = reinterpret_cast<Slot*>(slots->data() + name.number * sizeof(Slot));
    return std::make_unique<Event>(*this, *slot, static_cast<int>(name.number), handle);
  }

  static Head& head_of(std::byte* data) { return *reinterpret_cast<Head*>(data - page); }
  static Handle pack(const Name& name) {
    Handle handle{};
    std::memcpy(handle.data(), &name, sizeof name);
    return handle;
  }
  static Name unpack(const Handle& handle) {
    Name name;
    std::memcpy(&name, handle.data(), sizeof name);
    return name;
  }

  void delay_host() {
    std::this_thread::sleep_for(std::chrono::microseconds(
        std::uniform_int_distribution<std::int64_t>(0, options_.longest_delay.count())(host_random_)));
  }

  void push(Operation operation) {
    {
      const std::lock_guard lock(mutex_);
      queue_.push_back(std::move(operation));
    }
    changed_.notify_all();
  }

  void work() {
    while (true) {
      Operation next{};
      {
        std::unique_lock lock(mutex_);
        busy_ = false;
        changed_.notify_all();
        changed_.wait(lock, [&] { return stop_ || !queue_.empty(); });
        if (stop_) return;
        next = std::move(queue_.front());
        queue_.pop_front();
        busy_ = true;
      }
      if (!next.slot) {
        std::this_thread::sleep_for(std::chrono::microseconds(
            std::uniform_int_distribution<std::int64_t>(0, options_.longest_delay.count())(random_)));
        next.kernels();
        ++kernels_;
      } else if (next.is_record) {
        next.slot->reached = next.number;
      } else {
        while (next.slot->reached < next.number && !stop_) std::this_thread::sleep_for(std::chrono::microseconds(5));
      }
    }
  }

  Options options_;
  std::mt19937_64 random_, host_random_{options_.seed + 1};
  std::map<std::byte*, std::pair<std::unique_ptr<comm::SharedSegment>, std::size_t>> owned_;
  std::mutex opened_mutex_;
  std::map<std::byte*, std::unique_ptr<comm::SharedSegment>> opened_memory_;
  std::unique_ptr<comm::SharedSegment> slots_;
  std::map<int, std::unique_ptr<comm::SharedSegment>> opened_slots_;  // by process
  int events_ = 0, freed_while_open_ = 0;
  std::uint64_t allocations_ = 0;
  std::size_t bytes_ = 0;
  std::atomic<int> kernels_{0};

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Operation> queue_;
  bool busy_ = false;
  std::atomic<bool> stop_{false};
  std::thread worker_;
};

}  // namespace aloni::test

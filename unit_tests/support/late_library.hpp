#pragma once
// A device library made of host memory that does its work late, for groups of messages between ranks. It submits to a
// communication stream of its own, beside the queue of a LateDevice.
//
//   const auto library = LateLibrary::make(comm, device, {.seed = 7});      // collective
//   comm::detail::set_device_collectives(comm, library);
//
// As NCCL: groups run in the order in which the rank submits them; the next one begins when all messages of the last
// one are complete; the k-th message to a rank meets the k-th that it receives. A message is complete only when the
// receiver has copied it. So ranks that submit groups in different orders wait for each other, or get wrong values.
// The thread of the stream waits a random time before each piece of work, so that a missing event gives wrong numbers.
#include <aloni/core/comm/communicator.hpp>
#include <aloni/core/comm/device/device_collectives.hpp>
#include <aloni/core/comm/shared_heap.hpp>
#include <aloni/core/error.hpp>

#include "support/late_device.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace aloni::test {

class LateLibrary final : public comm::detail::DeviceCollectives {
 public:
  struct Options {
    std::uint64_t seed = 0;
    std::chrono::microseconds longest_delay{100};  ///< before each piece of work; the shortest is 0
    /// The events for which this rank never waits: 0 is the event before each group, 1 the event behind it.
    int ignored_event = -1;
  };

  /// Collective.
  static std::shared_ptr<LateLibrary> make(const comm::Communicator& comm, std::shared_ptr<LateDevice> device,
                                           const Options& options) {
    const auto size = static_cast<std::size_t>(comm.size());
    auto library = std::shared_ptr<LateLibrary>(new LateLibrary(comm, std::move(device), options));
    std::vector<std::array<int, 2>> names(size);
    names[static_cast<std::size_t>(comm.rank())] = {getpid(), library->own_.descriptor()};
    comm.run(comm::AllGather{std::span(names)});
    for (std::size_t r = 0; r < size; ++r) {
      if (static_cast<int>(r) == comm.rank()) {
        library->others_.push_back(nullptr);
      } else {
        library->others_.push_back(
            std::make_unique<comm::SharedSegment>(names[r][0], names[r][1], size * sizeof(Channel)));
      }
    }
    comm.barrier();
    library->worker_ = std::thread([l = library.get()] { l->work(); });
    return library;
  }
  ~LateLibrary() override {
    stop();
    worker_.join();
  }

  /// Groups that are complete on this rank.
  int groups() const { return groups_; }
  int ends() const { return ends_; }
  /// Waits until the communication stream has no work.
  void synchronise() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return *stop_ || (queue_.empty() && !busy_); });
  }

  std::string library() const override { return "late library"; }
  void start_all_reduce(const comm::Communicator&, void*, std::size_t, comm::ElementType, comm::Reduction,
                        void*) override {
    throw std::logic_error("Views of the host are reduced on the host");
  }
  void* group_stream() override { return this; }
  std::unique_ptr<comm::detail::StreamEvent> make_event() override {
    return std::make_unique<Event>(*this, events_++ % 2);
  }
  void submit_group(const comm::Communicator& comm, std::span<const comm::detail::DeviceMessage> sends,
                    std::span<const comm::detail::DeviceMessage> receives) override {
    comm.check_poison();
    if (*stop_) throw CommunicationError("aloni::test: late library", "a group", "ended", "ranks that have not failed");
    push([this, s = Messages(sends.begin(), sends.end()), r = Messages(receives.begin(), receives.end())] {
      run_group(s, r);
    });
  }
  void finish(const comm::Communicator& comm) override { comm.check_poison(); }
  void look() override {}
  void end_all() noexcept override {
    ++ends_;
    stop();
  }

 private:
  using Messages = std::vector<comm::detail::DeviceMessage>;

  /// From one rank to another, in the memory of the sender.
  struct Channel {
    static constexpr std::size_t room = 4096;  // shorter than most messages: a sender waits for its receiver
    std::atomic<std::uint64_t> written{0}, read{0};
    std::uint64_t bytes = 0;
    std::array<std::byte, room> data{};
  };

  class Event final : public comm::detail::StreamEvent {
   public:
    Event(LateLibrary& library, int number) : library_(library), number_(number) {}
    void record(void* stream) override {
      library_.push_to(stream, [reached = reached_, n = ++recorded_] { *reached = n; });
    }
    void await(void* stream) override {
      if (number_ == library_.options_.ignored_event) return;
      library_.push_to(stream, [stop = library_.stop_, reached = reached_, n = recorded_] {
        while (*reached < n && !*stop) std::this_thread::sleep_for(std::chrono::microseconds(5));
      });
    }

   private:
    LateLibrary& library_;
    int number_;
    std::uint64_t recorded_ = 0;
    std::shared_ptr<std::atomic<std::uint64_t>> reached_ = std::make_shared<std::atomic<std::uint64_t>>(0);
  };

  LateLibrary(const comm::Communicator& comm, std::shared_ptr<LateDevice> device, const Options& options)
      : options_(options),
        rank_(static_cast<std::size_t>(comm.rank())),
        device_(std::move(device)),
        random_(options.seed),
        own_(static_cast<std::size_t>(comm.size()) * sizeof(Channel)) {
    for (std::size_t r = 0; r < static_cast<std::size_t>(comm.size()); ++r)
      new (own_.data() + r * sizeof(Channel)) Channel;
  }

  void stop() noexcept {
    *stop_ = true;
    changed_.notify_all();
  }
  void push_to(void* stream, std::function<void()> f) {
    if (stream == this) {
      push(std::move(f));
    } else {
      device_->submit(stream, std::move(f));
    }
  }
  void push(std::function<void()> f) {
    {
      const std::lock_guard lock(mutex_);
      queue_.push_back(std::move(f));
    }
    changed_.notify_all();
  }
  void work() {
    while (true) {
      std::function<void()> next;
      {
        std::unique_lock lock(mutex_);
        busy_ = false;
        changed_.notify_all();
        while (!*stop_ && queue_.empty()) changed_.wait_for(lock, std::chrono::milliseconds(1));
        if (*stop_) return;
        next = std::move(queue_.front());
        queue_.pop_front();
        busy_ = true;
      }
      std::this_thread::sleep_for(std::chrono::microseconds(
          std::uniform_int_distribution<std::int64_t>(0, options_.longest_delay.count())(random_)));
      next();
    }
  }

  /// All messages progress together.
  void run_group(const Messages& sends, const Messages& receives) {
    std::vector<std::size_t> sent(sends.size()), received(receives.size());
    for (bool complete = false; !complete && !*stop_;) {
      complete = true;
      bool moved = false;
      for (std::size_t i = 0; i < sends.size(); ++i) {
        Channel& c = channel(own_, static_cast<std::size_t>(sends[i].peer));
        const bool is_free = c.read == c.written;
        if (sent[i] == sends[i].bytes && is_free) continue;
        complete = false;
        if (sent[i] == sends[i].bytes || !is_free) continue;
        c.bytes = std::min(Channel::room, sends[i].bytes - sent[i]);
        std::memcpy(c.data.data(), sends[i].data + sent[i], c.bytes);
        sent[i] += c.bytes;
        ++c.written;
        moved = true;
      }
      for (std::size_t i = 0; i < receives.size(); ++i) {
        if (received[i] == receives[i].bytes) continue;
        complete = false;
        Channel& c = channel(*others_[static_cast<std::size_t>(receives[i].peer)], rank_);
        if (c.read == c.written) continue;
        const std::size_t bytes = std::min<std::size_t>(c.bytes, receives[i].bytes - received[i]);
        std::memcpy(receives[i].data + received[i], c.data.data(), bytes);
        received[i] += bytes;
        ++c.read;
        moved = true;
      }
      if (!moved && !complete) std::this_thread::sleep_for(std::chrono::microseconds(5));
    }
    if (!*stop_) ++groups_;
  }
  static Channel& channel(const comm::SharedSegment& segment, std::size_t receiver) {
    return *reinterpret_cast<Channel*>(segment.data() + receiver * sizeof(Channel));
  }

  Options options_;
  std::size_t rank_;
  std::shared_ptr<LateDevice> device_;
  std::mt19937_64 random_;
  comm::SharedSegment own_;                                   // a channel to each rank
  std::vector<std::unique_ptr<comm::SharedSegment>> others_;  // of the other ranks
  int events_ = 0;
  std::atomic<int> groups_{0}, ends_{0};

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  bool busy_ = false;
  // Shared with work on the LateDevice, which may end later.
  std::shared_ptr<std::atomic<bool>> stop_ = std::make_shared<std::atomic<bool>>(false);
  std::thread worker_;
};

}  // namespace aloni::test

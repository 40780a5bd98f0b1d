#pragma once
// All-reduce of a Kokkos View in place, in host or device memory, with a built-in reduction or a function of the user.
//
//   ViewAllReduce<float> reduce(comm, queue, gradients);                       // Kokkos::View<float*>; collective
//   reduce.run(queue);                                                         // `gradients` is the sum on all ranks
//
//   struct Larger { KOKKOS_FUNCTION double operator()(double a, double b) const { return a > b ? a : b; } };
//   ViewAllReduce<double, Exec, Larger> largest(comm, queue, errors, Larger{});
//
// There are three ways. The constructor chooses the first one that works for all ranks (`way()`):
//   device_library  NCCL, in builds that have it: built-in reductions of device memory, one device per rank
//   direct          kernels that read and write the other ranks' memory, on one node. The memory must be exposed
//                   (Communicator::expose): memory of Communicator::shared_memory() or device_memory(). Each rank
//                   combines one block of all ranks' data, in the order of ranks, and writes the result to all ranks.
//                   On devices kernels wait for kernels of other ranks by events (shared_events.hpp). Where a rank
//                   has none, its hosts wait.
//   on_host         the collectives on host memory, through a pinned copy if the host cannot read the View
// All ranks get the same bits. Sums of device_library may differ in the last bits from sums of the other ways.
#include <aloni/core/comm/communicator.hpp>
#include <aloni/core/comm/device/device_collectives.hpp>
#include <aloni/core/comm/device/native_stream.hpp>
#include <aloni/core/comm/event_queue.hpp>
#include <aloni/core/error.hpp>
#include <aloni/core/profiling.hpp>
#include <aloni/core/queue.hpp>

#include <Kokkos_Core.hpp>

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace aloni::comm {

/// A Reduction as a function. For `average` it is the sum.
template <class T>
struct BuiltInReduction {
  Reduction reduction = Reduction::sum;

  KOKKOS_FUNCTION T operator()(const T& a, const T& b) const {
    switch (reduction) {
      case Reduction::min:
        return a != a || a < b ? a : b;  // a NaN is returned
      case Reduction::max:
        return a != a || a > b ? a : b;
      case Reduction::product:
        return a * b;
      default:
        return a + b;
    }
  }
};

namespace detail {

template <class T>
struct RankPointer {
  T* data = nullptr;
};

template <class T>
KOKKOS_FUNCTION T scaled(const T& value, const T& scale) {
  if constexpr (std::is_floating_point_v<T>) {
    return value * scale;
  } else {
    return value;
  }
}

/// Combines the elements `block` of all ranks' arrays, in the order of ranks, and writes the results to all arrays.
template <class Exec, class T, class F, class Pointers>
void combine_everywhere(const Exec& exec, const Pointers& ranks, const Region& block, const F& f, T scale) {
  const int size = static_cast<int>(ranks.extent(0));
  Kokkos::parallel_for(
      "aloni::comm::ViewAllReduce: combine",
      Kokkos::RangePolicy<Exec, Kokkos::IndexType<Index>>(exec, block.offset, block.offset + block.count),
      KOKKOS_LAMBDA(Index i) {
        T value = ranks(0).data[i];
        for (int r = 1; r < size; ++r) value = f(value, ranks(r).data[i]);
        value = scaled(value, scale);
        for (int r = 0; r < size; ++r) ranks(r).data[i] = value;
      });
}

}  // namespace detail

enum class ViewAllReduceWay : std::uint8_t { device_library, direct, on_host };

/// T: trivially copyable; with a built-in reduction float, double, std::int32_t, std::int64_t, std::uint64_t.
/// F: an associative T(const T&, const T&), callable on the host and in kernels of Exec. Lower ranks are first
/// operands.
template <class T, class Exec = Kokkos::DefaultExecutionSpace, class F = BuiltInReduction<T>>
class ViewAllReduce {
  static_assert(std::is_trivially_copyable_v<T>, "elements travel as bytes");
  static constexpr bool built_in = std::is_same_v<F, BuiltInReduction<T>>;

 public:
  using Mem = typename Exec::memory_space;
  using View = Kokkos::View<T*, Mem>;

  /// Keeps the View and allocates all buffers. `direct`: whether the way `direct` is allowed; equal on all ranks.
  /// Collective. Throws InvalidArgument on all ranks if the extent differs between ranks, or for an average of
  /// integers.
  ViewAllReduce(const Communicator& comm, const Queue<Exec>& queue, View data, F f = {}, bool direct = true)
      : comm_(comm), data_(std::move(data)), f_(f), event_queue_(comm) {
    constexpr const char* name = "aloni::comm::ViewAllReduce";
    if constexpr (built_in) (void)element_operation<T>(f_.reduction);  // throws for the average of integers
    const auto count = static_cast<std::int64_t>(data_.extent(0));
    if (comm_.all_reduce(count, Reduction::max) != comm_.all_reduce(count, Reduction::min)) {
      throw InvalidArgument(name, "extent of the View", std::to_string(count), "the same on all ranks");
    }
    if (comm_.size() == 1 || count == 0) return;
    if constexpr (!on_host && built_in) {
      library_ = comm_.device_collectives();
      if (library_) {
        way_ = ViewAllReduceWay::device_library;
        return;
      }
    }
    if (direct && open_all(queue)) {
      way_ = ViewAllReduceWay::direct;
      if (event_queue_) agree_on_events();
      return;
    }
    if constexpr (!on_host) host_ = HostView(Kokkos::view_alloc("aloni::comm::ViewAllReduce: host"), data_.extent(0));
  }

  ViewAllReduceWay way() const { return way_; }
  /// Number of elements.
  Index count() const { return static_cast<Index>(data_.extent(0)); }
  /// Whether kernels wait for kernels of other ranks by events, and no host waits for kernels. Equal on all ranks.
  bool by_events() const { return !ready_of_.empty(); }

  /// Reduces the whole View. Waits for kernels submitted to `queue` before; kernels submitted later see the result.
  /// Collective. Throws PeerFailed, CommunicationError.
  void run(const Queue<Exec>& queue) const {
    const ScopedRegion region("aloni::comm::ViewAllReduce::run");
    const auto all = static_cast<Index>(data_.extent(0));
    if (comm_.size() == 1 || all == 0) return;
    if constexpr (built_in) {
      if (can_start()) {
        Request request = start(queue, 0, all);
        return finish(queue, request, 0, all);
      }
    }
    if (way_ == ViewAllReduceWay::direct) return run_direct(queue);
    run_on_host(queue);
  }

  /// Whether start() can reduce parts of the View while kernels run: built-in reductions, unless the way is `direct`.
  /// Equal on all ranks.
  bool can_start() const { return built_in && (comm_.size() == 1 || way_ != ViewAllReduceWay::direct); }
  /// Reduces `count` elements from `first` on, after all kernels submitted to `queue` so far. Several parts may be
  /// pending; all ranks start them in the same order. With device_library, grouped messages of the communicator belong
  /// to this order (grouped_messages.hpp).
  /// Collective. Asynchronous: the part belongs to the operation until finish() with the same arguments.
  /// @pre can_start(). Throws like run().
  /// `options`: of the collective of the way on_host; equal on all ranks.
  [[nodiscard]] Request start(const Queue<Exec>& queue, Index first, Index count,
                              const CollectiveOptions& options = {}) const requires built_in {
    if (comm_.size() == 1 || count == 0) return {};
    if (library_) {
      (void)library_->take_turn();  // grouped_messages.hpp
      library_->start_all_reduce(comm_, data_.data() + first, static_cast<std::size_t>(count), element_type<T>(),
                                 f_.reduction, detail::native_stream(queue.space()));
      return {};
    }
    if constexpr (!on_host) Kokkos::deep_copy(queue.space(), part(host_, first, count), part(data_, first, count));
    static const std::string reason = "aloni::comm::ViewAllReduce: this rank's values are complete on the host";
    event_queue_.fence(queue.space(), reason);
    return comm_.start_all_reduce(on_the_host(first, count), f_.reduction, options);
  }
  /// Why start() cannot use an algorithm, and the alternative; none if it can, or if the way has no algorithms.
  std::optional<std::string> unsupported_reason(AllReduceAlgorithm algorithm) const {
    if (way_ != ViewAllReduceWay::on_host || library_) return std::nullopt;
    return comm_.unsupported_reason(algorithm);
  }
  /// Ends start(). Kernels submitted to `queue` later see the result. Throws like run().
  void finish(const Queue<Exec>& queue, Request& request, Index first, Index count) const requires built_in {
    if (comm_.size() == 1 || count == 0) return;
    if (library_) return library_->finish(comm_);
    comm_.wait(request);
    if constexpr (!on_host) Kokkos::deep_copy(queue.space(), part(data_, first, count), part(host_, first, count));
  }

 private:
  static constexpr bool on_host = Kokkos::SpaceAccessibility<Kokkos::HostSpace, Mem>::accessible;
  using HostView = Kokkos::View<T*, std::conditional_t<on_host, Mem, Kokkos::SharedHostPinnedSpace>>;
  using Pointer = detail::RankPointer<T>;

  bool open_all(const Queue<Exec>& queue) {
    const int size = comm_.size(), rank = comm_.rank();
    const std::size_t bytes = data_.extent(0) * sizeof(T);
    std::vector<ExposedMemory> own(static_cast<std::size_t>(size)), all(own.size());
    for (int r = 0; r < size; ++r)
      if (r != rank) own[static_cast<std::size_t>(r)] = comm_.expose(data_.data(), bytes, r);
    comm_.run(AllToAll{std::span(own), std::span(all)});
    pointers_ = Kokkos::View<Pointer*, Mem>("aloni::comm::ViewAllReduce: ranks", own.size());
    const auto pointers = Kokkos::create_mirror_view(pointers_);
    std::int64_t reachable = 1;
    for (int r = 0; r < size; ++r) {
      const auto i = static_cast<std::size_t>(r);
      if (r == rank) {
        pointers(i).data = data_.data();
        continue;
      }
      opened_.push_back(comm_.open(r, all[i], bytes));
      reachable = reachable && opened_.back() != nullptr;
      pointers(i).data = reinterpret_cast<T*>(opened_.back().get());
    }
    Kokkos::deep_copy(queue.space(), pointers_, pointers);
    queue.fence("aloni::comm::ViewAllReduce: the host's addresses are released");
    if (comm_.all_reduce(reachable, Reduction::min) != 0) return true;
    opened_.clear();
    return false;
  }

  /// Ranks offer each other two events. All use them, or none does.
  void agree_on_events() {
    const SharedEvents& events = event_queue_.events();
    detail::DeviceEvent *const ready = events.next(), *const done = events.next();
    using Offer = std::array<ExposedEvent, 2>;
    std::vector<Offer> own(static_cast<std::size_t>(comm_.size())), all(own.size());
    for (std::size_t r = 0; r < own.size(); ++r) {
      const auto peer = static_cast<int>(r);
      if (peer != comm_.rank()) own[r] = {events.expose(ready, peer), events.expose(done, peer)};
    }
    comm_.run(AllToAll{std::span(own), std::span(all)});
    std::vector<detail::DeviceEvent*> ready_of, done_of;
    std::int64_t usable = ready && done ? 1 : 0;
    for (std::size_t r = 0; r < all.size(); ++r) {
      if (static_cast<int>(r) == comm_.rank()) continue;
      ready_of.push_back(events.open(all[r][0]));
      done_of.push_back(events.open(all[r][1]));
      usable = usable && ready_of.back() && done_of.back();
    }
    if (comm_.all_reduce(usable, Reduction::min) == 0) return;
    ready_ = ready;
    done_ = done;
    ready_of_ = std::move(ready_of);
    done_of_ = std::move(done_of);
  }

  /// Returns when the kernels of all ranks so far are complete; by events, the queue waits for them and the host does
  /// not. The barrier is the message of shared_events.hpp: all ranks have recorded before any rank waits.
  void meet(const Queue<Exec>& queue, detail::DeviceEvent* own, const std::vector<detail::DeviceEvent*>& others,
            const std::string& reason) const {
    void* const stream = event_queue_.stream(queue.space());
    if (by_events()) {
      own->record(stream);
    } else {
      event_queue_.fence(queue.space(), reason);
    }
    comm_.barrier();
    for (detail::DeviceEvent* const other : others) other->await(stream);
  }

  void run_direct(const Queue<Exec>& queue) const {
    const Region block = block_of({Buffer::output, 0, static_cast<Index>(data_.extent(0))}, comm_.rank(), comm_.size());
    meet(queue, ready_, ready_of_, "aloni::comm::ViewAllReduce: this rank's values are complete");
    T scale{};
    if constexpr (std::is_floating_point_v<T>) {
      scale = T(1);
      if constexpr (built_in) {
        if (f_.reduction == Reduction::average) scale = T(1) / static_cast<T>(comm_.size());
      }
    }
    event_queue_.submit(queue.space(), [exec = queue.space(), pointers = pointers_, block, f = f_, scale] {
      detail::combine_everywhere(exec, pointers, block, f, scale);
    });
    meet(queue, done_, done_of_, "aloni::comm::ViewAllReduce: this rank's block is everywhere");
  }

  /// For a function of the user.
  void run_on_host(const Queue<Exec>& queue) const {
    if constexpr (!on_host) Kokkos::deep_copy(queue.space(), host_, data_);
    event_queue_.fence(queue.space(), "aloni::comm::ViewAllReduce: this rank's values are complete on the host");
    if constexpr (!built_in) {
      comm_.all_reduce(on_the_host(0, static_cast<Index>(data_.extent(0))), user_operation<T>(f_),
                       {.reproducible = true});
    }
    if constexpr (!on_host) Kokkos::deep_copy(queue.space(), data_, host_);
  }

  template <class V>
  static auto part(const V& view, Index first, Index count) {
    return Kokkos::subview(view, Kokkos::make_pair(first, first + count));
  }
  std::span<T> on_the_host(Index first, Index count) const {
    if constexpr (on_host) {
      return {data_.data() + first, static_cast<std::size_t>(count)};
    } else {
      return {host_.data() + first, static_cast<std::size_t>(count)};
    }
  }

  Communicator comm_;
  View data_;
  F f_;
  ViewAllReduceWay way_ = ViewAllReduceWay::on_host;
  std::shared_ptr<detail::DeviceCollectives> library_;
  Kokkos::View<Pointer*, Mem> pointers_;
  std::vector<std::shared_ptr<std::byte>> opened_;
  EventQueue<Exec> event_queue_;
  detail::DeviceEvent *ready_ = nullptr, *done_ = nullptr;
  std::vector<detail::DeviceEvent*> ready_of_, done_of_;  // of the other ranks; empty: the hosts wait
  HostView host_;
};

}  // namespace aloni::comm

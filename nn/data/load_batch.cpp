#include <aloni/nn/data/load_batch.hpp>

#include <aloni/core/error.hpp>
#include <aloni/core/queue_beside.hpp>
#include <aloni/core/queue_mark.hpp>
#include <aloni/nn/data/detail/staged_batches.hpp>
#include <aloni/nn/detail/instantiate.hpp>
#include <aloni/nn/local/filter_orders.hpp>
#include <aloni/nn/tensor.hpp>
#include <aloni/views/strided_copy.hpp>

#include <Kokkos_Core.hpp>

#include <array>
#include <cstddef>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

namespace aloni::nn {

using views::Dim;

namespace {

void check_size(const char* argument, std::size_t got, std::size_t expected) {
  if (got != expected) {
    throw InvalidArgument("aloni::nn::load_batch", argument, std::to_string(got) + " elements",
                          std::to_string(expected) + ", this rank's part of the network's mini-batch");
  }
}

/// Values that are dense in the order of `to` into `to`.
template <class V, class Exec, class View>
void unpack(const Exec& exec, const V* from, const View& to) {
  views::StridedCopy copy;
  Index stride = 1;
  for (int d = static_cast<int>(View::rank()) - 1, i = views::num_dims - 1; d >= 0; --d, --i) {
    copy.extents[i] = static_cast<Index>(to.extent(d));
    copy.source_strides[i] = stride;
    copy.destination_strides[i] = static_cast<Index>(to.stride(d));
    stride *= copy.extents[i];
  }
  views::strided_copy(exec, "aloni::nn::load_batch", from, to.data(), copy);
}

/// Values of a batch and their place in the memory of the network.
template <class V, class View>
struct Part {
  const std::vector<V>& values;
  View to;
};

/// The queues as the streams of StagedBatches.
template <class Exec>
struct CopyStreams {
  const Queue<Exec>&kernels, &copies;
  std::array<QueueMark<Exec>, detail::StagedBatches::points>& marks;

  const Queue<Exec>& queue(int stream) const { return stream == detail::StagedBatches::copies ? copies : kernels; }
  QueueMark<Exec>& mark(int point) { return marks[static_cast<std::size_t>(point)]; }
  template <class F>
  void submit(int stream, const F& f) {
    f(queue(stream));
  }
  void record(int stream, int point) { mark(point).set(queue(stream)); }
  void await(int stream, int point) { mark(point).await(queue(stream), "aloni::nn::BatchLoader: the other queue"); }
  void wait(int point) { mark(point).wait("aloni::nn::BatchLoader: the copy of the batch before the last"); }
};

}  // namespace

template <class T, class Exec>
BatchPart part_of_batch(const Network<T, Exec>& network, const NetworkDescription& description) {
  return {network.input_box(), network.output_box(), targets_of(description.loss),
          network.output_distribution().extents()[Dim::channel]};
}

// On a device the values pass through a dense copy, because a copy between memory spaces has no strides.
template <class T, class Exec>
struct BatchLoader<T, Exec>::Implementation {
  static constexpr bool on_host = Kokkos::SpaceAccessibility<Exec, Kokkos::HostSpace>::accessible;
  using Pinned =
      Kokkos::View<std::byte*, std::conditional_t<on_host, Kokkos::HostSpace, Kokkos::SharedHostPinnedSpace>>;
  using Memory = Kokkos::View<std::byte*, typename Exec::memory_space>;

  Queue<Exec> kernels, copies;
  detail::StagedBatches batches;
  std::array<QueueMark<Exec>, detail::StagedBatches::points> marks;
  std::array<Pinned, 2> pinned;
  std::array<Memory, 2> memory;

  Implementation(const Queue<Exec>& k, const Queue<Exec>& c) : kernels(k), copies(c) {}

  template <class... Parts>
  void load(const Parts&... parts) {
    if constexpr (on_host) {
      (unpack(kernels.space(), parts.values.data(), parts.to), ...);
      kernels.fence("aloni::nn::load_batch: the values of the host batch are released");
    } else {
      std::array<std::size_t, sizeof...(Parts)> places{};
      std::size_t bytes = 0, next = 0;
      ((places[next++] = bytes, bytes += local::Scratch::round_up(parts.values.size() * sizeof(parts.values[0]))), ...);
      const auto at = [](int b) { return static_cast<std::size_t>(b); };
      CopyStreams<Exec> streams{kernels, copies, marks};
      batches.put(
          streams, [&](int b) { return pinned[at(b)].extent(0) < bytes; },
          [&](int b) {
            if (pinned[at(b)].extent(0) < bytes) {
              pinned[at(b)] = Pinned(Kokkos::view_alloc(Kokkos::WithoutInitializing, "aloni::nn::pinned_batch"), bytes);
              memory[at(b)] = Memory(Kokkos::view_alloc(Kokkos::WithoutInitializing, "aloni::nn::staged_batch"), bytes);
            }
            std::size_t p = 0;
            (std::memcpy(pinned[at(b)].data() + places[p++], parts.values.data(),
                         parts.values.size() * sizeof(parts.values[0])),
             ...);
          },
          [&](int b, const Queue<Exec>& queue) {
            const auto used = Kokkos::make_pair(std::size_t{0}, bytes);
            Kokkos::deep_copy(queue.space(), Kokkos::subview(memory[at(b)], used),
                              Kokkos::subview(pinned[at(b)], used));
          },
          [&](int b, const Queue<Exec>& queue) {
            std::size_t p = 0;
            (unpack(
                 queue.space(),
                 reinterpret_cast<const std::decay_t<decltype(parts.values[0])>*>(memory[at(b)].data() + places[p++]),
                 parts.to),
             ...);
          });
    }
  }
};

template <class T, class Exec>
BatchLoader<T, Exec>::BatchLoader(const Queue<Exec>& kernels, const Queue<Exec>& copies)
    : implementation_(std::make_unique<Implementation>(kernels, copies)) {}

template <class T, class Exec>
BatchLoader<T, Exec>::BatchLoader(const Queue<Exec>& kernels)
    : BatchLoader(kernels, Implementation::on_host ? kernels : queue_beside(kernels, QueuePriority::normal)) {}

template <class T, class Exec>
BatchLoader<T, Exec>::~BatchLoader() {
  if (!implementation_ || Implementation::on_host) return;
  try {
    for (const auto* queue : {&implementation_->copies, &implementation_->kernels})
      queue->fence("aloni::nn::BatchLoader: the memory of mini-batches is released");
  } catch (...) {  // a failed device: its next user sees the error too
  }
}

template <class T, class Exec>
void BatchLoader<T, Exec>::load_input(const HostBatch<T>& batch, Network<T, Exec>& network) {
  const auto timing = network.stopwatch().measure(Stopwatch::Phase::input);
  check_size("input", batch.input.size(), network.input().size());
  implementation_->load(Part<T, views::LocalView<T, typename Exec::memory_space>>{batch.input, network.input()});
}

template <class T, class Exec>
void BatchLoader<T, Exec>::load(const HostBatch<T>& batch, Network<T, Exec>& network) {
  const auto timing = network.stopwatch().measure(Stopwatch::Phase::input);
  const auto pixel_labels = network.pixel_labels();
  const auto labels = network.labels();
  const auto targets = network.targets();
  check_size("input", batch.input.size(), network.input().size());
  check_size("targets", batch.targets.size(), targets.size());
  check_size("labels", batch.labels.size(), pixel_labels.size() > 0 ? pixel_labels.size() : labels.size());
  const Part<T, std::decay_t<decltype(targets)>> input{batch.input, network.input()}, wanted{batch.targets, targets};
  if (pixel_labels.size() > 0) {
    implementation_->load(input, wanted, Part<int, std::decay_t<decltype(pixel_labels)>>{batch.labels, pixel_labels});
  } else {
    implementation_->load(input, wanted, Part<int, std::decay_t<decltype(labels)>>{batch.labels, labels});
  }
}

template <class T, class Exec>
void load_input(const Queue<Exec>& queue, const HostBatch<T>& batch, Network<T, Exec>& network) {
  BatchLoader<T, Exec>(queue, queue).load_input(batch, network);
}

template <class T, class Exec>
void load_batch(const Queue<Exec>& queue, const HostBatch<T>& batch, Network<T, Exec>& network) {
  BatchLoader<T, Exec>(queue, queue).load(batch, network);
}

#define INSTANTIATE(T, Exec)                                                            \
  template class BatchLoader<T, Exec>;                                                  \
  template BatchPart part_of_batch(const Network<T, Exec>&, const NetworkDescription&); \
  template void load_input(const Queue<Exec>&, const HostBatch<T>&, Network<T, Exec>&); \
  template void load_batch(const Queue<Exec>&, const HostBatch<T>&, Network<T, Exec>&);
ALONI_INSTANTIATE_ACTIVATIONS(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::nn

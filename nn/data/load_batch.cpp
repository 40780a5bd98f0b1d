#include <aloni/nn/data/load_batch.hpp>

#include <aloni/core/error.hpp>
#include <aloni/nn/detail/instantiate.hpp>
#include <aloni/nn/tensor.hpp>
#include <aloni/views/strided_copy.hpp>

#include <string>
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

/// `values`, dense in the order of `to`, into the memory of the queue. On a device they pass through a dense copy,
/// because a copy between memory spaces has no strides.
template <class V, class Exec, class View>
void upload(const Queue<Exec>& queue, const char* argument, const std::vector<V>& values, const View& to) {
  using Mem = typename Exec::memory_space;
  check_size(argument, values.size(), to.size());
  if (values.empty()) return;
  const V* from = values.data();
  Kokkos::View<V*, Mem> staged;
  if constexpr (!Kokkos::SpaceAccessibility<Exec, Kokkos::HostSpace>::accessible) {
    staged = Kokkos::View<V*, Mem>(
        Kokkos::view_alloc(queue.space(), Kokkos::WithoutInitializing, "aloni::nn::staged_batch"), values.size());
    using Host = Kokkos::View<const V*, Kokkos::HostSpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
    Kokkos::deep_copy(queue.space(), staged, Host(values.data(), values.size()));
    from = staged.data();
  }
  views::StridedCopy copy;
  Index stride = 1;
  for (int d = static_cast<int>(View::rank()) - 1, i = views::num_dims - 1; d >= 0; --d, --i) {
    copy.extents[i] = static_cast<Index>(to.extent(d));
    copy.source_strides[i] = stride;
    copy.destination_strides[i] = static_cast<Index>(to.stride(d));
    stride *= copy.extents[i];
  }
  views::strided_copy(queue.space(), "aloni::nn::load_batch", from, to.data(), copy);
  queue.fence("aloni::nn::load_batch: the values of the host batch are released");
}

}  // namespace

template <class T, class Exec>
BatchPart part_of_batch(const Network<T, Exec>& network, const NetworkDescription& description) {
  return {network.input_box(), network.output_box(), targets_of(description.loss),
          network.output_distribution().extents()[Dim::channel]};
}

template <class T, class Exec>
void load_input(const Queue<Exec>& queue, const HostBatch<T>& batch, Network<T, Exec>& network) {
  const auto timing = network.stopwatch().measure(Stopwatch::Phase::input);
  upload(queue, "input", batch.input, network.input());
}

template <class T, class Exec>
void load_batch(const Queue<Exec>& queue, const HostBatch<T>& batch, Network<T, Exec>& network) {
  load_input(queue, batch, network);
  const auto timing = network.stopwatch().measure(Stopwatch::Phase::input);
  const auto pixel_labels = network.pixel_labels();
  upload(queue, "targets", batch.targets, network.targets());
  if (pixel_labels.size() > 0) {
    upload(queue, "labels", batch.labels, pixel_labels);
  } else {
    upload(queue, "labels", batch.labels, network.labels());
  }
}

#define INSTANTIATE(T, Exec)                                                            \
  template BatchPart part_of_batch(const Network<T, Exec>&, const NetworkDescription&); \
  template void load_input(const Queue<Exec>&, const HostBatch<T>&, Network<T, Exec>&); \
  template void load_batch(const Queue<Exec>&, const HostBatch<T>&, Network<T, Exec>&);
ALONI_INSTANTIATE_ACTIVATIONS(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::nn

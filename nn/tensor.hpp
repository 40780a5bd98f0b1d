#pragma once
// One rank's part of an activation or gradient: a dense channels-last memory block over a box of global indices
// (owned part and ghosts). Layers pass it to each other; users see DistributedView.
#include <aloni/core/comm/communicator.hpp>
#include <aloni/core/comm/shared_view.hpp>
#include <aloni/halo/transfer.hpp>
#include <aloni/views/box.hpp>
#include <aloni/views/local_view.hpp>

#include <Kokkos_Core.hpp>

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <tuple>
#include <utility>

namespace aloni::nn {

namespace detail {

/// Dense, channels last.
inline Kokkos::LayoutStride dense_layout(const std::array<Index, views::num_dims>& extents) {
  Kokkos::LayoutStride layout;
  Index stride = 1;
  for (int i = views::num_dims - 1; i >= 0; --i) {
    layout.dimension[i] = static_cast<std::size_t>(extents[i]);
    layout.stride[i] = static_cast<std::size_t>(stride);
    stride *= extents[i];
  }
  return layout;
}

}  // namespace detail

/// The view of `part` within `data`, which covers `box`. @pre contains(box, part)
template <class T, class Mem>
views::LocalView<T, Mem> part_of(const views::LocalView<T, Mem>& data, const views::Box& box, const views::Box& part) {
  const auto extents = views::extents_of(part).values;
  if (part.empty()) return views::LocalView<T, Mem>(data.data(), detail::dense_layout(extents));
  Kokkos::LayoutStride layout;
  Index offset = 0;
  for (int i = 0; i < views::num_dims; ++i) {
    layout.dimension[i] = static_cast<std::size_t>(extents[i]);
    layout.stride[i] = data.stride(i);
    offset += (part.lo[i] - box.lo[i]) * static_cast<Index>(data.stride(i));
  }
  return views::LocalView<T, Mem>(data.data() + offset, layout);
}

template <class T, class Mem = Kokkos::DefaultExecutionSpace::memory_space>
struct Tensor {
  using Storage = Kokkos::View<T*, Mem>;

  views::Box owned;              ///< box that this rank owns
  views::Box box;                ///< box that the memory covers
  Storage storage;               ///< shared between tensors that are computed in place
  std::shared_ptr<void> memory;  ///< keeps `storage` alive, where that does not own its memory

  bool exists = false;  ///< equal on all ranks, also where a rank's part is empty
  bool allocated() const { return exists; }

  views::LocalView<T, Mem> whole() const {
    return views::LocalView<T, Mem>(storage.data(), detail::dense_layout(views::extents_of(box).values));
  }
  views::LocalView<T, Mem> part(const views::Box& p) const { return part_of(whole(), box, p); }
  views::LocalView<T, Mem> owned_part() const { return part(owned); }
  /// For transfers.
  halo::TensorRef<T, Mem> ref() const {
    return {whole(), box, std::make_shared<std::pair<Storage, std::shared_ptr<void>>>(storage, memory)};
  }
  void share_memory_of(const Tensor& other) {
    storage = other.storage;
    memory = other.memory;
  }
};

/// Zero-initialised on `exec`. @pre contains(box, owned), or `owned` is empty
template <class T, class Exec>
Tensor<T, typename Exec::memory_space> allocate_tensor(const Exec& exec, const std::string& label,
                                                       const views::Box& owned, const views::Box& box) {
  Tensor<T, typename Exec::memory_space> t{owned, box, {}, {}, true};
  t.storage = typename decltype(t)::Storage(Kokkos::view_alloc(exec, label), static_cast<std::size_t>(box.size()));
  return t;
}

/// As above, in memory that the ranks of the node share: for tensors that transfers read.
template <class T, class Exec>
Tensor<T, typename Exec::memory_space> allocate_tensor(const comm::Communicator& comm, const Exec& exec,
                                                       const std::string& label, const views::Box& owned,
                                                       const views::Box& box) {
  Tensor<T, typename Exec::memory_space> t{owned, box, {}, {}, true};
  std::tie(t.storage, t.memory) = comm::allocate_shared<T>(comm, exec, label, static_cast<std::size_t>(box.size()));
  return t;
}

}  // namespace aloni::nn

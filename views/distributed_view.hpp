#pragma once
// A tensor spread over ranks: on each rank a Kokkos View of the owned box with ghosts around it.
//
//   using View = DistributedView<float, 2>;                            // N,H,W,C
//   const auto d = Distribution::block(make_extents(8, {512, 512}, 3), ProcessGrid::parse("h2"), comm.size());
//   GhostWidths ghosts;
//   ghosts(Dim::height, Side::low) = ghosts(Dim::height, Side::high) = 1;
//   View x(exec, "x", d, comm.rank(), ghosts);                         // allocates, channels last, zeroes
//   View y = View::wrap(my_view, d, comm.rank(), ghosts);              // or: your memory, any layout, not copied
//
//   auto owned = x.owned();                                            // a plain Kokkos View, indices from 0
//   Kokkos::parallel_for("fill", x.owned_policy(exec), KOKKOS_LAMBDA(Index n, Index h, Index w, Index c) {
//     owned(n, h, w, c) = 1;
//   });
//   x.mark_stale();                                                    // ghosts no longer agree with their owners
//   halo::Exchange<> exchange(comm, queue, {x});                       // halo/exchange.hpp
//   exchange.run(queue);                                               // ghosts are fresh again
//
// A DistributedView is a handle: copies share memory and ghost state, as copies of a Kokkos View do. Boxes are in
// global indices and always have five dimensions (views/extents.hpp). The returned Views have SpatialRank + 2
// dimensions, in the order N,[D,[H,]]W,C for every layout of the memory.
#include <aloni/core/comm/shared_view.hpp>
#include <aloni/core/error.hpp>
#include <aloni/core/index.hpp>
#include <aloni/views/distribution.hpp>
#include <aloni/views/ghost_state.hpp>
#include <aloni/views/ghost_widths.hpp>
#include <aloni/views/local_view.hpp>
#include <aloni/views/strided_copy.hpp>

#include <Kokkos_Core.hpp>

#include <array>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace aloni::views {

namespace detail {

template <class T, int Rank>
struct AddPointers {
  using type = typename AddPointers<T, Rank - 1>::type*;
};
template <class T>
struct AddPointers<T, 0> {
  using type = T;
};

/// The Dim of each axis of a View with `SpatialRank` spatial dimensions.
template <int SpatialRank>
constexpr std::array<Dim, SpatialRank + 2> axes() {
  std::array<Dim, SpatialRank + 2> a{};
  a[0] = Dim::sample;
  for (int i = 0; i <= SpatialRank; ++i)
    a[static_cast<std::size_t>(i + 1)] = all_dims[static_cast<std::size_t>(4 - SpatialRank + i)];
  return a;
}

}  // namespace detail

/// Converts indices within the owned box to global indices. Callable on devices.
template <int SpatialRank>
struct GlobalIndex {
  Kokkos::Array<Index, SpatialRank + 2> first;

  template <class... I>
  KOKKOS_FUNCTION Kokkos::Array<Index, SpatialRank + 2> operator()(I... owned) const {
    static_assert(sizeof...(I) == SpatialRank + 2, "one index per dimension: N,[D,[H,]]W,C");
    Kokkos::Array<Index, SpatialRank + 2> global{static_cast<Index>(owned)...};
    for (int i = 0; i < SpatialRank + 2; ++i) global[i] += first[i];
    return global;
  }
};

/// T: float, double, std::int32_t, std::int64_t. SpatialRank: 1 to 3.
template <class T, int SpatialRank, class MemorySpace = Kokkos::DefaultExecutionSpace::memory_space>
class DistributedView {
  static_assert(SpatialRank >= 1 && SpatialRank <= 3);

 public:
  static constexpr int rank_of_view = SpatialRank + 2;
  static constexpr std::array<Dim, SpatialRank + 2> axes = detail::axes<SpatialRank>();
  using value_type = T;
  using memory_space = MemorySpace;
  using data_type = typename detail::AddPointers<T, rank_of_view>::type;
  using view_type = Kokkos::View<data_type, Kokkos::LayoutStride, MemorySpace>;
  using owning_type = Kokkos::View<data_type, Kokkos::LayoutRight, MemorySpace>;

  /// A handle without memory; assign another handle to it.
  DistributedView() = default;

  /// Allocates the owned box and the ghosts of `rank`, channels last, zeroed on `exec`. Asynchronous on `exec`.
  /// @pre 0 ≤ rank < distribution.ranks(), ghosts ≥ 0, owned box and ghosts ≤ max_elements. Throws InvalidArgument.
  template <class Exec>
  DistributedView(const Exec& exec, const std::string& label, const Distribution& distribution, int rank,
                  const GhostWidths& ghosts = {})
      : DistributedView(distribution, rank, ghosts) {
    label_ = label;
    const auto n = [this](int axis) {
      return static_cast<std::size_t>(box_with_ghosts().extent(axes[static_cast<std::size_t>(axis)]));
    };
    const auto allocation = Kokkos::view_alloc(exec, label);
    if constexpr (SpatialRank == 1) data_ = owning_type(allocation, n(0), n(1), n(2));
    if constexpr (SpatialRank == 2) data_ = owning_type(allocation, n(0), n(1), n(2), n(3));
    if constexpr (SpatialRank == 3) data_ = owning_type(allocation, n(0), n(1), n(2), n(3), n(4));
  }

  /// Allocates for this rank of `comm` in memory that the ranks of its node share: they copy their ghosts straight from
  /// it. Only host memory is shared; in other memory spaces as the constructor above. Not collective.
  /// @pre distribution.ranks() == comm.size()
  template <class Exec>
  DistributedView(const comm::Communicator& comm, const Exec& exec, const std::string& label,
                  const Distribution& distribution, const GhostWidths& ghosts = {})
      : DistributedView(distribution, comm.rank(), ghosts) {
    static_assert(std::is_same_v<typename Exec::memory_space, MemorySpace>, "`exec` must allocate in MemorySpace");
    label_ = label;
    const Box box = box_with_ghosts();
    auto [data, memory] = comm::allocate_shared<T>(comm, exec, label, static_cast<std::size_t>(box.size()));
    std::array<Index, SpatialRank + 2> extents, strides;
    Index stride = 1;
    for (std::size_t i = extents.size(); i-- > 0; stride *= extents[i]) {
      extents[i] = box.extent(axes[i]);
      strides[i] = stride;
    }
    attach(data.data(), axes, extents, strides);
    owner_ = std::make_shared<decltype(std::pair(data, memory))>(data, memory);
  }

  /// Uses the user's memory, in any layout, without a copy. A managed View stays referenced.
  /// @pre user_view has element type T, this memory space, and the extents of owned box plus ghosts in the order
  /// N,[D,[H,]]W,C
  /// Throws InvalidArgument with dimension, extent and expected extent, on the ranks where the extents are wrong.
  template <class UserView>
  static DistributedView wrap(const UserView& user_view, const Distribution& distribution, int rank,
                              const GhostWidths& ghosts = {}) {
    return wrap_axes(user_view, axes, distribution, rank, ghosts);
  }

  /// As wrap(), for other orders of axes or fewer axes: order[i] is the dimension of axis i of the user's View. NCHW is
  /// {Dim::sample, Dim::channel, Dim::height, Dim::width}. A stencil code's field with one number per cell is
  /// {Dim::depth, Dim::height, Dim::width}.
  /// @pre `order` names dimensions of `axes`, none twice; the other dimensions have extent 1
  template <class UserView, std::size_t Axes>
  static DistributedView wrap_permuted(const UserView& user_view, const Dim (&order)[Axes],
                                       const Distribution& distribution, int rank, const GhostWidths& ghosts = {}) {
    return wrap_axes(user_view, std::to_array(order), distribution, rank, ghosts);
  }

  const Distribution& distribution() const { return distribution_; }
  int rank() const { return rank_; }
  const GhostWidths& ghosts() const { return ghosts_; }
  const std::string& label() const { return label_; }

  /// In global indices. An empty owned box and the ghosts around it keep their position.
  const Box& owned_box() const { return owned_; }
  Box box_with_ghosts() const { return grow(owned_, ghosts_); }

  /// The owned box; indices start at 0.
  view_type owned() const { return subview(owned_); }
  /// The owned box and its ghosts; index 0 is the outermost low ghost. Throws StaleGhosts in builds with debug checks.
  view_type with_ghosts() const {
    check_fresh("with_ghosts");
    return data_;
  }
  /// As with_ghosts(), but does not check the ghost state: for code that fills ghosts itself.
  view_type with_ghosts_unchecked() const { return data_; }
  /// The ghosts of one side: its ghost layers times the *whole* extent, ghosts included, of the other dimensions.
  /// A corner belongs to the ghosts of each dimension that it touches.
  view_type ghost(Dim d, Side side) const { return subview(ghost_box(d, side)); }
  Box ghost_box(Dim d, Side side) const;
  /// The cells of a box of global indices. @pre inside box_with_ghosts(), or empty. Throws InvalidArgument.
  view_type subview(const Box& global) const;

  /// The cells of the owned box that are at least `reach` away from its borders: a stencil can compute them before
  /// ghosts arrive.
  Box interior(const GhostWidths& reach) const;
  /// The border: the rest of the owned box, which needs ghosts. Disjoint boxes, none of them empty.
  std::vector<Box> boundary(const GhostWidths& reach) const;

  /// The five-dimensional form that kernels and transfers take. It does not keep the memory alive. `local()` contains
  /// owned box and ghosts, and checks the ghost state as with_ghosts() does.
  LocalView<T, MemorySpace> local() const {
    check_fresh("local");
    return local_unchecked();
  }
  LocalView<T, MemorySpace> local_unchecked() const { return local(box_with_ghosts()); }
  LocalView<T, MemorySpace> local_owned() const { return local(owned_); }
  /// @pre inside box_with_ghosts(), or empty. Throws InvalidArgument.
  LocalView<T, MemorySpace> local(const Box& global) const;

  /// Policies over all indices of owned() and with_ghosts().
  template <class Exec>
  auto owned_policy(const Exec& exec) const {
    return policy(exec, owned_);
  }
  template <class Exec>
  auto with_ghosts_policy(const Exec& exec) const {
    return policy(exec, box_with_ghosts());
  }
  /// A policy over all indices of subview(global).
  template <class Exec>
  auto policy(const Exec& exec, const Box& global) const {
    using Policy =
        Kokkos::MDRangePolicy<Exec, Kokkos::Rank<static_cast<unsigned>(SpatialRank + 2)>, Kokkos::IndexType<Index>>;
    typename Policy::point_type lo{}, hi{};
    for (int i = 0; i < rank_of_view; ++i) hi[i] = global.extent(axes[static_cast<std::size_t>(i)]);
    return Policy(exec, lo, hi);
  }
  /// Converts indices of owned() to global indices, for kernels.
  GlobalIndex<SpatialRank> global_index() const;

  /// All copies of the handle share the ghost state. A tensor without ghosts is always fresh.
  GhostState ghost_state() const { return state_ == nullptr || ghosts_ == GhostWidths{} ? GhostState::fresh : *state_; }
  void mark_fresh() const { *state_ = GhostState::fresh; }
  /// Call this after code outside the library changed owned values.
  void mark_stale() const { *state_ = GhostState::stale; }
  const std::shared_ptr<GhostState>& shared_ghost_state() const { return state_; }

  /// Keeps the memory alive as long as the returned pointer lives.
  std::shared_ptr<const void> keep_alive() const {
    return std::make_shared<std::pair<view_type, std::shared_ptr<const void>>>(data_, owner_);
  }

 private:
  DistributedView(const Distribution& distribution, int rank, const GhostWidths& ghosts);
  template <class UserView, std::size_t Axes>
  static DistributedView wrap_axes(const UserView& user_view, const std::array<Dim, Axes>& order,
                                   const Distribution& distribution, int rank, const GhostWidths& ghosts) {
    static_assert(Axes <= SpatialRank + 2 && UserView::rank() == Axes, "one dimension for each axis of the View");
    static_assert(
        std::is_same_v<typename UserView::non_const_value_type, T> && !std::is_const_v<typename UserView::value_type>,
        "the View must hold T, and not const");
    static_assert(std::is_same_v<typename UserView::memory_space, MemorySpace>, "the View must live in MemorySpace");
    DistributedView result(distribution, rank, ghosts);
    std::array<Index, Axes> extents, strides;
    for (std::size_t i = 0; i < Axes; ++i) {
      extents[i] = static_cast<Index>(user_view.extent(i));
      strides[i] = static_cast<Index>(user_view.stride(static_cast<int>(i)));
    }
    result.attach(user_view.data(), order, extents, strides);
    result.owner_ = std::make_shared<UserView>(user_view);
    result.label_ = user_view.label();
    return result;
  }
  void attach(T* data, std::span<const Dim> order, std::span<const Index> extents, std::span<const Index> strides);
  void check_fresh(const char* function) const;
  void check_inside(const char* function, const Box& global) const;

  std::string label_;
  Distribution distribution_;
  int rank_ = 0;
  GhostWidths ghosts_;
  Box owned_;
  view_type data_;                     ///< owned box and ghosts
  std::shared_ptr<const void> owner_;  ///< the user's View, when wrapped
  std::shared_ptr<GhostState> state_;
};

/// A tensor with the distribution of `view` in another memory space, always newly allocated; its ghosts are stale.
template <class Space, class T, int R, class Mem>
DistributedView<T, R, typename Space::memory_space> create_mirror(const Space&,
                                                                  const DistributedView<T, R, Mem>& view) {
  using Mirror = DistributedView<T, R, typename Space::memory_space>;
  const typename Space::memory_space::execution_space exec;
  Mirror mirror(exec, view.label() + ", mirror", view.distribution(), view.rank(), view.ghosts());
  exec.fence("aloni::views::create_mirror: the mirror may be used from any instance");
  return mirror;
}

/// As create_mirror(), but returns `view` itself if it already lives in that space.
template <class Space, class T, int R, class Mem>
DistributedView<T, R, typename Space::memory_space> create_mirror_view(const Space& space,
                                                                       const DistributedView<T, R, Mem>& view) {
  if constexpr (std::is_same_v<typename Space::memory_space, Mem>)
    return view;
  else
    return create_mirror(space, view);
}
template <class T, int R, class Mem>
auto create_mirror_view(const DistributedView<T, R, Mem>& view) {
  return create_mirror_view(Kokkos::HostSpace{}, view);
}

namespace detail {

void check_same_distribution(const Distribution& destination, int destination_rank, const Distribution& source,
                             int source_rank);

}  // namespace detail

/// Copies the owned values. Layouts, ghost widths and memory spaces may differ. If the ghost widths are equal, ghosts
/// and ghost state are copied too; otherwise the destination's ghosts become stale.
/// Asynchronous on `exec` within one memory space. Between two spaces it waits for `exec`, and allocates if either side
/// is not dense.
/// @pre equal distributions and ranks; between distributions use halo::Redistribution
/// Throws InvalidArgument (equal on all ranks).
template <class Exec, class T, int R, class DestinationSpace, class SourceSpace>
void deep_copy(const Exec& exec, const DistributedView<T, R, DestinationSpace>& destination,
               const DistributedView<T, R, SourceSpace>& source) {
  detail::check_same_distribution(destination.distribution(), destination.rank(), source.distribution(), source.rank());
  const bool with_ghosts = destination.ghosts() == source.ghosts();
  const Box box = with_ghosts ? source.box_with_ghosts() : source.owned_box();
  const auto from = source.local(box);
  const auto to = destination.local(box);
  constexpr const char* name = "aloni::views::deep_copy";
  if constexpr (std::is_same_v<DestinationSpace, SourceSpace>) {
    if constexpr (std::is_same_v<typename Exec::memory_space, SourceSpace>)
      strided_copy(exec, name, from.data(), to.data(), between(from, to));
    else
      strided_copy(typename SourceSpace::execution_space{}, name, from.data(), to.data(), between(from, to));
  } else {
    // Only dense memory can be copied between spaces: a side that is not dense is packed or unpacked.
    const auto size = static_cast<std::size_t>(box.size());
    using Unmanaged = Kokkos::MemoryTraits<Kokkos::Unmanaged>;
    const auto dense = [&]<class Space>(const LocalView<T, Space>& view) {
      if (is_dense(view)) return Kokkos::View<T*, Space>(view.data(), size);
      return Kokkos::View<T*, Space>(Kokkos::view_alloc(Kokkos::WithoutInitializing, "aloni::views::deep_copy: dense"),
                                     size);
    };
    const auto shaped = []<class Space>(const Kokkos::View<T*, Space>& flat, const LocalView<T, Space>& like) {
      return LocalView<T, Space>(Kokkos::View<T*****, Kokkos::LayoutRight, Space, Unmanaged>(
          flat.data(), like.extent(0), like.extent(1), like.extent(2), like.extent(3), like.extent(4)));
    };
    const auto run = []<class Space>(const LocalView<T, Space>& a, const LocalView<T, Space>& b) {
      const typename Space::execution_space own;
      if (a.data() != b.data()) strided_copy(own, name, a.data(), b.data(), between(a, b));
      own.fence("aloni::views::deep_copy: between memory spaces");
    };
    exec.fence("aloni::views::deep_copy: earlier kernels write the source");
    const auto packed = dense(from);
    const auto arrived = dense(to);
    run(from, shaped(packed, from));
    Kokkos::deep_copy(exec, arrived, packed);
    exec.fence("aloni::views::deep_copy: the copy has arrived");
    run(shaped(arrived, to), to);
  }
  if (with_ghosts && source.ghost_state() == GhostState::fresh)
    destination.mark_fresh();
  else
    destination.mark_stale();
}

}  // namespace aloni::views

#include <aloni/views/distributed_view.hpp>

#include <aloni/core/config.hpp>
#include <aloni/views/detail/instantiate.hpp>

#include <algorithm>
#include <type_traits>

namespace aloni::views {

namespace {

template <std::size_t Rank>
Kokkos::LayoutStride layout(const std::array<Index, Rank>& extents, const std::array<Index, Rank>& strides) {
  Kokkos::LayoutStride l;
  for (std::size_t i = 0; i < Rank; ++i) {
    l.dimension[i] = static_cast<std::size_t>(extents[i]);
    l.stride[i] = static_cast<std::size_t>(strides[i]);
  }
  return l;
}

template <std::size_t Rank, class View, std::size_t... I>
View split(const View& view, const std::array<std::pair<Index, Index>, Rank>& ranges, std::index_sequence<I...>) {
  return Kokkos::subview(view, ranges[I]...);
}

}  // namespace

template <class T, int R, class Mem>
DistributedView<T, R, Mem>::DistributedView(const Distribution& distribution, int rank, const GhostWidths& ghosts)
    : distribution_(distribution),
      rank_(rank),
      ghosts_(ghosts),
      state_(std::make_shared<GhostState>(GhostState::stale)) {
  constexpr const char* operation = "aloni::views::DistributedView";
  if (rank < 0 || rank >= distribution.ranks())
    throw InvalidArgument(operation, "rank", std::to_string(rank),
                          "a rank of the distribution, from 0 to " + std::to_string(distribution.ranks() - 1));
  for (Dim d : all_dims) {
    for (Side s : {Side::low, Side::high})
      if (ghosts(d, s) < 0 || ghosts(d, s) > max_elements)
        throw InvalidArgument(operation, std::string("ghosts, ") + name(d), std::to_string(ghosts(d, s)),
                              ghosts(d, s) < 0 ? "at least 0" : "at most " + std::to_string(max_elements));
    if (std::find(axes.begin(), axes.end(), d) != axes.end()) continue;
    const Index extent = distribution.extents()[d];
    if (extent != 1 || ghosts(d, Side::low) != 0 || ghosts(d, Side::high) != 0)
      throw InvalidArgument(
          operation, std::string("extent of ") + name(d), std::to_string(extent),
          "1 without ghosts, because a View of " + std::to_string(R) + " spatial dimensions has no " + name(d));
  }
  owned_ = distribution_.owned(rank);
  check_extents(std::string(operation) + ", owned box and ghosts", extents_of(box_with_ghosts()));
}

template <class T, int R, class Mem>
void DistributedView<T, R, Mem>::attach(T* data, std::span<const Dim> order, std::span<const Index> extents,
                                        std::span<const Index> strides) {
  constexpr const char* operation = "aloni::views::DistributedView::wrap";
  const Box box = box_with_ghosts();
  const auto check_extent = [&](Dim d, Index extent) {
    if (extent == box.extent(d)) return;
    throw InvalidArgument(operation, std::string("extent of ") + name(d), std::to_string(extent),
                          std::to_string(box.extent(d)) + ": " + std::to_string(owned_.extent(d)) + " owned by rank " +
                              std::to_string(rank_) + " and " + std::to_string(ghosts_(d, Side::low)) + " + " +
                              std::to_string(ghosts_(d, Side::high)) + " ghosts");
  };
  for (std::size_t axis = 0; axis < order.size(); ++axis) {
    if (std::ranges::find(axes, order[axis]) == axes.end() ||
        std::ranges::find(order.first(axis), order[axis]) != order.begin() + static_cast<std::ptrdiff_t>(axis))
      throw InvalidArgument(operation, "order[" + std::to_string(axis) + "]", name(order[axis]),
                            "a dimension of the View, each at most once");
  }
  std::array<Index, R + 2> own_extents{}, own_strides{};
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const auto axis = static_cast<std::size_t>(std::ranges::find(order, axes[i]) - order.begin());
    own_extents[i] = axis < order.size() ? extents[axis] : 1;
    own_strides[i] = axis < order.size() ? strides[axis] : 1;
    check_extent(axes[i], own_extents[i]);
  }
  data_ = view_type(data, layout(own_extents, own_strides));
}

template <class T, int R, class Mem>
void DistributedView<T, R, Mem>::check_fresh(const char* function) const {
  if constexpr (config::debug_checks) {
    if (ghost_state() == GhostState::stale)
      throw StaleGhosts(
          std::string("aloni::views::DistributedView::") + function, "ghosts of \"" + label_ + "\"", "stale",
          "an exchange after the owned values changed; with_ghosts_unchecked() and local_unchecked() skip this check");
  } else {
    (void)function;
  }
}

template <class T, int R, class Mem>
void DistributedView<T, R, Mem>::check_inside(const char* function, const Box& global) const {
  if (!contains(box_with_ghosts(), global))
    throw InvalidArgument(
        std::string("aloni::views::DistributedView::") + function, "global", to_string(global),
        "a box inside the owned box and ghosts of rank " + std::to_string(rank_) + ", " + to_string(box_with_ghosts()));
}

template <class T, int R, class Mem>
Box DistributedView<T, R, Mem>::ghost_box(Dim d, Side side) const {
  Box box = box_with_ghosts();
  if (side == Side::low)
    box.set(d, box.lower(d), owned_.lower(d));
  else
    box.set(d, owned_.upper(d), box.upper(d));
  return box;
}

template <class T, int R, class Mem>
typename DistributedView<T, R, Mem>::view_type DistributedView<T, R, Mem>::subview(const Box& global) const {
  check_inside("subview", global);
  const Box all = box_with_ghosts();
  std::array<std::pair<Index, Index>, R + 2> ranges;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    // An empty box may lie outside: its ranges start at index 0 and keep its extents.
    const Index lo = global.empty() ? 0 : global.lower(axes[i]) - all.lower(axes[i]);
    ranges[i] = {lo, std::min(lo + global.extent(axes[i]), all.extent(axes[i]))};
  }
  return split(data_, ranges, std::make_index_sequence<R + 2>{});
}

template <class T, int R, class Mem>
LocalView<T, Mem> DistributedView<T, R, Mem>::local(const Box& global) const {
  const view_type part = subview(global);
  std::array<Index, num_dims> extents{1, 1, 1, 1, 1}, strides{1, 1, 1, 1, 1};
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const auto d = static_cast<std::size_t>(position(axes[i]));
    extents[d] = static_cast<Index>(part.extent(i));
    strides[d] = static_cast<Index>(part.stride(static_cast<int>(i)));
  }
  return LocalView<T, Mem>(part.data(), layout(extents, strides));
}

template <class T, int R, class Mem>
Box DistributedView<T, R, Mem>::interior(const GhostWidths& reach) const {
  Box box = owned_;
  for (Dim d : all_dims) {
    const Index lo = std::min(owned_.lower(d) + reach(d, Side::low), owned_.upper(d));
    box.set(d, lo, std::max(lo, owned_.upper(d) - reach(d, Side::high)));
  }
  return box;
}

template <class T, int R, class Mem>
std::vector<Box> DistributedView<T, R, Mem>::boundary(const GhostWidths& reach) const {
  return difference(owned_, interior(reach));
}

template <class T, int R, class Mem>
GlobalIndex<R> DistributedView<T, R, Mem>::global_index() const {
  GlobalIndex<R> index{};
  for (std::size_t i = 0; i < axes.size(); ++i) index.first[i] = owned_.lower(axes[i]);
  return index;
}

namespace detail {

void check_same_distribution(const Distribution& destination, int destination_rank, const Distribution& source,
                             int source_rank) {
  if (destination != source)
    throw InvalidArgument("aloni::views::deep_copy", "distribution of the source", to_string(source),
                          to_string(destination) +
                              ", the distribution of the destination; use halo::Redistribution between distributions");
  if (destination_rank != source_rank)
    throw InvalidArgument("aloni::views::deep_copy", "rank of the source", std::to_string(source_rank),
                          std::to_string(destination_rank) + ", the rank of the destination");
}

}  // namespace detail

#define INSTANTIATE(T, Exec)                                \
  template class DistributedView<T, 1, Exec::memory_space>; \
  template class DistributedView<T, 2, Exec::memory_space>; \
  template class DistributedView<T, 3, Exec::memory_space>;
ALONI_INSTANTIATE_FOR_SPACES(INSTANTIATE)
ALONI_INSTANTIATE_SPACES(INSTANTIATE, std::int32_t)
ALONI_INSTANTIATE_SPACES(INSTANTIATE, std::int64_t)
#undef INSTANTIATE

}  // namespace aloni::views

#pragma once
// A DistributedView without its type and spatial rank, as halo exchange and redistribution take it. A DistributedView
// converts to it implicitly.
#include <aloni/core/comm/communicator.hpp>
#include <aloni/halo/transfer.hpp>
#include <aloni/views/distributed_view.hpp>

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace aloni::halo {

template <class MemorySpace>
struct Field {
  /// T: float, double, std::int32_t, std::int64_t.
  std::variant<TensorRef<float, MemorySpace>, TensorRef<double, MemorySpace>, TensorRef<std::int32_t, MemorySpace>,
               TensorRef<std::int64_t, MemorySpace>>
      tensor;
  views::Box box;  ///< owned box and ghosts
  views::Distribution distribution;
  int rank = 0;
  std::string label;
  BoundaryConditions boundaries;
  NeededBox needed;  ///< empty: the owned box and all ghosts of each View; the ranks gather these boxes

  /// Implicit on purpose: a list of Views is a list of fields.
  /// @pre needed_box, if given, returns equal boxes on all ranks; for each rank, inside that rank's box with ghosts
  template <class T, int SpatialRank>
  Field(const views::DistributedView<T, SpatialRank, MemorySpace>& view,
        const BoundaryConditions& boundary_conditions = {}, NeededBox needed_box = {})
      : tensor(TensorRef<T, MemorySpace>{view.local_unchecked(), view.box_with_ghosts(), view.keep_alive(),
                                         view.shared_ghost_state()}),
        box(view.box_with_ghosts()),
        distribution(view.distribution()),
        rank(view.rank()),
        label(view.label()),
        boundaries(boundary_conditions),
        needed(std::move(needed_box)) {}

  /// A tensor without a DistributedView, for example the input of a network. Its owned box alone is filled.
  /// @pre `owned` covers the box that `rank` owns in the distribution
  template <class T>
  Field(const TensorRef<T, MemorySpace>& owned, const views::Distribution& of, int rank_of_field, std::string name)
      : tensor(owned),
        box(owned.box),
        distribution(of),
        rank(rank_of_field),
        label(std::move(name)),
        needed([of](int r) { return of.owned(r); }) {}
};

namespace detail {

/// The boxes of all ranks, in the order of ranks. Collective.
std::vector<views::Box> gather_boxes(const comm::Communicator& comm, const views::Box& mine);

/// Collective. Throws InvalidArgument on all ranks unless all ranks pass equal digests.
void check_agreement(const comm::Communicator& comm, const char* operation, std::uint64_t digest);

/// @pre the distribution spans the communicator, and the field was made for this rank. Throws InvalidArgument.
void check_field(const comm::Communicator& comm, const char* operation, const std::string& label,
                 const views::Distribution& distribution, int rank);

/// The field's own function, or the gathered boxes of all ranks. Collective.
template <class MemorySpace>
NeededBox needed_of(const comm::Communicator& comm, const Field<MemorySpace>& field) {
  if (field.needed) return field.needed;
  return [boxes = gather_boxes(comm, field.box)](int rank) { return boxes[static_cast<std::size_t>(rank)]; };
}

}  // namespace detail

}  // namespace aloni::halo

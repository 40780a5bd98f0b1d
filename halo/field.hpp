#pragma once
// What an exchange or a redistribution needs to know about one DistributedView, without its type and spatial rank;
// made implicitly from it.
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
  views::Box box;  ///< with ghosts
  views::Distribution distribution;
  int rank = 0;
  std::string label;
  BoundaryConditions boundaries;
  NeededBox needed;  ///< empty: everything that the View has room for, which the ranks tell each other

  /// Implicit on purpose: a list of Views is a list of fields. `needed`, when given, is a function of the rank with
  /// equal answers on all ranks, inside the box with ghosts of each.
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
};

namespace detail {

/// Collective: one box of each rank, in the order of ranks.
std::vector<views::Box> gather_boxes(const comm::Communicator& comm, const views::Box& mine);

/// Collective. Throws InvalidArgument on all ranks unless all pass the same digest.
void check_agreement(const comm::Communicator& comm, const char* operation, std::uint64_t digest);

/// @pre the distribution spans the communicator, and the field was made for this rank. Throws InvalidArgument.
void check_field(const comm::Communicator& comm, const char* operation, const std::string& label,
                 const views::Distribution& distribution, int rank);

/// Collective. The function that was given, or what the ranks say.
template <class MemorySpace>
NeededBox needed_of(const comm::Communicator& comm, const Field<MemorySpace>& field) {
  if (field.needed) return field.needed;
  return [boxes = gather_boxes(comm, field.box)](int rank) { return boxes[static_cast<std::size_t>(rank)]; };
}

}  // namespace detail

}  // namespace aloni::halo

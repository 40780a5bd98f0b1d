#pragma once
// A tensor of the caller that a network reads where it lies: the field of a simulation.
//
//   views::DistributedView<float, 2> density = …;                       // the solver's rows, uneven, with ghosts
//   Network<float> network(comm, queue, net, strategy, 1, parameters, {}, density);
//   ...                                                                 // the solver writes density
//   network.forward(queue, Mode::evaluation);                           // reads density, copies nothing before
//
// The distribution may be any: other grids than the network's, uneven or empty blocks, replicated dimensions.
// The memory may have any layout. Ghosts around the owned box are neither read nor written. The network never writes
// the tensor.
//
// The first layer reads the tensor itself if it needs the same distribution, no ghosts, and the owned box is dense on
// all ranks. Otherwise a redistribution from the tensor fills the first layer's buffer, ghosts included.
//
// The values are read in each forward pass, and in the backward pass too if the first layer reads the tensor itself.
// Until then only kernels on the queue of the step may change them.
#include <aloni/views/distributed_view.hpp>
#include <aloni/views/distribution.hpp>
#include <aloni/views/local_view.hpp>

#include <memory>
#include <utility>

namespace aloni::nn {

/// T: type of the network's activations.
template <class T, class Mem>
struct AdoptedInput {
  views::LocalView<T, Mem> owned;  ///< the box that `rank` owns
  views::Distribution distribution;
  int rank = 0;
  std::shared_ptr<const void> owner = {};  ///< keeps the memory alive as long as the network; may be null

  AdoptedInput(const views::LocalView<T, Mem>& owned_values, views::Distribution of, int rank_of_values,
               std::shared_ptr<const void> keeps_alive = {})
      : owned(owned_values), distribution(std::move(of)), rank(rank_of_values), owner(std::move(keeps_alive)) {}
  /// Implicit on purpose: the constructor of Network takes a DistributedView.
  template <int SpatialRank>
  AdoptedInput(const views::DistributedView<T, SpatialRank, Mem>& view)
      : owned(view.local_owned()), distribution(view.distribution()), rank(view.rank()), owner(view.keep_alive()) {}
};

}  // namespace aloni::nn

#pragma once
// Made-up data: each value is a function of the seed, the step and the global index. So the data are equal for any
// number of ranks and any strategy, take no memory, and exist for every network.
#include <aloni/core/queue.hpp>
#include <aloni/nn/network.hpp>
#include <aloni/nn/network_description.hpp>

#include <cstdint>

namespace aloni::nn {

/// Fills this rank's input() with uniform values in [0, 1). Fills labels() with uniform classes, or targets() with 0
/// and 1. Not collective. Asynchronous on the queue. @pre `network` was made from `description`
template <class T, class Exec>
void fill_synthetic(const Queue<Exec>& queue, const NetworkDescription& description, std::uint64_t seed,
                    std::uint64_t step, Network<T, Exec>& network);

}  // namespace aloni::nn

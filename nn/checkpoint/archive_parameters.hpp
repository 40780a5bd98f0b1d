#pragma once
// The tensors of a Parameters object in a checkpoint.
#include <aloni/core/queue.hpp>
#include <aloni/nn/checkpoint/archive.hpp>
#include <aloni/nn/network_description.hpp>
#include <aloni/nn/parameters.hpp>

#include <string>
#include <vector>

namespace aloni::nn::checkpoint {

/// Values and running statistics only. As below otherwise.
template <class T, class Exec>
void archive_weights(Archive& archive, const Queue<Exec>& queue, const NetworkDescription& network,
                     const Parameters<T, Exec>& parameters);

/// Values, states of the optimiser and running statistics: "conv1.weight", "conv1.weight.momentum",
/// "bn1.running_mean", "bn1.running_variance". Running statistics are those of each rank; ranks that save them average
/// them before (Network::synchronise_statistics).
/// Not collective. @pre the parameters are made for `network`
/// Throws as Archive.
template <class T, class Exec>
void archive_parameters(Archive& archive, const Queue<Exec>& queue, const NetworkDescription& network,
                        const Parameters<T, Exec>& parameters);

/// One more value per parameter, for example a moving average: "conv1.weight" + suffix. `flats`: one per segment, with
/// the extents of its values. Not collective. Throws as Archive.
template <class T, class Exec>
void archive_flats(Archive& archive, const Queue<Exec>& queue, const Parameters<T, Exec>& parameters,
                   const std::vector<typename Parameters<T, Exec>::Flat>& flats, const std::string& suffix);

}  // namespace aloni::nn::checkpoint

#pragma once
// Made-up samples: each element is a function of the seed, the stream and its position in the whole array. They take no
// memory and no file, and are equal for any split.
#include <aloni/nn/data/dataset.hpp>

#include <cstdint>
#include <memory>

namespace aloni::nn {

/// float32 in [0, 1): multiples of 2^-24. Throws InvalidArgument as SampleArray.
std::shared_ptr<const SampleArray> synthetic_values(Index samples, const views::Extents& extents, std::uint64_t seed,
                                                    std::uint64_t stream = 0);
/// int32 from 0 to classes - 1. Throws InvalidArgument as SampleArray. @pre classes ≥ 1
std::shared_ptr<const SampleArray> synthetic_labels(Index samples, const views::Extents& extents, Index classes,
                                                    std::uint64_t seed, std::uint64_t stream = 1);

}  // namespace aloni::nn

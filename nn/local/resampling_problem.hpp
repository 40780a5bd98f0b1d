#pragma once
// The shape of one rank's part of a layer whose windows a range map describes (adaptive pooling, up-sampling), as plain
// data. Windows and weights follow from global indices, so the problem has the global index of each box's first
// element.
#include <aloni/core/index.hpp>
#include <aloni/halo/range_map.hpp>

#include <array>
#include <string>

namespace aloni::nn::local {

struct ResamplingProblem {
  Index samples = 0, channels = 0;
  std::array<halo::RangeMap1D, 3> map{};  ///< depth, height, width of the whole tensors; one rule for all
  std::array<Index, 3> input{1, 1, 1}, output{1, 1, 1};              ///< extents of the local boxes; may be 0
  std::array<Index, 3> input_lower{0, 0, 0}, output_lower{0, 0, 0};  ///< global indices of their first elements

  friend constexpr bool operator==(const ResamplingProblem&, const ResamplingProblem&) = default;
};

std::string to_string(const ResamplingProblem& problem);

/// Throws InvalidArgument if an extent is negative, a map is invalid, or the rules differ. It also throws if a box
/// extends beyond its tensor, or if the input box lacks an input of the output box. It also throws if a window may have
/// more than 2^31 - 1 elements.
void validate(const ResamplingProblem& problem);

}  // namespace aloni::nn::local

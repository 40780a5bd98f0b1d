#pragma once
// Where the sums of squares of an update lie: clipping of gradients and LARS need a norm of each tensor. Pure.
//
// A rank adds the squares of the elements that only it and its replicas keep (ParameterPlace::own), in chunks of
// `NormLayout::chunk` elements. The chunks of a tensor are then added in their order. So the sum has the same bits for
// every number of threads, and on all ranks that keep the same block.
//
// A whole tensor has one sum, equal on all ranks. A tensor in B blocks has B sums, one per block. The ranks 0 to B-1
// write the sum of their block, all others zeros. A sum over all ranks then only adds zeros, so it has the same bits
// for every algorithm. Each rank adds the B sums in their order.
#include <aloni/nn/plan/parameter_layout.hpp>

#include <vector>

namespace aloni::nn {

/// Consecutive elements of one tensor in the memory of its segment.
struct NormRun {
  Index begin = 0, elements = 0;
  Index first_chunk = 0;  ///< in the segment; a run has ⌈elements / chunk⌉ chunks
};

/// The sums of one tensor.
struct NormTensor {
  Index begin = 0, elements = 0;         ///< in the memory of its segment, with elements that other ranks sum
  Index first_chunk = 0, end_chunk = 0;  ///< in the segment
  Index first_sum = 0;                   ///< in the sums of whole tensors, or in those of split tensors
  int blocks = 1;                        ///< number of sums
  bool is_weight = false;                ///< no bias, gamma or beta
};

/// Of one segment.
struct NormSegment {
  std::vector<NormRun> runs = {};
  Index chunks = 0, elements = 0;
  std::size_t first_tensor = 0, tensors = 0;  ///< in NormLayout::tensors
  int block = 0;                              ///< of this rank
  bool is_first_copy = true;                  ///< false: another rank writes the sums of this block, and this one zeros
};

struct NormLayout {
  static constexpr Index chunk = 4096;

  std::vector<NormSegment> segments = {};
  std::vector<NormTensor> tensors = {};  ///< by segment, then by place in the segment
  Index chunks = 0;                      ///< most of a segment
  Index whole_sums = 0, block_sums = 0;  ///< of whole tensors, and of split tensors
};

/// @pre `parameters` are those of this rank
NormLayout lay_out_norms(const ParameterLayout& parameters, int rank);

}  // namespace aloni::nn

#pragma once
// The last facts of a plan that follow from the calls of its convolutions: their scratch memory, and the buffers that
// they read beyond the regions of their nodes.
#include <aloni/nn/plan/detail/builder.hpp>

namespace aloni::nn::detail {

/// Adds scratch memory for each stream. All convolutions by oneDNN share one, as large as the largest of them needs.
/// They share another one for filters in the order of the kernels, unless each convolution keeps its filters. Hosts
/// compute float16 in copies of float, for which all convolutions share memory too. @pre the plan has all its nodes
void add_convolution_scratch(PlanBuilder& builder);

/// Sets PlanBuffer::read_beyond. On one rank all cells of an input are written before its readers run.
/// @pre the plan has all its nodes
void mark_reads_beyond(StepPlan& plan);

}  // namespace aloni::nn::detail

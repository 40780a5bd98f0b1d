#pragma once
// The last facts of a plan that follow from the calls of its convolutions: their scratch memory, and the buffers that
// they read beyond the regions of their nodes.
#include <aloni/nn/plan/detail/builder.hpp>

namespace aloni::nn::detail {

/// Adds for each stream one scratch memory for all convolutions by oneDNN, as large as the largest of them needs, and
/// one for filters in the order of its kernels unless each convolution keeps them. Hosts compute float16 in copies of
/// float, for which all convolutions share memory too. @pre the plan has all its nodes
void add_convolution_scratch(PlanBuilder& builder);

/// Sets PlanBuffer::read_beyond. On one rank all cells of an input are written before its readers run.
/// @pre the plan has all its nodes
void mark_reads_beyond(StepPlan& plan);

}  // namespace aloni::nn::detail

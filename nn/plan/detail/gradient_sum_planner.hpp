#pragma once
// Plans the sums of gradients over ranks. Beside the backward pass they travel in buckets, from the last gradients to
// the first. Each bucket has at least MachineDescription::bucket_bytes, except the last one of a segment. A bucket
// starts as soon as the backward pass has left its first layer. Otherwise each segment has one sum after the backward
// pass. The loss is in the first bucket of the first segment. With micro-batches a bucket is accumulated before it is
// summed.
#include <aloni/nn/plan/detail/builder.hpp>
#include <aloni/nn/plan/parameter_layout.hpp>
#include <aloni/nn/plan/plan_step.hpp>

#include <vector>

namespace aloni::nn::detail {

class GradientSumPlanner {
 public:
  /// `gradients`: one for each of ParameterLayout::descriptions. `accumulated`: their sums over micro-batches, or
  /// empty. `loss`: no_buffer if the step has none.
  /// The references outlive this object.
  GradientSumPlanner(PlanBuilder& builder, const ParameterLayout& parameters, const std::vector<BufferId>& gradients,
                     const std::vector<BufferId>& accumulated, BufferId loss, GradientSums sums);

  /// Adds the sums that start when the backward pass leaves the layer. Every rank calls it, for all layers from the
  /// last one to the first.
  void add_behind(int layer);
  /// Adds the sums that start after the backward pass. Every rank calls it.
  void add_rest();

 private:
  struct Bucket {
    int layer = 0;  ///< first layer
    ReductionWork work;
    std::vector<BufferId> accumulated = {};  ///< of the gradients in `work`; empty without micro-batches
  };
  void add_buckets(int segment, BufferId loss);
  void add(const Bucket& bucket);
  void accumulate(const Bucket& bucket);
  bool beside_backward() const { return sums_ == GradientSums::beside_backward; }

  PlanBuilder& builder_;
  const ParameterLayout& parameters_;
  const std::vector<BufferId>& gradients_;
  const std::vector<BufferId>& accumulated_;
  GradientSums sums_;
  std::vector<Bucket> buckets_ = {};  ///< in the order in which the backward pass leaves the layers, on all ranks
};

}  // namespace aloni::nn::detail

#include <aloni/nn/plan/detail/gradient_sum_planner.hpp>

#include <aloni/nn/plan/detail/reduction_members.hpp>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <span>
#include <utility>

namespace aloni::nn::detail {

GradientSumPlanner::GradientSumPlanner(PlanBuilder& builder, const ParameterLayout& parameters,
                                       const std::vector<BufferId>& gradients, const std::vector<BufferId>& accumulated,
                                       BufferId loss, GradientSums sums)
    : builder_(builder), parameters_(parameters), gradients_(gradients), accumulated_(accumulated), sums_(sums) {
  for (std::size_t s = 0; s < parameters.blocks.size(); ++s) add_buckets(static_cast<int>(s), loss);
  std::ranges::stable_sort(buckets_, std::greater{}, &Bucket::layer);
}

void GradientSumPlanner::add_buckets(int segment, BufferId loss) {
  const auto s = static_cast<std::size_t>(segment);
  const int blocks = parameters_.blocks[s];
  const std::vector<int> members = members_of_gradients(blocks, builder_.ranks(), builder_.rank());
  std::vector<std::size_t> mine;
  for (std::size_t p = 0; p < parameters_.places.size(); ++p)
    if (parameters_.places[p].segment == s) mine.push_back(p);
  const bool has_loss = segment == 0 && builder_.plan().kind == StepKind::training;
  Index end = parameters_.lengths[s], size = 0;
  ReductionWork work;
  std::vector<BufferId> accumulated_here;
  const auto close = [&](int layer, Index first) {
    work.members = members;
    work.elements = end - first;
    work.type = builder_.parameters();
    work.segment = segment;
    work.first = first;
    work.with_loss = has_loss && end == parameters_.lengths[s];
    work.partial = sums_ == GradientSums::partial;
    if (work.with_loss) {
      work.elements += 2;
      work.buffers.push_back(loss);
    }
    buckets_.push_back({layer, std::exchange(work, {}), std::exchange(accumulated_here, {})});
    end = first;
    size = 0;
  };
  for (std::size_t k = mine.size(); k-- > 0;) {
    const ParameterDescription& d = parameters_.descriptions[mine[k]];
    work.buffers.push_back(gradients_[mine[k]]);
    if (!accumulated_.empty()) accumulated_here.push_back(accumulated_[mine[k]]);
    // Ranks may keep blocks of slightly different sizes. Buckets must be equal on all ranks: the mean size counts.
    size += d.extents.size() / blocks * bytes_of(builder_.parameters());
    const bool ends_layer = k == 0 || parameters_.descriptions[mine[k - 1]].layer != d.layer;
    const bool is_large = beside_backward() && size >= builder_.machine().bucket_bytes;
    if (!ends_layer || (k > 0 && !is_large)) continue;
    close(d.layer, parameters_.places[mine[k]].offset);
  }
  if (mine.empty() && has_loss) close(0, 0);  // no layer has parameters: the loss alone
}

void GradientSumPlanner::add_behind(int layer) {
  if (!beside_backward()) return;
  for (const Bucket& bucket : buckets_)
    if (bucket.layer == layer) add(bucket);
}

void GradientSumPlanner::add_rest() {
  if (beside_backward()) return;
  for (const Bucket& bucket : buckets_) add(bucket);
}

void GradientSumPlanner::add(const Bucket& bucket) {
  if (builder_.plan().accumulates) accumulate(bucket);
  builder_.begin("sums of gradients", bucket.layer, StepPhase::backward);
  PlanBuilder::Regions regions;
  for (const BufferId b : bucket.work.buffers) regions.push_back(builder_.whole(b));
  builder_.reduction("", bucket.work, std::move(regions));
}

void GradientSumPlanner::accumulate(const Bucket& bucket) {
  builder_.begin("accumulated gradients", bucket.layer, StepPhase::backward);
  const std::span all(bucket.work.buffers);
  const std::span gradients = all.first(bucket.accumulated.size());
  AccumulationWork work{.segment = bucket.work.segment,
                        .first = bucket.work.first,
                        .elements = bucket.work.elements,
                        .with_loss = bucket.work.with_loss,
                        .gradients = {gradients.begin(), gradients.end()},
                        .sums = bucket.accumulated};
  // A micro-batch writes the sums, the last one the gradients. The sums of the loss have no buffer of the plan.
  PlanBuilder::Regions regions;
  for (const BufferId b : all) regions.push_back(builder_.whole(b));
  for (const BufferId b : bucket.accumulated) regions.push_back(builder_.whole(b));
  builder_.add("", std::move(work), regions, regions);
}

}  // namespace aloni::nn::detail

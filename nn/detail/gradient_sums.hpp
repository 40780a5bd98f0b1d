#pragma once
// All-reduce of a network's gradients: in buckets, as nodes of the backward step graph, or all at once after the
// step.
#include <aloni/core/comm/view_all_reduce.hpp>
#include <aloni/core/queue.hpp>
#include <aloni/nn/parameters.hpp>
#include <aloni/nn/step.hpp>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

namespace aloni::nn::detail {

template <class T, class Exec>
class GradientSums {
 public:
  using AllParameters = Parameters<T, Exec>;
  using Segment = typename AllParameters::Segment;

  /// Collective. The parameters must outlive this object.
  GradientSums(const comm::Communicator& comm, const Queue<Exec>& queue, const AllParameters& parameters)
      : comm_(comm), parameters_(parameters) {
    // On a host the collectives' engine is faster than kernels that read other ranks' memory, and its sums run beside
    // the backward pass.
    constexpr bool on_host = Kokkos::SpaceAccessibility<Kokkos::HostSpace, typename Exec::memory_space>::accessible;
    for (const Segment& segment : parameters.segments())
      reductions_.emplace_back(summing(segment), queue, segment.gradients, comm::BuiltInReduction<T>{}, !on_host);
    for (const Segment& segment : parameters.segments()) add_buckets(segment);
    // All ranks sort the buckets in the order in which the backward pass leaves the layers.
    std::ranges::stable_sort(buckets_, std::greater{}, &Bucket::layer);
    requests_.resize(buckets_.size());
  }
  GradientSums(const GradientSums&) = delete;
  GradientSums& operator=(const GradientSums&) = delete;

  /// Whether add_to() is available. Equal on all ranks.
  bool can_run_beside() const {
    return std::ranges::all_of(reductions_, [](const auto& r) { return r.can_start(); });
  }
  /// Adds the sums of all gradients that are complete after the backward pass of `layer`. Call it from the last layer
  /// to the first. This object must outlive the step.
  void add_to(Step<Exec>& step, int layer) {
    for (std::size_t i = 0; i < buckets_.size(); ++i) {
      if (buckets_[i].layer != layer) continue;
      step.set_scope("aloni::nn::reduce_gradients");
      step.collective(
          "", buckets_[i].accesses,
          [this, i](const Queue<Exec>& queue) {
            const Bucket& b = buckets_[i];
            requests_[i] = reductions_[b.segment].start(queue, b.first, b.length);
          },
          [this, i](const Queue<Exec>& queue) {
            const Bucket& b = buckets_[i];
            reductions_[b.segment].finish(queue, requests_[i], b.first, b.length);
          });
    }
  }
  /// Runs all sums, as ViewAllReduce::run().
  void run(const Queue<Exec>& queue) const {
    for (const auto& reduction : reductions_) reduction.run(queue);
  }

 private:
  /// Gradients that are summed together, as soon as the backward pass has left their first layer.
  struct Bucket {
    int layer;                     ///< first layer
    std::size_t segment;           ///< segment of the gradients
    Index first, length;           ///< range in the segment's gradients
    std::vector<Access> accesses;  ///< the gradients, as written by their layers
  };
  static constexpr Index bucket_bytes = Index{1} << 20;

  /// The ranks over which the gradients are summed.
  const comm::Communicator& summing(const Segment& segment) const { return segment.sum ? *segment.sum : comm_; }

  /// Buckets from the last gradients to the first, of at least bucket_bytes each, except the last bucket of a
  /// segment. The loss is in the first bucket.
  void add_buckets(const Segment& segment) {
    const auto& tensors = parameters_.descriptions();
    std::vector<int> mine;
    for (int p = 0; p < static_cast<int>(tensors.size()); ++p)
      if (parameters_.blocks(p).count() == segment.blocks) mine.push_back(p);
    // Ranks may keep blocks of slightly different sizes. Buckets must be equal on all ranks, so the mean size counts.
    const auto bytes = [&](int p) {
      return tensors[static_cast<std::size_t>(p)].extents.size() / segment.blocks * static_cast<Index>(sizeof(T));
    };
    const auto index = static_cast<std::size_t>(&segment - parameters_.segments().data());
    Index end = static_cast<Index>(segment.gradients.extent(0)), size = 0;
    std::vector<Access> accesses;
    for (std::size_t k = mine.size(); k-- > 0;) {
      const int layer = tensors[static_cast<std::size_t>(mine[k])].layer;
      const auto gradient = parameters_.gradient(mine[k]);
      accesses.push_back(writes(gradient));
      size += bytes(mine[k]);
      const bool ends_layer = k == 0 || tensors[static_cast<std::size_t>(mine[k - 1])].layer != layer;
      if (!ends_layer || (k > 0 && size < bucket_bytes)) continue;
      const auto first = static_cast<Index>(gradient.data() - segment.gradients.data());
      buckets_.push_back({layer, index, first, end - first, std::move(accesses)});
      accesses.clear();
      end = first;
      size = 0;
    }
    if (end > 0) buckets_.push_back({0, index, 0, end, {}});  // no layer has parameters: the loss alone
  }

  comm::Communicator comm_;
  const AllParameters& parameters_;
  std::vector<comm::ViewAllReduce<T, Exec>> reductions_;  ///< one per segment
  std::vector<Bucket> buckets_;
  std::vector<comm::Request> requests_;  ///< one per bucket, in flight
};

}  // namespace aloni::nn::detail

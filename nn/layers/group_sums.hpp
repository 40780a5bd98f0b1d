#pragma once
// Sums in double over a group of ranks: the statistics of normalisations. They travel through host memory.
//
//   GroupSums<Exec> sums(comm, queue, "aloni::nn::my_sums", members, 2 * channels);
//   step.kernel("sums of this rank", {writes(sums.values())}, …);
//   sums.add_to(step);
//   step.kernel("mean", {reads(sums.values()), …}, …);
#include <aloni/core/comm/communicator.hpp>
#include <aloni/core/queue.hpp>
#include <aloni/nn/step.hpp>

#include <Kokkos_Core.hpp>

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace aloni::nn {

template <class Exec>
class GroupSums {
 public:
  using Vector = Kokkos::View<double*, typename Exec::memory_space>;

  GroupSums() = default;
  /// `members`: ascending, including this rank. `size`: number of values, equal on all members. Collective over
  /// `members`.
  GroupSums(const comm::Communicator& comm, const Queue<Exec>& queue, const std::string& label,
            const std::vector<int>& members, std::size_t size)
      : values_(Kokkos::view_alloc(queue.space(), label), size),
        host_(Kokkos::create_mirror_view(values_)),
        reason_(label + ": sums of this rank are needed on the host") {
    if (members.size() > 1) group_.emplace(comm.subgroup(members));
  }

  const Vector& values() const { return values_; }

  /// Adds the sum over the group to the step. This object must outlive the step.
  void add_to(Step<Exec>& step) {
    if (!adds()) return;
    step.collective(
        "sums over ranks", {writes(values_)},
        [this](const Queue<Exec>& queue) {
          Kokkos::deep_copy(queue.space(), host_, values_);
          queue.fence(reason_);
          request_ = group_->start_all_reduce(std::span<double>(host_.data(), host_.extent(0)), comm::Reduction::sum);
        },
        [this](const Queue<Exec>& queue) {
          group_->wait(request_);
          Kokkos::deep_copy(queue.space(), values_, host_);
        });
  }

 private:
  // There are no values if no rank of the group has samples.
  bool adds() const { return group_.has_value() && host_.extent(0) > 0; }

  Vector values_;
  typename Vector::HostMirror host_;
  std::string reason_;
  std::optional<comm::Communicator> group_;
  comm::Request request_;
};

}  // namespace aloni::nn

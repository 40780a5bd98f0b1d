#include <aloni/nn/run/binder.hpp>

#include <aloni/core/comm/event_queue.hpp>
#include <aloni/core/error.hpp>
#include <aloni/nn/detail/instantiate.hpp>
#include <aloni/nn/plan/detail/reduction_members.hpp>

#include <algorithm>
#include <span>
#include <type_traits>
#include <utility>
#include <variant>

namespace aloni::nn {

using views::Box;

template <class T, class Exec>
Binder<T, Exec>::Binder(const comm::Communicator& comm, const Queue<Exec>& queue, PlanMemory<Exec>& memory,
                        const MachineDescription& machine, AllParameters* parameters)
    : comm_(comm),
      groups_(comm),
      queue_(queue),
      memory_(memory),
      direct_bytes_(static_cast<std::size_t>(machine.direct_bytes)),
      consolidate_below_(static_cast<std::size_t>(machine.consolidate_below)),
      parameters_(parameters),
      contributions_(comm.size()) {
  for (int s = 0; s < most_streams; ++s) scratches_.push_back(std::make_shared<local::Scratch>());
}

template <class T, class Exec>
void Binder<T, Exec>::bind(const StepPlan& plan, int n, Step<Exec>& step) {
  auto& add = bound_[{&plan, n}];
  if (add) return add(step);
  if (!plan.keeps_filters)
    for (const auto& scratch : scratches_) scratch->share_filters();
  const PlanNode& planned = plan.nodes[static_cast<std::size_t>(n)];
  const bool named = planned.label.starts_with("aloni::");
  StepNode node{.label = named ? planned.label : "aloni::nn::" + planned.label,
                .kind = planned.kind(),
                .accesses = memory_.accesses(plan, planned),
                .plan_node = n,
                .border = is_border(planned.work),
                .copies = is_copy(planned.work),
                .changing_arguments = changing_arguments(planned.work)};
  add = std::visit(
      [&](const auto& work) -> AddToStep {
        using W = std::decay_t<decltype(work)>;
        if constexpr (std::is_same_v<W, TransferWork>) {
          return bind_transfer(plan, work, std::move(node));
        } else if constexpr (std::is_same_v<W, ReductionWork>) {
          return bind_reduction(plan, work, std::move(node));
        } else {
          return [node = std::move(node), run = kernel(plan, work)](Step<Exec>& s) { s.kernel(node, run); };
        }
      },
      planned.work);
  add(step);
}

template <class T, class Exec>
std::size_t Binder<T, Exec>::bytes() const {
  std::size_t sum = 0;
  for (const auto& scratch : scratches_) sum += scratch->bytes();
  for (const auto& [name, c] : convolutions_) {
    sum += c->kernels.bytes() + c->sum_kernels.bytes();
    for (const auto& part : c->parts)
      if (part.copied()) sum += (part.w.size() + part.dw.size()) * sizeof(Parameter);
  }
  for (const auto& [name, transfer] : transfers_) sum += transfer.buffer_bytes();
  return sum;
}

template <class T, class Exec>
std::uint64_t Binder<T, Exec>::filter_refreshes() const {
  std::uint64_t sum = 0;
  for (const auto& [name, c] : convolutions_) sum += c->refreshed;
  return sum;
}

// --- transfers ---

template <class T, class Exec>
template <class U>
halo::TransferItem<U, typename Exec::memory_space> Binder<T, Exec>::item_of(const StepPlan& plan,
                                                                            const TransferItemPlan& item) const {
  using Item = halo::TransferItem<U, Mem>;
  const auto ref = [&](BufferId b, const Box& box, Index channels) {
    return halo::TensorRef<U, Mem>{memory_.template view<U>(plan, b, box), shift_channels(box, -channels),
                                   memory_.owner(plan, b)};
  };
  const auto source = ref(item.source, item.source_box, item.source_channels);
  if (item.source == item.destination) return Item::in_place(source, item.plan);
  return Item::between(source, ref(item.destination, item.destination_box, item.destination_channels), item.plan);
}

template <class T, class Exec>
halo::AnyTransferItem<typename Exec::memory_space> Binder<T, Exec>::item(const StepPlan& plan,
                                                                         const TransferItemPlan& item) const {
  const bool of_sums = plan.buffers[static_cast<std::size_t>(item.destination)].role == BufferRole::partial_sums;
  if (of_sums) return item_of<Parameter>(plan, item);
  return item_of<T>(plan, item);
}

template <class T, class Exec>
auto Binder<T, Exec>::bind_transfer(const StepPlan& plan, const TransferWork& work, StepNode node) -> AddToStep {
  // Steps for training and evaluation move the same values between the same buffers: they share the transfer.
  std::string key = work.name;
  for (const TransferItemPlan& i : work.items)
    for (const BufferId b : {i.source, i.destination}) key += ' ' + plan.buffers[static_cast<std::size_t>(b)].name;
  key += ' ' + std::to_string(occurrences_[&plan][key]++);
  auto found = transfers_.find(key);
  if (found == transfers_.end()) {
    std::vector<halo::AnyTransferItem<Mem>> items;
    for (const TransferItemPlan& i : work.items) items.push_back(item(plan, i));
    // The plans of all ranks list the same communication in the same order (nn/plan/verify.hpp), and schedules start it
    // in this order (nn/step_graph.hpp).
    const halo::TransferOptions options{.label = work.name,
                                        .direct_bytes = direct_bytes_,
                                        .consolidate_below = consolidate_below_,
                                        .order = halo::StartOrder::same};
    found = transfers_.emplace(key, halo::Transfer<Exec>(comm_, queue_, std::move(items), options)).first;
  }
  return [node = std::move(node), transfer = found->second, adjoint = work.adjoint](Step<Exec>& step) {
    step.transfer(node, transfer, adjoint);
  };
}

// --- sums over ranks ---

template <class T, class Exec>
template <class U>
auto Binder<T, Exec>::sum_of(std::map<std::string, std::shared_ptr<Sum<U>>>& all, const std::string& name,
                             const Flat<U>& values, const std::vector<int>& members) -> std::shared_ptr<Sum<U>> {
  auto& sum = all[name];
  if (!sum) {
    sum = std::make_shared<Sum<U>>();
    sum->reduction.emplace(groups_.of(members), queue_, values, comm::BuiltInReduction<U>{}, false);
  }
  return sum;
}

template <class T, class Exec>
void Binder<T, Exec>::make_gradient_sums() {
  if (!gradient_sums_.empty()) return;
  // On a host the collectives' engine is faster than kernels that read other ranks' memory, and its sums run beside
  // the backward pass.
  constexpr bool on_host = Kokkos::SpaceAccessibility<Kokkos::HostSpace, Mem>::accessible;
  for (const auto& s : parameters_->segments()) {
    const std::vector<int> members = detail::members_of_gradients(s.blocks, comm_.size(), comm_.rank());
    if (s.sum) groups_.use(members, *s.sum);
    gradient_sums_.push_back(std::make_shared<Sum<Parameter>>());
    gradient_sums_.back()->reduction.emplace(groups_.of(members), queue_, s.gradients,
                                             comm::BuiltInReduction<Parameter>{}, !on_host);
  }
}

template <class T, class Exec>
bool Binder<T, Exec>::sums_can_start() {
  make_gradient_sums();
  return std::ranges::all_of(gradient_sums_, [](const auto& sum) { return sum->reduction->can_start(); });
}

template <class T, class Exec>
void Binder<T, Exec>::sum_gradients(const Queue<Exec>& queue) {
  make_gradient_sums();
  for (const auto& sum : gradient_sums_) sum->reduction->run(queue);
}

template <class T, class Exec>
template <class U>
auto Binder<T, Exec>::bind_sum(StepNode node, std::shared_ptr<Sum<U>> sum, const ReductionWork& work) -> AddToStep {
  const comm::CollectiveOptions options{.algorithm = work.plan.algorithm, .part_elements = work.plan.part_elements};
  if (const auto needed = sum->reduction->unsupported_reason(work.plan.algorithm)) {
    throw Unsupported("aloni::nn::Binder::bind", "algorithm of " + node.label, to_string(work.plan.algorithm),
                      "a plan for this machine: the algorithm needs " + *needed);
  }
  if (!sum->reduction->can_start()) return bind_whole_sum(std::move(node), std::move(sum), work);
  return [node = std::move(node), sum = std::move(sum), range = std::pair{work.first, work.elements},
          options](Step<Exec>& step) {
    step.collective(
        node,
        [sum, range, options](const Queue<Exec>& queue) {
          sum->pending[range] = sum->reduction->start(queue, range.first, range.second, options);
        },
        [sum, range](const Queue<Exec>& queue) {
          sum->reduction->finish(queue, sum->pending[range], range.first, range.second);
        });
  };
}

template <class T, class Exec>
template <class U>
auto Binder<T, Exec>::bind_whole_sum(StepNode node, std::shared_ptr<Sum<U>> sum, const ReductionWork& work)
    -> AddToStep {
  if (work.first != 0 || work.elements != sum->reduction->count()) {
    throw Unsupported("aloni::nn::Binder::bind", node.label, "a sum of a part of the gradients",
                      "a plan with GradientSums::after_backward: these sums cannot start beside kernels");
  }
  return [node = std::move(node), sum = std::move(sum)](Step<Exec>& step) {
    step.collective(
        node, [](const Queue<Exec>&) {}, [sum](const Queue<Exec>& queue) { sum->reduction->run(queue); });
  };
}

template <class T, class Exec>
auto Binder<T, Exec>::bind_partial_sum(StepNode node) -> AddToStep {
  const auto& values = parameters_->gradients();
  if (!host_gradients_.is_allocated()) host_gradients_ = Kokkos::create_mirror_view(values);
  const comm::EventQueue<Exec> events(comm_);
  return [this, node = std::move(node), values, events](Step<Exec>& step) {
    step.collective(
        node,
        [this, values, events](const Queue<Exec>& queue) {
          Kokkos::deep_copy(queue.space(), host_gradients_, values);
          events.fence(queue.space(), "aloni::nn::Binder: the gradients of this rank are needed on the host");
        },
        [this, values](const Queue<Exec>& queue) {
          contributions_ = partial_->reduce(std::span(host_gradients_.data(), host_gradients_.extent(0)));
          Kokkos::deep_copy(queue.space(), values, host_gradients_);
        });
  };
}

template <class T, class Exec>
auto Binder<T, Exec>::bind_reduction(const StepPlan& plan, const ReductionWork& work, StepNode node) -> AddToStep {
  if (work.partial) return bind_partial_sum(std::move(node));
  if (work.segment >= 0) {
    make_gradient_sums();
    return bind_sum<Parameter>(std::move(node), gradient_sums_.at(static_cast<std::size_t>(work.segment)), work);
  }
  const BufferId b = work.buffers.at(0);
  const PlanBuffer& buffer = plan.buffers[static_cast<std::size_t>(b)];
  if (work.type == ElementType::float64) {
    return bind_sum<double>(
        std::move(node),
        sum_of<double>(double_sums_, buffer.name, memory_.template flat<double>(plan, b), work.members), work);
  }
  return bind_sum<Parameter>(
      std::move(node),
      sum_of<Parameter>(value_sums_, buffer.name, memory_.template flat<Parameter>(plan, b), work.members), work);
}

#define INSTANTIATE(T, Exec)                                                                         \
  template Binder<T, Exec>::Binder(const comm::Communicator&, const Queue<Exec>&, PlanMemory<Exec>&, \
                                   const MachineDescription&, AllParameters*);                       \
  template void Binder<T, Exec>::bind(const StepPlan&, int, Step<Exec>&);                            \
  template std::size_t Binder<T, Exec>::bytes() const;                                               \
  template std::uint64_t Binder<T, Exec>::filter_refreshes() const;                                  \
  template bool Binder<T, Exec>::sums_can_start();                                                   \
  template void Binder<T, Exec>::sum_gradients(const Queue<Exec>&);
ALONI_INSTANTIATE_ACTIVATIONS(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::nn

#include <aloni/halo/exchange.hpp>

#include <aloni/core/error.hpp>
#include <aloni/halo/detail/transfer_base.hpp>
#include <aloni/views/detail/instantiate.hpp>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>
#include <variant>

namespace aloni::halo {

namespace {

constexpr const char* exchange_operation = "aloni::halo::Exchange";

// A function, because nvcc 13 rejects a lambda with template parameters here.
template <class T, class Mem>
TransferItem<T, Mem> in_place(const TensorRef<T, Mem>& tensor, TransferPlan plan,
                              std::vector<views::Box> filled_later) {
  auto item = TransferItem<T, Mem>::in_place(tensor, std::move(plan));
  item.filled_later = std::move(filled_later);
  return item;
}

using Steps = std::array<TransferPlan, views::num_dims>;

/// Appends the boxes that a step fills, so that earlier steps can poison them.
void append_filled(const TransferPlan& plan, std::vector<views::Box>& boxes) {
  for (const Message& m : plan.receives)
    for (const Move& move : m.moves) boxes.push_back(move.destination);
  for (const Move& move : plan.local) boxes.push_back(move.destination);
  boxes.insert(boxes.end(), plan.fills.begin(), plan.fills.end());
}

/// Whether any rank has ghosts in dimension d. Equal on all ranks.
bool has_ghosts(const views::Distribution& distribution, const NeededBox& needed, views::Dim d) {
  for (int rank = 0; rank < distribution.ranks(); ++rank) {
    const views::Box own = distribution.owned(rank), box = needed(rank);
    if (box.lower(d) < own.lower(d) || box.upper(d) > own.upper(d)) return true;
  }
  return false;
}

}  // namespace

std::string to_string(const ExchangeMethod& method) {
  std::string text = method.fused ? "fused" : "each View by itself";
  text += method.by_dimension ? ", one dimension after the other" : ", all neighbours at once";
  if (method.consolidated) text += *method.consolidated ? ", one message per node" : ", one message per rank";
  return text;
}

// A lane is one View, or all Views if fused. Lanes are in flight at the same time; the steps of a lane run one after
// another.
template <class Exec>
struct Exchange<Exec>::Implementation : detail::TransferBase, std::enable_shared_from_this<Implementation> {
  using Item = AnyTransferItem<memory_space>;
  struct Lane {
    std::string label;
    std::vector<std::string> names;  ///< names of its steps
    std::vector<Transfer<Exec>> steps;
  };

  comm::Communicator comm;
  Queue<Exec> queue;
  ExchangeMethod method;
  std::vector<Lane> lanes;
  std::vector<Pending> pending;
  std::size_t most_steps = 0;
  bool backwards = false;

  Implementation(const comm::Communicator& c, const Queue<Exec>& q, const ExchangeMethod& m)
      : comm(c), queue(q), method(m) {}

  const comm::Communicator& communicator() const override { return comm; }
  bool waits_for_messages() const override { return true; }

  bool in_flight() const {
    return std::ranges::any_of(pending, [](const Pending& p) { return p.active(); });
  }

  void start_step(std::size_t i) {
    for (std::size_t l = 0; l < lanes.size(); ++l) {
      const auto& steps = lanes[l].steps;
      if (i >= steps.size()) continue;
      const Transfer<Exec>& step = backwards ? steps[steps.size() - 1 - i] : steps[i];
      pending[l] = backwards ? step.start_adjoint(queue) : step.start(queue);
    }
  }

  void finish() override {
    try {
      for (std::size_t i = 0; i < most_steps; ++i) {
        if (i > 0) start_step(i);
        for (Pending& p : pending) p.finish();
      }
    } catch (...) {
      detail::keep_forever(this->shared_from_this());
      throw;
    }
  }
};

template <class Exec>
Exchange<Exec>::Exchange(const comm::Communicator& comm, const Queue<Exec>& queue, std::vector<field_type> fields,
                         const ExchangeMethod& method, TransferOptions options) {
  comm::collectively(comm, exchange_operation, [&] {
    for (const field_type& f : fields) detail::check_field(comm, exchange_operation, f.label, f.distribution, f.rank);
  });
  detail::check_agreement(comm, exchange_operation, fields.size());
  detail::check_agreement(comm, exchange_operation,
                          (method.fused ? 1U : 0U) + (method.by_dimension ? 2U : 0U) +
                              (method.consolidated ? *method.consolidated ? 8U : 4U : 0U));
  if (method.consolidated)
    options.consolidate_below = *method.consolidated ? std::numeric_limits<std::size_t>::max() : 0;

  std::vector<Steps> plans;
  std::array<bool, views::num_dims> is_step{};
  for (const field_type& f : fields) {
    detail::check_agreement(comm, exchange_operation, 2 * f.tensor.index() + (f.needed ? 1 : 0));
    const NeededBox needed = detail::needed_of(comm, f);
    detail::check_agreement(comm, exchange_operation,
                            agreement_digest(f.distribution, f.distribution, needed, f.boundaries));
    if (method.by_dimension) {
      plans.push_back(plan_halo_by_dimension(f.distribution, needed, f.boundaries, comm.rank()));
      for (std::size_t i = 0; i < views::num_dims; ++i)
        is_step[i] = is_step[i] || has_ghosts(f.distribution, needed, views::all_dims[i]);
    } else {
      plans.emplace_back()[0] = plan_halo(f.distribution, needed, f.boundaries, comm.rank());
      is_step[0] = true;
    }
  }

  implementation_ = std::make_shared<Implementation>(comm, queue, method);
  const auto add_lane = [&](std::size_t first, std::size_t count) {
    typename Implementation::Lane lane;
    lane.label = method.fused ? "" : fields[first].label;
    for (std::size_t step = 0; step < views::num_dims; ++step) {
      if (!is_step[step]) continue;
      const bool poisons = options.poison && lane.steps.empty();  // the first step poisons the boxes of all steps
      std::vector<AnyTransferItem<memory_space>> items;
      for (std::size_t i = first; i < first + count; ++i) {
        std::vector<views::Box> later;
        for (std::size_t s = step + 1; poisons && s < views::num_dims; ++s) append_filled(plans[i][s], later);
        std::visit(
            [&](const auto& tensor) { items.push_back(in_place(tensor, std::move(plans[i][step]), std::move(later))); },
            fields[i].tensor);
      }
      TransferOptions of_step = options;
      of_step.poison = poisons;
      lane.names.push_back(method.by_dimension ? views::name(views::all_dims[step]) : "");
      lane.steps.emplace_back(comm, queue, std::move(items), std::move(of_step));
    }
    implementation_->most_steps = std::max(implementation_->most_steps, lane.steps.size());
    implementation_->lanes.push_back(std::move(lane));
  };
  if (method.fused) {
    add_lane(0, fields.size());
  } else {
    for (std::size_t i = 0; i < fields.size(); ++i) add_lane(i, 1);
  }
  implementation_->pending.resize(implementation_->lanes.size());
}

template <class Exec>
Pending Exchange<Exec>::start(const Queue<Exec>& queue, bool backwards) const {
  if (implementation_ == nullptr) return {};
  Implementation& all = *implementation_;
  if (all.lanes.size() == 1 && all.most_steps <= 1) {
    if (all.most_steps == 0) return {};
    const Transfer<Exec>& only = all.lanes.front().steps.front();
    return backwards ? only.start_adjoint(queue) : only.start(queue);
  }
  if (all.in_flight())
    throw InvalidArgument("aloni::halo::Exchange::start", "exchange", to_string(all.method),
                          "an exchange that is not in flight; call finish() on its Pending first");
  all.queue = queue;
  all.backwards = backwards;
  try {
    all.start_step(0);
  } catch (...) {
    detail::keep_forever(implementation_);
    throw;
  }
  return Pending(implementation_);
}

template <class Exec>
TransferCount Exchange<Exec>::counts() const {
  TransferCount sum;
  if (implementation_ == nullptr) return sum;
  for (const auto& lane : implementation_->lanes) {
    for (const Transfer<Exec>& step : lane.steps) {
      const TransferCount c = step.counts();
      sum.sent_messages += c.sent_messages;
      sum.sent_elements += c.sent_elements;
      sum.received_messages += c.received_messages;
      sum.received_elements += c.received_elements;
      sum.local_elements += c.local_elements;
      sum.filled_elements += c.filled_elements;
    }
  }
  return sum;
}

template <class Exec>
int Exchange<Exec>::messages_between_nodes() const {
  int sum = 0;
  if (implementation_ == nullptr) return sum;
  for (const auto& lane : implementation_->lanes)
    for (const Transfer<Exec>& step : lane.steps) sum += step.messages_between_nodes();
  return sum;
}

template <class Exec>
std::vector<PeerTransfer> Exchange<Exec>::peers() const {
  std::vector<PeerTransfer> all;
  if (implementation_ == nullptr) return all;
  for (const auto& lane : implementation_->lanes) {
    for (const Transfer<Exec>& step : lane.steps) {
      const auto peers = step.peers();
      all.insert(all.end(), peers.begin(), peers.end());
    }
  }
  return all;
}

template <class Exec>
std::string Exchange<Exec>::explain() const {
  if (implementation_ == nullptr) return "";
  std::string text = to_string(implementation_->method) + "\n";
  for (const auto& lane : implementation_->lanes) {
    for (std::size_t i = 0; i < lane.steps.size(); ++i) {
      std::string title = lane.label;
      if (!lane.names[i].empty()) title += (title.empty() ? "" : ", ") + lane.names[i];
      if (!title.empty()) text += title + "\n";
      text += lane.steps[i].explain();
    }
  }
  return text;
}

#define INSTANTIATE(Exec) template class Exchange<Exec>;
ALONI_INSTANTIATE_SPACES(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::halo

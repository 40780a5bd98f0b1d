#include <aloni/model/collective_costs.hpp>

#include <aloni/core/error.hpp>
#include <aloni/model/detail/measured_times.hpp>
#include <aloni/model/detail/schedule_walk.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <string>
#include <utility>

namespace aloni::model {

namespace {

using comm::CollectiveMethod;
using comm::OperationKind;

/// The ranks of each node, ascending; node numbers may have gaps.
std::vector<std::vector<int>> lists_of_nodes(const MachineDescription& description, int ranks) {
  std::map<int, std::vector<int>> by_node;
  for (int r = 0; r < ranks; ++r)
    by_node[description.nodes.empty() ? 0 : description.nodes[static_cast<std::size_t>(r)]].push_back(r);
  std::vector<std::vector<int>> nodes;
  for (auto& [node, list] : by_node) nodes.push_back(std::move(list));
  return nodes;
}

/// A call on a machine: its schedules, and the walk over them with any factors.
class PricedCall {
 public:
  PricedCall(const char* operation, const CollectiveCall& call, const Machine& machine, int ranks)
      : PricedCall(operation, call, machine, description_of(machine, ranks), ranks) {}
  PricedCall(const char* operation, const CollectiveCall& call, const Machine& machine, MachineDescription description,
             int ranks)
      : call_(call), machine_(machine), description_(std::move(description)) {
    if (call.element_bytes < 1 || call.bytes % static_cast<std::size_t>(call.element_bytes) != 0) {
      throw InvalidArgument(
          operation, "call.bytes", std::to_string(call.bytes),
          "a multiple of element_bytes, " + std::to_string(call.element_bytes) + ", which is above 0");
    }
    schedules_ = comm::collective_schedules(lists_of_nodes(description_, ranks), description_.shared_memory,
                                            {.operation = call.operation,
                                             .method = call.method,
                                             .count = static_cast<Index>(call.bytes) / call.element_bytes,
                                             .element_bytes = call.element_bytes,
                                             .shared_data = call.shared_data,
                                             .part_elements = call.part_elements});
  }

  int nodes() const { return number_of_nodes(description_); }
  double seconds(const CollectiveFit& fit) const {
    return fit.seconds_per_call + seconds(fit.message_factor, factor_at(fit.rates, static_cast<double>(call_.bytes)));
  }
  double seconds(double message_factor, double byte_factor) const {
    const auto scaled = [&](LinkCosts link) {
      link.latency *= message_factor;
      link.seconds_per_message *= message_factor;
      link.seconds_per_byte *= byte_factor;
      return link;
    };
    return detail::ScheduleWalk(schedules_, description_, call_.element_bytes)
        .seconds({.within = scaled(machine_.link(LinkKind::within_node)),
                  .between = scaled(machine_.link(LinkKind::between_nodes)),
                  .combine = machine_.combine_seconds_per_byte * byte_factor,
                  .copy = machine_.link(LinkKind::self).seconds_per_byte * byte_factor,
                  .shared_copy = machine_.link(LinkKind::shared_memory).seconds_per_byte * byte_factor,
                  .shared_data = call_.shared_data});
  }

 private:
  CollectiveCall call_;
  const Machine& machine_;
  MachineDescription description_;
  comm::CollectiveSchedules schedules_;
};

/// The fit of the call on as many ranks and nodes, or the first one of the call; null if there is none.
const CollectiveFit* fit_of(const CollectiveCall& call, const Machine& machine, int ranks, int nodes) {
  const CollectiveFit* first = nullptr;
  for (const CollectiveFit& fit : machine.collectives) {
    if (fit.operation != call.operation || fit.method != call.method || fit.shared_data != call.shared_data) continue;
    if (fit.ranks == ranks && fit.nodes == nodes) return &fit;
    if (!first) first = &fit;
  }
  return first;
}

/// The argument ≥ 0 at which the ascending function f takes this value, or 0 if it is above it there. f is nearly
/// linear, so the false position with halved weights (Dowell and Jarratt 1971, "Illinois") takes few steps.
template <class F>
double argument_of(double value, const F& f) {
  double low = 0, high = 1, at_low = f(low) - value, at_high = f(high) - value;
  if (at_low >= 0) return 0;
  for (; at_high < 0 && high < 1e9; at_high = f(high) - value) {
    low = high;
    at_low = at_high;
    high *= 4;
  }
  for (int i = 0; i < 60; ++i) {
    const double middle = (low * at_high - high * at_low) / (at_high - at_low), at_middle = f(middle) - value;
    if (std::abs(at_middle) <= 1e-12 * value || middle == low || middle == high) return middle;
    if (at_middle < 0) {
      low = middle;
      at_low = at_middle;
      at_high /= 2;
    } else {
      high = middle;
      at_high = at_middle;
      at_low /= 2;
    }
  }
  return (low + high) / 2;
}

/// Otherwise no factor of them gives the measured times.
void check_links(const char* operation, const Machine& machine, int ranks) {
  const MachineDescription description = description_of(machine, ranks);
  const int nodes = number_of_nodes(description);
  for (const LinkKind kind : {LinkKind::within_node, LinkKind::between_nodes}) {
    if (kind == LinkKind::within_node ? nodes == ranks : nodes == 1) continue;
    const LinkCosts& link = machine.link(kind);
    if (link.latency > 0 && link.seconds_per_byte > 0 && machine.combine_seconds_per_byte > 0) continue;
    throw InvalidArgument(operation, "machine.links." + std::string(name(kind)), "not known",
                          "a latency and a bandwidth above 0, and combine_seconds_per_byte");
  }
}

}  // namespace

double unfitted_collective_seconds(const CollectiveCall& call, const Machine& machine, int ranks) {
  return PricedCall("aloni::model::unfitted_collective_seconds", call, machine, ranks).seconds(1, 1);
}

double collective_seconds(const CollectiveCall& call, const Machine& machine, int ranks) {
  const PricedCall priced("aloni::model::collective_seconds", call, machine, ranks);
  const CollectiveFit* const fit = fit_of(call, machine, ranks, priced.nodes());
  if (ranks < 2 || !fit) return priced.seconds(1, 1);
  return priced.seconds(*fit);
}

bool FittedCollectives::knows(int ranks) const {
  return std::ranges::any_of(machine_.collectives, [&](const CollectiveFit& fit) { return fit.ranks == ranks; });
}

std::optional<double> FittedCollectives::seconds(const CollectiveCall& call, const std::vector<int>& nodes) {
  const auto ranks = static_cast<int>(nodes.size());
  if (ranks < 2 || !knows(ranks)) return std::nullopt;
  MachineDescription description;
  description.shared_memory = machine_.planning.shared_memory;
  std::map<int, int> numbers;  // of the nodes, in the order of their first ranks: without gaps
  for (const int node : nodes)
    description.nodes.push_back(numbers.try_emplace(node, static_cast<int>(numbers.size())).first->second);
  const CollectiveFit* const fit = fit_of(call, machine_, ranks, static_cast<int>(numbers.size()));
  if (!fit || fit->ranks != ranks || fit->nodes != static_cast<int>(numbers.size())) return std::nullopt;
  const Key key{call.operation,   call.method,        call.bytes,       call.element_bytes,
                call.shared_data, call.part_elements, description.nodes};
  if (const auto known = known_.find(key); known != known_.end()) return known->second;
  const PricedCall priced("aloni::model::FittedCollectives::seconds", call, machine_, std::move(description), ranks);
  return known_.emplace(key, priced.seconds(*fit)).first->second;
}

double closed_form_seconds(const CollectiveCall& call, const Machine& machine, int ranks) {
  constexpr const char* operation = "aloni::model::closed_form_seconds";
  if (ranks < 1) throw InvalidArgument(operation, "ranks", std::to_string(ranks), "at least 1");
  using M = CollectiveMethod;
  const LinkCosts& link = machine.link(LinkKind::within_node);
  const double alpha = link.latency + 2 * link.seconds_per_message, beta = link.seconds_per_byte;
  const double gamma = machine.combine_seconds_per_byte, copy = machine.link(LinkKind::self).seconds_per_byte;
  const double n = static_cast<double>(call.bytes), p = ranks, share = (p - 1) / p;
  const int power = static_cast<int>(std::bit_floor(static_cast<unsigned>(ranks)));
  const double rounds = std::countr_zero(static_cast<unsigned>(power)), all_rounds = rounds + (power < ranks ? 1 : 0);
  // The ranks beyond the largest power of two send their data before, and receive the result after.
  const double fold = power < ranks ? 2 * alpha + n * (2 * beta + gamma) : 0;
  if (ranks == 1) return 0;
  switch (call.method) {
    case M::recursive_doubling:
      return rounds * (alpha + n * (beta + gamma)) + fold;
    case M::rabenseifner:
      return 2 * rounds * alpha + (power - 1.0) / power * n * (2 * beta + gamma) + fold;
    case M::ring: {
      const bool reduces = call.operation != OperationKind::all_gather;
      const bool gathers = call.operation != OperationKind::reduce_scatter;
      return (reduces ? (p - 1) * alpha + share * n * (beta + gamma) : 0) +
             (gathers ? (p - 1) * alpha + share * n * beta : 0);
    }
    case M::pairwise:
      // The messages do not wait for each other: all are on the way after the last send. Without latency this is the
      // form of the paper, (p - 1) α + (p - 1) / p n β.
      return std::max((p - 1) * link.seconds_per_message + n / p * copy, link.seconds_per_message + link.latency) +
             (p - 1) * link.seconds_per_message + share * n * beta;
    case M::bruck:
      if (call.operation == OperationKind::all_gather) return all_rounds * alpha + share * n * beta + n * copy;
      return 2 * n * copy + [&] {
        double seconds = 0;
        for (int mask = 1; mask < ranks; mask *= 2) {
          int travelling = 0;  // blocks
          for (int block = 0; block < ranks; ++block) travelling += (block & mask) != 0 ? 1 : 0;
          seconds += alpha + travelling / p * n * (beta + 2 * copy);
        }
        return seconds;
      }();
    default:
      throw Unsupported(
          operation, "call.method", std::string(name(call.method)),
          "recursive_doubling, rabenseifner, ring, pairwise or bruck; collective_seconds() has the others");
  }
}

CollectiveFit fit_collective(const CollectiveCall& call, const Machine& machine, int ranks,
                             std::span<const CollectiveTime> times) {
  constexpr const char* operation = "aloni::model::fit_collective";
  detail::check_times(operation, times);
  if (ranks < 2) throw InvalidArgument(operation, "ranks", std::to_string(ranks), "at least 2, which send messages");
  check_links(operation, machine, ranks);
  CollectiveFit fit{.operation = call.operation,
                    .method = call.method,
                    .shared_data = call.shared_data,
                    .ranks = ranks,
                    .nodes = number_of_nodes(description_of(machine, ranks))};
  for (const CollectiveTime& time : times) {
    CollectiveCall sized = call;
    sized.bytes = time.bytes;
    const PricedCall priced(operation, sized, machine, ranks);
    if (fit.rates.empty()) {
      const double links = priced.seconds(1, 1);
      fit.seconds_per_call = std::max(0.0, time.seconds - links);
      if (time.seconds < links)
        fit.message_factor = argument_of(time.seconds, [&](double factor) { return priced.seconds(factor, 1); });
      fit.rates.push_back({time.bytes, 1});
      continue;
    }
    fit.rates.push_back({time.bytes, argument_of(time.seconds - fit.seconds_per_call, [&](double factor) {
                           return priced.seconds(fit.message_factor, factor);
                         })});
  }
  return fit;
}

}  // namespace aloni::model

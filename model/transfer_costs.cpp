#include <aloni/model/transfer_costs.hpp>

#include <aloni/core/error.hpp>
#include <aloni/model/communication.hpp>
#include <aloni/model/detail/measured_times.hpp>
#include <aloni/model/detail/parcel_costs.hpp>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

namespace aloni::model {

namespace detail {

ParcelCosts parcel_costs(const Machine& machine, TransferMethod method, LinkKind link, double bytes, bool shared_data) {
  ParcelCosts costs{.link = machine.link(link), .copy = machine.link(LinkKind::self)};
  const TransferFit* const fit = transfer_fit(machine, method, link, shared_data);
  if (!fit) return costs;
  const double rate = factor_at(fit->rates, bytes);
  costs.link.latency *= fit->message_factor;
  costs.link.seconds_per_message *= fit->message_factor;
  costs.link.seconds_per_byte *= rate;
  costs.copy.seconds_per_byte *= rate;
  costs.seconds_per_call = fit->seconds_per_call;
  costs.fitted = true;
  return costs;
}

}  // namespace detail

namespace {

constexpr Index value_bytes = 4;

void check_transfer(const char* operation, const PairTransfer& transfer) {
  if (!can_take(transfer.method, transfer.link)) {
    throw InvalidArgument(operation, "transfer.link",
                          std::string(name(transfer.link)) + " for " + std::string(name(transfer.method)),
                          "shared_memory for copies, within_node or between_nodes for send, and not self");
  }
  if (transfer.bytes % value_bytes != 0)
    throw InvalidArgument(operation, "transfer.bytes", std::to_string(transfer.bytes), "a multiple of 4");
}

/// A halo exchange as simulate() prices it.
double exchange_seconds(const PairTransfer& transfer, const Machine& machine) {
  const auto elements = static_cast<Index>(transfer.bytes) / value_bytes;
  const auto row = [&](Index at) { return views::Box{{0, 0, 0, 0, at * elements}, {1, 1, 1, 1, (at + 1) * elements}}; };
  nn::StepPlan plan{.rank = 0, .ranks = 2};
  plan.buffers = {{.name = "rows", .type = nn::ElementType::float32, .box = row(0)}};
  nn::TransferItemPlan item;
  item.source = item.destination = 0;
  item.plan.sends = item.plan.receives = {{1, {halo::Move{row(0), row(1)}}, elements}};
  const nn::TransferWork work{.name = "halo", .items = {item}};
  MachineDescription description;
  if (transfer.link == LinkKind::between_nodes) description.nodes = {0, 1};
  description.shared_memory = transfer.link == LinkKind::shared_memory;
  description.direct_bytes = transfer.method == TransferMethod::copies ? 0 : unlimited_bytes;
  const TransferCost cost = transfer_cost(plan, work, machine, description);
  const TransferCost::Arrival& arrival = cost.arrivals.front();
  return cost.start + arrival.latency + arrival.wire + cost.finish + cost.answer;
}

/// With the constants of `fit` and no other ones; null: by the links alone.
double priced_transfer(const PairTransfer& transfer, const Machine& machine, const TransferFit* fit) {
  Machine links;
  links.links = machine.links;
  links.exchange_seconds = machine.exchange_seconds;
  if (fit) links.transfers = {*fit};
  if (transfer.method != TransferMethod::send) return exchange_seconds(transfer, links);
  const auto bytes = static_cast<double>(transfer.bytes);
  const detail::ParcelCosts costs =
      detail::parcel_costs(links, transfer.method, transfer.link, bytes, transfer.shared_data);
  return costs.seconds_per_call + costs.link.latency + 2 * costs.link.seconds_per_message +
         bytes * costs.link.seconds_per_byte;
}

}  // namespace

std::string_view name(TransferMethod method) {
  constexpr std::array<std::string_view, transfer_methods> names{"send", "messages", "copies"};
  return names[static_cast<std::size_t>(method)];
}

bool can_take(TransferMethod method, LinkKind link) {
  if (link == LinkKind::self) return false;
  if (method == TransferMethod::copies) return link == LinkKind::shared_memory;
  return method == TransferMethod::messages || link != LinkKind::shared_memory;
}

const TransferFit* transfer_fit(const Machine& machine, TransferMethod method, LinkKind link, bool shared_data) {
  const auto found = std::ranges::find_if(machine.transfers, [&](const TransferFit& fit) {
    return fit.method == method && fit.link == link && fit.shared_data == shared_data;
  });
  return found == machine.transfers.end() ? nullptr : &*found;
}

double transfer_seconds(const PairTransfer& transfer, const Machine& machine) {
  check_transfer("aloni::model::transfer_seconds", transfer);
  return priced_transfer(transfer, machine,
                         transfer_fit(machine, transfer.method, transfer.link, transfer.shared_data));
}

double unfitted_transfer_seconds(const PairTransfer& transfer, const Machine& machine) {
  check_transfer("aloni::model::unfitted_transfer_seconds", transfer);
  return priced_transfer(transfer, machine, nullptr);
}

TransferFit fit_transfer(const PairTransfer& transfer, const Machine& machine, std::span<const CollectiveTime> times) {
  constexpr const char* operation = "aloni::model::fit_transfer";
  detail::check_times(operation, times);
  const LinkCosts& link = machine.link(transfer.link);
  if (!(link.latency > 0 && link.seconds_per_byte > 0)) {
    throw InvalidArgument(operation, "machine.links." + std::string(name(transfer.link)), "not known",
                          "a latency and a bandwidth above 0");
  }
  TransferFit fit{.method = transfer.method, .link = transfer.link, .shared_data = transfer.shared_data};
  for (const CollectiveTime& time : times) {
    PairTransfer sized = transfer;
    sized.bytes = time.bytes;
    check_transfer(operation, sized);
    // The time is linear in each constant.
    const auto seconds = [&](double message_factor, double rate) {
      TransferFit trial = fit;
      trial.message_factor = message_factor;
      trial.rates = {{1, rate}};
      return priced_transfer(sized, machine, &trial);
    };
    if (fit.rates.empty()) {
      const double links = seconds(1, 1), without_messages = seconds(0, 1);
      if (time.seconds < links) {
        fit.message_factor = std::max(0.0, (time.seconds - without_messages) / (links - without_messages));
      } else {
        fit.seconds_per_call = time.seconds - links;
      }
      fit.rates.push_back({time.bytes, 1});
      continue;
    }
    const double fixed = seconds(fit.message_factor, 0), all = seconds(fit.message_factor, 1);
    fit.rates.push_back({time.bytes, std::max(0.0, (time.seconds - fixed) / (all - fixed))});
  }
  return fit;
}

}  // namespace aloni::model

#include <aloni/core/comm/calibration.hpp>
#include <aloni/core/error.hpp>
#include <aloni/model/communication.hpp>
#include <aloni/tools/collective_measurement.hpp>
#include <aloni/tools/machine_measurement.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <memory_resource>
#include <optional>
#include <span>
#include <utility>

namespace aloni::tools {

namespace {

using comm::CollectiveMethod;
using comm::Communicator;
using comm::OperationKind;
using Times = std::vector<CommunicationTimes::Time>;

/// Sizes of four times the one before for the fits. From `least_left_out` on the sizes in between are left out.
Times sizes_up_to(std::size_t largest) {
  constexpr std::size_t smallest = 256, least_left_out = std::size_t{128} << 10;
  Times times;
  for (std::size_t bytes = std::min(smallest, largest); bytes <= largest; bytes *= 4) {
    times.push_back({.bytes = bytes});
    if (2 * bytes >= least_left_out && 2 * bytes <= largest) times.push_back({.bytes = 2 * bytes, .left_out = true});
  }
  return times;
}

/// Floats in the memory of this process, or in memory that the ranks of the node reach.
class Floats {
 public:
  Floats(const Communicator& comm, std::size_t count, bool shared)
      : memory_(shared ? comm.shared_memory() : nullptr), count_(count) {
    std::pmr::memory_resource& resource = memory_ ? *memory_ : *std::pmr::new_delete_resource();
    values_ = static_cast<float*>(resource.allocate(bytes(), alignment));
    std::fill_n(values_, count, 0.0F);  // sums of zeros stay finite
  }
  Floats(const Floats&) = delete;
  Floats& operator=(const Floats&) = delete;
  ~Floats() {
    std::pmr::memory_resource& resource = memory_ ? *memory_ : *std::pmr::new_delete_resource();
    resource.deallocate(values_, bytes(), alignment);
  }
  std::span<float> values() const { return {values_, count_}; }

 private:
  static constexpr std::size_t alignment = 64;
  std::size_t bytes() const { return std::max<std::size_t>(count_, 1) * sizeof(float); }

  std::shared_ptr<std::pmr::memory_resource> memory_;
  std::size_t count_;
  float* values_ = nullptr;
};

/// Elements of an operation of about `bytes` bytes: as many in each block.
std::size_t equal_blocks(std::size_t bytes, int ranks) {
  const auto p = static_cast<std::size_t>(ranks);
  return std::max<std::size_t>(1, bytes / sizeof(float) / p) * p;
}

/// An all-reduce, or a reduce-scatter that keeps a block of one, by its options; all else as a schedule.
double seconds_of_collective(const Communicator& comm, const model::Machine& machine, const model::CollectiveCall& call,
                             double seconds) {
  const std::size_t count = call.bytes / sizeof(float);
  const Floats values(comm, count, call.shared_data), input(comm, count, call.shared_data);
  const auto timed = [&](const comm::PersistentCollective& collective) {
    return seconds_per_call(comm, seconds, [&] { collective.run(); });
  };
  if (call.operation == OperationKind::all_reduce)
    return timed(comm.persistent(comm::AllReduce{
        values.values(), comm::Reduction::sum, {.algorithm = comm::all_reduce_algorithm(call.method)}}));
  if (call.operation == OperationKind::reduce_scatter && call.method != CollectiveMethod::ring)
    return timed(comm.persistent(comm::ReduceScatter{
        values.values(), comm::Reduction::sum, {.algorithm = comm::all_reduce_algorithm(call.method)}}));
  const comm::CollectiveSchedules schedules =
      comm::collective_schedules(comm.ranks_by_node(), machine.planning.shared_memory,
                                 {.operation = call.operation,
                                  .method = call.method,
                                  .count = static_cast<Index>(count),
                                  .shared_data = call.shared_data});
  const comm::Schedule& own = schedules.last[static_cast<std::size_t>(comm.rank())];
  return timed(comm.persistent(comm::UserSchedule<float>{
      .name = std::string(name(call.operation)) + " by " + std::string(name(call.method)),
      .schedule = own,
      .output = values.values(),
      .op = comm::element_operation<float>(comm::Reduction::sum),
      .input = own.input > 0 ? std::span<const float>(input.values()) : std::span<const float>()}));
}

/// Half the time that a message takes from rank 0 to rank 1 and back.
double seconds_of_message(const Communicator& comm, std::size_t bytes, bool shared, double seconds) {
  const Floats from(comm, bytes / sizeof(float), shared), to(comm, bytes / sizeof(float), shared);
  const int rank = comm.rank(), peer = 1 - rank;
  return seconds_per_call(comm, seconds,
                          [&] {
                            if (rank > 1) return;
                            if (rank == 0) comm.wait(comm.send(from.values(), peer, 0));
                            comm.wait(comm.receive(to.values(), peer, 0));
                            if (rank == 1) comm.wait(comm.send(from.values(), peer, 0));
                          }) /
         2;
}

/// Seconds of the exchange of halo_exchange_seconds(), as simulate() prices it.
double predicted_exchange(const model::Machine& machine, int ranks, std::size_t bytes, bool direct) {
  const auto elements = static_cast<Index>(bytes / sizeof(float));
  const auto row = [&](Index at) { return views::Box{{0, 0, 0, 0, at * elements}, {1, 1, 1, 1, (at + 1) * elements}}; };
  nn::StepPlan plan{.rank = 0, .ranks = ranks};
  plan.buffers = {{.name = "rows", .type = nn::ElementType::float32, .box = row(0)}};
  nn::TransferItemPlan item;
  item.source = item.destination = 0;
  item.plan.sends = item.plan.receives = {{1, {halo::Move{row(0), row(1)}}, elements}};
  const nn::TransferWork work{.name = "halo", .items = {item}};
  MachineDescription description = description_of(machine, ranks);
  description.direct_bytes = direct ? 0 : unlimited_bytes;
  const model::TransferCost cost = transfer_cost(plan, work, machine, description);
  const model::TransferCost::Arrival& arrival = cost.arrivals.front();
  return cost.start + arrival.latency + arrival.wire + cost.finish + cost.answer;
}

/// Messages and halo exchanges between ranks 0 and 1.
void add_pair(const Communicator& comm, const model::Machine& machine, const CollectiveMeasurementOptions& options,
              std::vector<CommunicationTimes>& all) {
  const MachineDescription description = description_of(machine, comm.size());
  const bool one_node = number_of_nodes(description) == 1 || description.nodes[0] == description.nodes[1];
  const model::LinkCosts& link = machine.link(one_node ? model::LinkKind::within_node : model::LinkKind::between_nodes);
  std::optional<Communicator> pair;
  if (comm.rank() < 2) pair = comm.subgroup({0, 1});
  for (const bool shared : {false, true}) {
    if (shared && !description.share_memory(0, 1)) continue;
    const std::string memory = shared ? "shared" : "private";
    CommunicationTimes messages{.operation = "message", .method = "send", .memory = memory};
    CommunicationTimes halos{
        .operation = "halo", .method = shared ? "copies" : "messages", .memory = "shared"};  // of DistributedView
    for (CommunicationTimes::Time time : sizes_up_to(options.largest_bytes)) {
      time.left_out = time.bytes > 256 && time.bytes != std::size_t{1} << 20;  // sizes near those of the links' fits
      time.seconds = seconds_of_message(comm, time.bytes, shared, options.seconds_per_case);
      time.predicted =
          link.latency + 2 * link.seconds_per_message + static_cast<double>(time.bytes) * link.seconds_per_byte;
      time.by_links = time.predicted;
      messages.times.push_back(time);

      const int runs = std::clamp(static_cast<int>(options.seconds_per_case / time.seconds / 3), 5, 1000);
      const double own =
          pair ? halo_exchange_seconds(*pair, time.bytes, shared ? 0 : std::numeric_limits<std::size_t>::max(), runs)
               : 0;
      time.seconds = comm.all_reduce(own, comm::Reduction::max);
      time.predicted = time.by_links = predicted_exchange(machine, comm.size(), time.bytes, shared);
      halos.times.push_back(time);
    }
    all.push_back(std::move(messages));
    all.push_back(std::move(halos));
  }
}

bool can_run(const Communicator& comm, const model::CollectiveCall& call) {
  const bool reduces = call.operation == OperationKind::all_reduce || call.method == CollectiveMethod::direct;
  if (!reduces) return true;
  const auto nodes = comm.ranks_by_node().size();
  // With one level it is a ring, or Rabenseifner's algorithm.
  if (call.method == CollectiveMethod::hierarchical && (nodes == 1 || nodes == static_cast<std::size_t>(comm.size())))
    return false;
  return !comm.unsupported_reason(comm::all_reduce_algorithm(call.method));
}

double mean_error(const Times& times, double CommunicationTimes::Time::*predicted) {
  double sum = 0;
  int count = 0;
  for (const CommunicationTimes::Time& time : times) {
    if (!time.left_out) continue;
    sum += std::abs(time.*predicted / time.seconds - 1);
    ++count;
  }
  return count > 0 ? sum / count : -1;
}

}  // namespace

double CommunicationTimes::error() const { return mean_error(times, &Time::predicted); }
double CommunicationTimes::links_error() const { return mean_error(times, &Time::by_links); }

std::vector<CommunicationTimes> measure_collectives(const Communicator& comm, const model::Machine& machine,
                                                    const CollectiveMeasurementOptions& options) {
  std::vector<CommunicationTimes> all;
  if (comm.size() < 2) return all;
  add_pair(comm, machine, options, all);
  for (const comm::CollectiveVariant& variant : comm::collective_variants) {
    for (const bool shared : {false, true}) {
      const model::CollectiveCall call{.operation = variant.operation, .method = variant.method, .shared_data = shared};
      if (!can_run(comm, call) || (shared && !machine.planning.shared_memory)) continue;
      CommunicationTimes& row = all.emplace_back();
      row = {.operation = std::string(name(call.operation)),
             .method = std::string(name(call.method)),
             .memory = shared ? "shared" : "private",
             .call = call,
             .is_collective = true};
      for (CommunicationTimes::Time time : sizes_up_to(options.largest_bytes)) {
        time.bytes = sizeof(float) * equal_blocks(time.bytes, comm.size());
        if (!row.times.empty() && row.times.back().bytes >= time.bytes) continue;  // many ranks: one element each
        model::CollectiveCall sized = call;
        sized.bytes = time.bytes;
        time.seconds = seconds_of_collective(comm, machine, sized, options.seconds_per_case);
        row.times.push_back(time);
      }
    }
  }
  return all;
}

void fit_collectives(std::vector<CommunicationTimes>& all, model::Machine& machine, int ranks) {
  if (ranks < 2 || ranks > model::most_fitted_ranks) return;
  const int nodes = number_of_nodes(description_of(machine, ranks));
  std::erase_if(machine.collectives,
                [&](const model::CollectiveFit& fit) { return fit.ranks == ranks && fit.nodes == nodes; });
  for (CommunicationTimes& row : all) {
    if (!row.is_collective) continue;
    std::vector<model::CollectiveTime> times;
    for (const CommunicationTimes::Time& time : row.times)
      if (!time.left_out) times.push_back({time.bytes, time.seconds});
    machine.collectives.push_back(fit_collective(row.call, machine, ranks, times));
    for (CommunicationTimes::Time& time : row.times) {
      model::CollectiveCall sized = row.call;
      sized.bytes = time.bytes;
      time.predicted = collective_seconds(sized, machine, ranks);
      time.by_links = unfitted_collective_seconds(sized, machine, ranks);
    }
    machine.collectives.back().error = std::max(0.0, row.error());
    machine.collectives.back().links_error = std::max(0.0, row.links_error());
  }
}

}  // namespace aloni::tools

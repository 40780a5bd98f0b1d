#include <aloni/core/comm/calibration.hpp>
#include <aloni/core/error.hpp>
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

/// Sizes of four times the one before. Where values leave a cache, their rate changes by a factor of three between two
/// sizes: from `dense` on the sizes are twice those before, and the middle of two is left out of the fits.
Times sizes_up_to(std::size_t largest) {
  constexpr std::size_t smallest = 256, dense = std::size_t{64} << 10;
  Times times;
  for (std::size_t bytes = std::min(smallest, largest); bytes <= largest; bytes *= bytes < dense ? 4 : 2) {
    times.push_back({.bytes = bytes});
    const std::size_t between = bytes / 2 * 3;
    if (bytes >= dense && between <= largest) times.push_back({.bytes = between, .left_out = true});
  }
  return times;
}

constexpr int rounds = 2;

/// Tells the caller about each measured time of all rows.
class TimesDone {
 public:
  TimesDone(const CollectiveMeasurementOptions& options, const std::vector<CommunicationTimes>& rows)
      : progress_(options.progress) {
    for (const CommunicationTimes& row : rows) all_ += rounds * row.times.size();
  }
  void add_one() {
    ++done_;
    if (progress_) progress_(done_, all_);
  }

 private:
  const std::function<void(std::size_t, std::size_t)>& progress_;
  std::size_t done_ = 0, all_ = 0;
};

/// Measures all sizes in each round. The shorter time counts, so a core that was busy with something else for a
/// moment, or for as long as one size takes, spoils none. `seconds_of(bytes, seconds)` measures one size.
template <class SecondsOf>
void measure(Times& times, double seconds_per_case, TimesDone& done, const SecondsOf& seconds_of) {
  for (CommunicationTimes::Time& time : times) time.seconds = std::numeric_limits<double>::infinity();
  for (int round = 0; round < rounds; ++round)
    for (CommunicationTimes::Time& time : times) {
      time.seconds = std::min(time.seconds, seconds_of(time.bytes, seconds_per_case / rounds));
      done.add_one();
    }
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

/// Half the time that a message takes from one rank of the pair to the other and back.
double seconds_of_message(const Communicator& pair, std::size_t bytes, bool shared, double seconds) {
  const Floats from(pair, bytes / sizeof(float), shared), to(pair, bytes / sizeof(float), shared);
  const int rank = pair.rank(), peer = 1 - rank;
  return seconds_per_call(pair, seconds,
                          [&] {
                            if (rank == 0) pair.wait(pair.send(from.values(), peer, 0));
                            pair.wait(pair.receive(to.values(), peer, 0));
                            if (rank == 1) pair.wait(pair.send(from.values(), peer, 0));
                          }) /
         2;
}

/// The least of three medians, as seconds_per_call() takes the least of three means.
double seconds_of_halo(const Communicator& pair, std::size_t bytes, bool copies, double seconds) {
  const std::size_t direct_bytes = copies ? 0 : std::numeric_limits<std::size_t>::max();
  constexpr int batches = 3, fewest = 5, most = 1000;
  double least = halo_exchange_seconds(pair, bytes, direct_bytes, fewest);
  const int runs = static_cast<int>(std::clamp<double>(seconds / batches / std::max(least, 1e-9), fewest, most));
  for (int i = 0; i < batches; ++i) least = std::min(least, halo_exchange_seconds(pair, bytes, direct_bytes, runs));
  return least;
}

/// Two ranks, ascending, and the transfers between them that a step or a tile takes.
struct MeasuredPair {
  std::vector<int> members;
  std::vector<model::PairTransfer> transfers;
};

std::vector<MeasuredPair> pairs_of(const Communicator& comm, const model::Machine& machine) {
  using model::LinkKind;
  using model::TransferMethod;
  const auto& nodes = comm.ranks_by_node();
  const bool shares = machine.planning.shared_memory;
  std::vector<MeasuredPair> pairs;
  if (nodes.front().size() > 1) {
    MeasuredPair& pair = pairs.emplace_back();
    pair.members = {nodes.front()[0], nodes.front()[1]};
    pair.transfers.push_back({.method = TransferMethod::send, .link = LinkKind::within_node});
    if (shares)
      pair.transfers.push_back({.method = TransferMethod::send, .link = LinkKind::within_node, .shared_data = true});
    pair.transfers.push_back(
        {.method = TransferMethod::messages, .link = shares ? LinkKind::shared_memory : LinkKind::within_node});
    if (shares) pair.transfers.push_back({.method = TransferMethod::copies, .link = LinkKind::shared_memory});
  }
  if (nodes.size() > 1) {
    MeasuredPair& pair = pairs.emplace_back();
    pair.members = {nodes[0].front(), nodes[1].front()};
    pair.transfers = {{.method = TransferMethod::send, .link = LinkKind::between_nodes},
                      {.method = TransferMethod::messages, .link = LinkKind::between_nodes}};
  }
  for (MeasuredPair& pair : pairs) std::ranges::sort(pair.members);
  return pairs;
}

CommunicationTimes row_of(const model::PairTransfer& transfer) {
  const bool is_message = transfer.method == model::TransferMethod::send;
  std::string method(name(transfer.method));
  if (transfer.link == model::LinkKind::between_nodes) method += " between nodes";
  return {.operation = is_message ? "message" : "halo",
          .method = std::move(method),
          .memory = is_message && !transfer.shared_data ? "private" : "shared",
          .transfer = transfer};
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

std::vector<model::CollectiveTime> fitted_times(const CommunicationTimes& row) {
  std::vector<model::CollectiveTime> times;
  for (const CommunicationTimes::Time& time : row.times)
    if (!time.left_out) times.push_back({time.bytes, time.seconds});
  return times;
}

double mean_error(const Times& times, double CommunicationTimes::Time::*predicted, std::size_t least_bytes) {
  double sum = 0;
  int count = 0;
  for (const CommunicationTimes::Time& time : times) {
    if (!time.left_out || time.bytes < least_bytes) continue;
    sum += std::abs(time.*predicted / time.seconds - 1);
    ++count;
  }
  return count > 0 ? sum / count : -1;
}

}  // namespace

double CommunicationTimes::error(std::size_t least_bytes) const {
  return mean_error(times, &Time::predicted, least_bytes);
}
double CommunicationTimes::links_error() const { return mean_error(times, &Time::by_links, 0); }

std::vector<CommunicationTimes> measure_transfers(const Communicator& comm, const model::Machine& machine,
                                                  const CollectiveMeasurementOptions& options) {
  const std::vector<MeasuredPair> pairs = pairs_of(comm, machine);
  std::vector<CommunicationTimes> all;
  for (const MeasuredPair& measured : pairs)
    for (const model::PairTransfer& transfer : measured.transfers)
      all.emplace_back(row_of(transfer)).times = sizes_up_to(options.largest_bytes);
  TimesDone done(options, all);
  auto row = all.begin();
  for (const MeasuredPair& measured : pairs) {
    std::optional<Communicator> pair;
    if (std::ranges::count(measured.members, comm.rank()) > 0) pair = comm.subgroup(measured.members);
    for (const model::PairTransfer& transfer : measured.transfers) {
      measure(row->times, options.seconds_per_case, done, [&](std::size_t bytes, double seconds) {
        double own = 0;
        if (pair && transfer.method == model::TransferMethod::send) {
          own = seconds_of_message(*pair, bytes, transfer.shared_data, seconds);
        } else if (pair) {
          own = seconds_of_halo(*pair, bytes, transfer.method == model::TransferMethod::copies, seconds);
        }
        return comm.all_reduce(own, comm::Reduction::max);
      });
      ++row;
    }
  }
  return all;
}

bool has_transfers(const Communicator& comm, const model::Machine& machine) {
  for (const MeasuredPair& pair : pairs_of(comm, machine))
    for (const model::PairTransfer& t : pair.transfers)
      if (!transfer_fit(machine, t.method, t.link, t.shared_data)) return false;
  return true;
}

void fit_transfers(std::vector<CommunicationTimes>& all, model::Machine& machine) {
  for (CommunicationTimes& row : all) {
    if (!row.transfer) continue;
    const model::PairTransfer& transfer = *row.transfer;
    std::erase_if(machine.transfers, [&](const model::TransferFit& fit) {
      return fit.method == transfer.method && fit.link == transfer.link && fit.shared_data == transfer.shared_data;
    });
    machine.transfers.push_back(fit_transfer(transfer, machine, fitted_times(row)));
    for (CommunicationTimes::Time& time : row.times) {
      model::PairTransfer sized = transfer;
      sized.bytes = time.bytes;
      time.predicted = transfer_seconds(sized, machine);
      time.by_links = unfitted_transfer_seconds(sized, machine);
    }
    machine.transfers.back().error = std::max(0.0, row.error());
    machine.transfers.back().links_error = std::max(0.0, row.links_error());
  }
}

std::vector<CommunicationTimes> measure_collectives(const Communicator& comm, const model::Machine& machine,
                                                    const CollectiveMeasurementOptions& options) {
  std::vector<CommunicationTimes> all;
  if (comm.size() < 2) return all;
  for (const comm::CollectiveVariant& variant : comm::collective_variants) {
    for (const bool shared : {false, true}) {
      const model::CollectiveCall call{.operation = variant.operation, .method = variant.method, .shared_data = shared};
      if (!can_run(comm, call) || (shared && !machine.planning.shared_memory)) continue;
      CommunicationTimes& row = all.emplace_back();
      row = {.operation = std::string(name(call.operation)),
             .method = std::string(name(call.method)),
             .memory = shared ? "shared" : "private",
             .call = call};
      for (CommunicationTimes::Time time : sizes_up_to(options.largest_bytes)) {
        time.bytes = sizeof(float) * equal_blocks(time.bytes, comm.size());
        if (row.times.empty() || row.times.back().bytes < time.bytes) row.times.push_back(time);  // many ranks: equal
      }
    }
  }
  TimesDone done(options, all);
  for (CommunicationTimes& row : all)
    measure(row.times, options.seconds_per_case, done, [&](std::size_t bytes, double seconds) {
      model::CollectiveCall sized = row.call.value();
      sized.bytes = bytes;
      return seconds_of_collective(comm, machine, sized, seconds);
    });
  return all;
}

void fit_collectives(std::vector<CommunicationTimes>& all, model::Machine& machine, int ranks) {
  if (ranks < 2 || ranks > model::most_fitted_ranks) return;
  const int nodes = number_of_nodes(description_of(machine, ranks));
  std::erase_if(machine.collectives,
                [&](const model::CollectiveFit& fit) { return fit.ranks == ranks && fit.nodes == nodes; });
  for (CommunicationTimes& row : all) {
    if (!row.call) continue;
    machine.collectives.push_back(fit_collective(*row.call, machine, ranks, fitted_times(row)));
    for (CommunicationTimes::Time& time : row.times) {
      model::CollectiveCall sized = *row.call;
      sized.bytes = time.bytes;
      time.predicted = collective_seconds(sized, machine, ranks);
      time.by_links = unfitted_collective_seconds(sized, machine, ranks);
    }
    machine.collectives.back().error = std::max(0.0, row.error());
    machine.collectives.back().links_error = std::max(0.0, row.links_error());
  }
}

}  // namespace aloni::tools

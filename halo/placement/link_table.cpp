#include <aloni/halo/placement/link_table.hpp>

#include <aloni/core/error.hpp>
#include <aloni/halo/placement/detail/link_rounds.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace aloni::halo {

namespace {

constexpr const char* measure_operation = "aloni::halo::measure_links";
constexpr std::size_t short_bytes = 8;

void check(const comm::Communicator& comm, const LinkOptions& options) {
  const std::array values{static_cast<std::int64_t>(options.bytes), std::int64_t{options.repetitions},
                          std::int64_t{options.all_pairs_up_to}};
  auto lowest = values, highest = values;
  comm.all_reduce(std::span<std::int64_t>(lowest), comm::Reduction::min);
  comm.all_reduce(std::span<std::int64_t>(highest), comm::Reduction::max);
  if (lowest != highest)
    throw InvalidArgument(measure_operation, "options", "different on different ranks", "equal options on all ranks");
  if (options.bytes < 1) throw InvalidArgument(measure_operation, "options.bytes", "0", "1 or more");
  if (options.repetitions < 1)
    throw InvalidArgument(measure_operation, "options.repetitions", std::to_string(options.repetitions), "1 or more");
  if (options.all_pairs_up_to < 0)
    throw InvalidArgument(measure_operation, "options.all_pairs_up_to", std::to_string(options.all_pairs_up_to),
                          "0 or more");
}

std::vector<std::vector<int>> nodes_of(const comm::Communicator& comm) {
  const auto first = comm.node().all_reduce(std::int64_t{comm.rank()}, comm::Reduction::min);
  std::map<std::int64_t, std::vector<int>> nodes;
  const auto firsts = comm.all_gather(first);
  for (int rank = 0; rank < comm.size(); ++rank) nodes[firsts[static_cast<std::size_t>(rank)]].push_back(rank);
  std::vector<std::vector<int>> result;
  for (auto& [_, ranks] : nodes) result.push_back(std::move(ranks));
  return result;
}

/// Median time of one exchange with a peer, in both directions at once.
double seconds_of(const comm::Communicator& comm, int peer, std::span<const std::byte> from, std::span<std::byte> to,
                  int repetitions) {
  std::vector<double> seconds;
  for (int i = -1; i < repetitions; ++i) {  // the first exchange synchronises the two ranks and warms up
    const auto start = std::chrono::steady_clock::now();
    comm::Request requests[] = {comm.receive(to, peer, 0), comm.send(from, peer, 0)};
    comm.wait(requests);
    if (i >= 0) seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  const auto middle = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
  std::ranges::nth_element(seconds, middle);
  return *middle;
}

/// Gathers all rows on all ranks. Each pair gets the mean of its two ranks' times.
void complete(const comm::Communicator& comm, SquareMatrix& m) {
  comm.run(comm::AllGather{m.values()});
  for (int i = 0; i < m.size(); ++i)
    for (int j = 0; j < i; ++j) m(i, j) = m(j, i) = (m(i, j) + m(j, i)) / 2;
}

/// Sets all pairs of ranks between two nodes to the mean of the measured pairs between them.
void spread(const std::vector<std::vector<int>>& nodes, SquareMatrix& m, double unmeasured) {
  for (const auto& here : nodes)
    for (const auto& there : nodes) {
      if (&here == &there) continue;
      double sum = 0;
      int measured = 0;
      for (const int i : here)
        for (const int j : there)
          if (m(i, j) != unmeasured) {
            sum += m(i, j);
            ++measured;
          }
      for (const int i : here)
        for (const int j : there) m(i, j) = sum / measured;
    }
}

}  // namespace

LinkTable measure_links(const comm::Communicator& parent, const LinkOptions& options) {
  check(parent, options);
  const comm::Communicator comm = parent.split(0, parent.rank());  // its tags do not mix with others
  const int rank = comm.rank(), ranks = comm.size();
  const auto nodes = nodes_of(comm);
  const bool all_pairs = ranks <= options.all_pairs_up_to;
  constexpr double unmeasured = -1;
  LinkTable table{SquareMatrix(ranks, unmeasured), SquareMatrix(ranks, unmeasured)};
  table.seconds_per_byte(rank, rank) = table.seconds_per_message(rank, rank) = 0;

  const std::vector<std::byte> from(std::max(options.bytes, short_bytes));
  std::vector<std::byte> to(from.size());
  const auto rounds =
      detail::link_rounds(nodes, all_pairs ? detail::BetweenNodes::all_pairs : detail::BetweenNodes::one_per_node);
  for (const auto& partner : rounds) {
    const int peer = partner[static_cast<std::size_t>(rank)];
    const auto measure = [&](std::size_t bytes) {
      comm.barrier();  // the rounds must not overlap
      if (peer == rank) return 0.;
      return seconds_of(comm, peer, std::span(from).first(bytes), std::span(to).first(bytes), options.repetitions);
    };
    const double one_short = measure(short_bytes), one_long = measure(options.bytes);
    if (peer == rank) continue;
    table.seconds_per_message(rank, peer) = one_short;
    // A byte costs more than 0, although on a busy machine a short message can take longer than a long one.
    table.seconds_per_byte(rank, peer) =
        std::max(one_long - one_short, 0.01 * one_long) / static_cast<double>(options.bytes);
  }
  for (SquareMatrix* m : {&table.seconds_per_byte, &table.seconds_per_message}) {
    complete(comm, *m);
    if (!all_pairs) spread(nodes, *m, unmeasured);
  }
  return table;
}

}  // namespace aloni::halo

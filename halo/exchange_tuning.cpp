#include <aloni/halo/exchange_tuning.hpp>

#include <aloni/core/error.hpp>
#include <aloni/views/detail/instantiate.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <map>
#include <span>
#include <variant>

namespace aloni::halo {

namespace {

/// All methods, the default first.
std::vector<ExchangeMethod> candidates(std::size_t fields, bool has_shared_nodes) {
  std::vector<ExchangeMethod> all;
  for (const bool by_dimension : {false, true}) {
    for (const bool fused : {true, false}) {
      if (!fused && fields < 2) continue;
      all.push_back({fused, by_dimension, {}});
      if (!has_shared_nodes) continue;
      all.push_back({fused, by_dimension, true});
      all.push_back({fused, by_dimension, false});
    }
  }
  return all;
}

void sort(std::vector<MethodTime>& times) {
  if (times.empty()) return;
  const double simplest = times.front().seconds;
  std::ranges::stable_sort(times, {}, &MethodTime::seconds);
  constexpr double alike = 1.02;
  const auto first = std::ranges::find_if(times, [&](const MethodTime& t) { return t.seconds == simplest; });
  if (simplest <= alike * times.front().seconds) std::rotate(times.begin(), first, first + 1);
}

/// Whether several dimensions have ghosts. Otherwise an exchange by dimension has one step only.
template <class MemorySpace>
bool has_edges(const comm::Communicator& comm, const std::vector<Field<MemorySpace>>& fields) {
  bool any = false;
  for (const auto& f : fields) {
    int dims = 0;
    for (const views::Dim d : views::all_dims) {
      const views::Box own = f.distribution.owned(f.rank);
      dims += f.box.lower(d) < own.lower(d) || f.box.upper(d) > own.upper(d) ? 1 : 0;
    }
    any = any || dims > 1;
  }
  return comm.all_reduce(any ? 1 : 0, comm::Reduction::max) != 0;
}

/// The bytes and messages that one rank sends to a peer, or receives from it.
struct Load {
  double bytes = 0;
  int messages = 0;
};

double seconds_of(const std::map<int, Load>& loads, int rank, const LinkTable& links, bool fused) {
  double sum = 0;
  for (const auto& [peer, load] : loads)
    sum += links.seconds_per_byte(rank, peer) * load.bytes +
           links.seconds_per_message(rank, peer) * (fused ? 1 : load.messages);
  return sum;
}

}  // namespace

std::string to_string(const std::vector<MethodTime>& times) {
  std::string text;
  for (const MethodTime& t : times) {
    char number[32];
    std::snprintf(number, sizeof number, "%.1f us: ", 1e6 * t.seconds);
    text += number + to_string(t.method) + "\n";
  }
  return text;
}

template <class Exec>
std::vector<MethodTime> measure_methods(const comm::Communicator& comm, const Queue<Exec>& queue,
                                        const std::vector<Field<typename Exec::memory_space>>& fields,
                                        const TransferOptions& options, int repetitions) {
  if (comm.all_reduce(repetitions, comm::Reduction::min) < 1)
    throw InvalidArgument("aloni::halo::measure_methods", "repetitions", std::to_string(repetitions), "1 or more");
  const bool edges = has_edges(comm, fields);
  const int mates = comm.node().size();
  const bool has_shared_nodes = mates < comm.size() && comm.all_reduce(mates, comm::Reduction::max) > 1;
  std::vector<MethodTime> times;
  for (const ExchangeMethod& method : candidates(fields.size(), has_shared_nodes)) {
    if (method.by_dimension && !edges) continue;
    Exchange<Exec> exchange;
    try {
      exchange = Exchange<Exec>(comm, queue, fields, method, options);
    } catch (const Unsupported&) {  // on all ranks
      continue;
    }
    std::vector<double> seconds;
    for (int i = -1; i < repetitions; ++i) {  // the first run warms up
      comm.barrier();
      const auto start = std::chrono::steady_clock::now();
      exchange.run(queue);
      queue.fence("aloni::halo::measure_methods: end of a repetition");
      const std::chrono::duration<double> mine = std::chrono::steady_clock::now() - start;
      const double slowest = comm.all_reduce(mine.count(), comm::Reduction::max);
      if (i >= 0) seconds.push_back(slowest);
    }
    const auto middle = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
    std::ranges::nth_element(seconds, middle);
    times.push_back({method, *middle});
  }
  sort(times);
  return times;
}

template <class MemorySpace>
std::vector<MethodTime> estimate_methods(const comm::Communicator& comm, const std::vector<Field<MemorySpace>>& fields,
                                         const LinkTable& links) {
  if (links.seconds_per_byte.size() != comm.size() || links.seconds_per_message.size() != comm.size())
    throw InvalidArgument("aloni::halo::estimate_methods", "links",
                          "for " + std::to_string(links.seconds_per_byte.size()) + " ranks",
                          "for the " + std::to_string(comm.size()) + " ranks of the communicator");
  const bool edges = has_edges(comm, fields);
  std::vector<MethodTime> times;
  for (const ExchangeMethod& method : candidates(fields.size(), false)) {
    if (method.by_dimension && !edges) continue;
    std::array<std::map<int, Load>, views::num_dims> sent, received;  // by step
    try {
      for (const auto& f : fields) {
        const NeededBox needed = detail::needed_of(comm, f);
        std::array<TransferPlan, views::num_dims> steps;
        if (method.by_dimension)
          steps = plan_halo_by_dimension(f.distribution, needed, f.boundaries, comm.rank());
        else
          steps[0] = plan_halo(f.distribution, needed, f.boundaries, comm.rank());
        const std::size_t unit = std::visit([](const auto& tensor) { return sizeof(*tensor.data.data()); }, f.tensor);
        const auto add = [&](const std::vector<Message>& messages, std::map<int, Load>& loads) {
          for (const Message& m : messages) {
            loads[m.peer].bytes += static_cast<double>(m.elements) * static_cast<double>(unit);
            ++loads[m.peer].messages;
          }
        };
        for (std::size_t s = 0; s < steps.size(); ++s) {
          add(steps[s].sends, sent[s]);
          add(steps[s].receives, received[s]);
        }
      }
    } catch (const Unsupported&) {  // on all ranks
      continue;
    }
    std::array<double, views::num_dims> mine{};
    for (std::size_t s = 0; s < mine.size(); ++s)
      mine[s] = std::max(seconds_of(sent[s], comm.rank(), links, method.fused),
                         seconds_of(received[s], comm.rank(), links, method.fused));
    comm.all_reduce(std::span<double>(mine), comm::Reduction::max);
    double sum = 0;
    for (const double step : mine) sum += step;
    times.push_back({method, sum});
  }
  sort(times);
  return times;
}

#define INSTANTIATE(Exec)                                                                         \
  template std::vector<MethodTime> measure_methods(const comm::Communicator&, const Queue<Exec>&, \
                                                   const std::vector<Field<Exec::memory_space>>&, \
                                                   const TransferOptions&, int);                  \
  template std::vector<MethodTime> estimate_methods(const comm::Communicator&,                    \
                                                    const std::vector<Field<Exec::memory_space>>&, const LinkTable&);
ALONI_INSTANTIATE_SPACES(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::halo

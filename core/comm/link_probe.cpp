#include <aloni/core/comm/link_probe.hpp>

#include <aloni/core/error.hpp>

#include <algorithm>
#include <chrono>
#include <span>
#include <string>
#include <vector>

namespace aloni::comm {

namespace {

using Clock = std::chrono::steady_clock;

/// Median of the seconds of f(), on rank 0; then on both ranks.
template <class F>
double median_seconds(const Communicator& pair, int repetitions, const F& f) {
  std::vector<double> all(static_cast<std::size_t>(repetitions));
  for (int i = 0; i < 3; ++i) f();
  for (double& seconds : all) {
    pair.barrier();
    const auto start = Clock::now();
    f();
    seconds = std::chrono::duration<double>(Clock::now() - start).count();
  }
  std::ranges::sort(all);
  return pair.all_reduce(pair.rank() == 0 ? all[all.size() / 2] : 0.0, Reduction::max);
}

}  // namespace

LinkProbe probe_link(const Communicator& pair, const LinkProbeOptions& options) {
  if (pair.size() != 2) {
    throw InvalidArgument("aloni::comm::probe_link", "pair", std::to_string(pair.size()) + " ranks",
                          "a communicator of two ranks");
  }
  if (options.large_bytes < 1 || options.messages < 1 || options.repetitions < 1) {
    throw InvalidArgument("aloni::comm::probe_link", "options",
                          std::to_string(options.large_bytes) + " bytes, " + std::to_string(options.messages) +
                              " messages, " + std::to_string(options.repetitions) + " repetitions",
                          "at least 1 each");
  }
  const int peer = 1 - pair.rank();
  const std::size_t largest_bytes = 4 * options.large_bytes;
  std::vector<std::byte> from(largest_bytes), to(largest_bytes);
  const auto send = [&](std::size_t bytes) {
    Request request = pair.send(std::span<const std::byte>(from).first(bytes), peer, 0);
    pair.wait(request);
  };
  const auto receive = [&](std::size_t bytes) {
    Request request = pair.receive(std::span(to).first(bytes), peer, 0);
    pair.wait(request);
  };
  const auto one_way = [&](std::size_t bytes, int repetitions) {
    return median_seconds(pair, repetitions,
                          [&] {
                            if (pair.rank() == 0) {
                              send(bytes);
                              receive(bytes);
                            } else {
                              receive(bytes);
                              send(bytes);
                            }
                          }) /
           2;
  };
  constexpr std::size_t short_bytes = 1;
  const double short_message = one_way(short_bytes, options.repetitions);
  const double large_message = one_way(options.large_bytes, std::max(1, options.repetitions / 10));
  constexpr double seconds_for_largest = 1.0;
  const double largest_message =
      one_way(largest_bytes, static_cast<int>(std::clamp(seconds_for_largest / (8 * large_message), 3.0,
                                                         std::max(3.0, options.repetitions / 10.0))));
  std::vector<Request> requests;
  const double row = median_seconds(pair, options.repetitions, [&] {
    requests.clear();
    for (int i = 0; i < options.messages; ++i)
      requests.push_back(pair.rank() == 0 ? pair.send(std::span<const std::byte>(from).first(short_bytes), peer, i)
                                          : pair.receive(std::span(to).first(short_bytes), peer, i));
    pair.wait(requests);
    // The last message is answered, so that the row ends when it has arrived.
    if (pair.rank() == 0) {
      receive(short_bytes);
    } else {
      send(short_bytes);
    }
  });
  LinkProbe link;
  // In a row the two ranks work at the same time. One message alone keeps both busy, so it takes three parts at least.
  link.seconds_per_message = std::clamp((row - 2 * short_message) / options.messages, 0.0, short_message / 3);
  link.latency = short_message - 2 * link.seconds_per_message;
  // A short message that something interrupted may seem to take longer. The whole time of the large one is a bound.
  const double for_bytes = large_message > short_message ? large_message - short_message : large_message;
  link.seconds_per_byte = std::max(for_bytes / static_cast<double>(options.large_bytes),
                                   (largest_message - large_message) / static_cast<double>(3 * options.large_bytes));
  return link;
}

}  // namespace aloni::comm

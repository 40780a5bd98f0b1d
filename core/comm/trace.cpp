#include <aloni/core/comm/trace.hpp>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <limits>
#include <vector>

namespace aloni::comm {

namespace {

constexpr int tag = Communicator::max_tag;
constexpr std::size_t questions = 20;

}  // namespace

std::int64_t clock_offset(std::span<const ClockSample> samples) {
  const ClockSample& best = *std::ranges::min_element(samples, {}, [](const auto& s) { return s.received - s.sent; });
  const std::int64_t half = (best.received - best.sent) / 2;
  const std::int64_t offset = best.answered - (best.sent + half);
  return std::abs(offset) <= half ? 0 : offset;
}

std::int64_t clock_offset(const Communicator& comm) {
  if (comm.rank() == 0) {
    // One rank after the other, so that no question waits for the answer to another rank.
    for (int peer = 1; peer < comm.size(); ++peer) {
      for (std::size_t q = 0; q < questions; ++q) {
        std::int64_t value = 0;
        comm.wait(comm.receive(std::span(&value, 1), peer, tag));
        value = trace_now();
        comm.wait(comm.send(std::span<const std::int64_t>(&value, 1), peer, tag));
      }
    }
    return 0;
  }
  std::array<ClockSample, questions> samples;
  for (ClockSample& sample : samples) {
    const std::int64_t question = 0;
    Request answer = comm.receive(std::span(&sample.answered, 1), 0, tag);
    sample.sent = trace_now();
    comm.wait(comm.send(std::span<const std::int64_t>(&question, 1), 0, tag));
    comm.wait(answer);
    sample.received = trace_now();
  }
  return clock_offset(samples);
}

std::string gather_trace(const Communicator& comm, const Trace& mine, std::span<const TraceArgument> about) {
  std::int64_t origin = std::numeric_limits<std::int64_t>::max();
  for (const TraceSlice& slice : mine.slices) origin = std::min(origin, slice.start);
  origin = comm.all_reduce(origin, Reduction::min);
  const std::string events =
      collectively(comm, "aloni::comm::gather_trace: text of this rank", [&] { return trace_events(mine, origin); });
  const std::vector<std::int64_t> sizes = comm.all_gather(std::ssize(events));
  auto all = collectively(comm, "aloni::comm::gather_trace: memory for all ranks", [&] {
    std::vector<std::string> texts(comm.rank() == 0 ? sizes.size() : 0);
    for (std::size_t r = 0; r < texts.size(); ++r) texts[r].resize(static_cast<std::size_t>(sizes[r]));
    return texts;
  });
  if (comm.rank() != 0) {
    comm.wait(comm.send(std::span<const char>(events), 0, tag));
    return {};
  }
  all[0] = events;
  for (int peer = 1; peer < comm.size(); ++peer)
    comm.wait(comm.receive(std::span<char>(all[static_cast<std::size_t>(peer)]), peer, tag));
  return trace_file(all, about);
}

}  // namespace aloni::comm

#pragma once
// Writes times as Chrome trace events, which Perfetto (ui.perfetto.dev) and chrome://tracing show: one process for each
// rank, rows of slices, arguments of the selected slice.
//
//   Trace trace{.process = 0, .name = "rank 0", .rows = {"compute", "communication"}};
//   const std::int64_t start = trace_now();
//   …
//   trace.slices.push_back({0, "conv1", start, trace_now(), {{"flops", 1e6}}});
//   const std::string text = trace_file(std::vector{trace_events(trace)});
//
// Ranks of a program gather their events with core/comm/trace.hpp. Nothing here is collective.
#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace aloni {

/// Nanoseconds of the steady clock. Ranks of one machine share this clock.
inline std::int64_t trace_now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

struct TraceArgument {
  std::string name;
  std::variant<std::int64_t, double, std::string> value;  ///< a double that is not finite is written as null
};

struct TraceSlice {
  int row = 0;  ///< index in Trace::rows
  std::string name;
  std::int64_t start = 0, end = 0;  ///< nanoseconds of trace_now()
  std::vector<TraceArgument> arguments = {};
};

/// The times of one process. Slices of one row are disjoint or nested, in any order.
struct Trace {
  int process = 0;  ///< at least 0; viewers sort processes by it
  std::string name;
  std::vector<std::string> rows = {};  ///< at most 1000
  std::vector<TraceSlice> slices = {};
};

/// The events of one process for trace_file(): a list of JSON objects without brackets. Slices of a row are sorted by
/// start; a slice comes before the slices nested in it. `origin`: nanoseconds that are written as time 0.
/// Text that is not UTF-8, and control characters, become escapes as printable() makes them.
std::string trace_events(const Trace& trace, std::int64_t origin = 0);

/// A complete file from the events of all processes. `about`: facts that a viewer shows for the whole trace.
std::string trace_file(std::span<const std::string> events, std::span<const TraceArgument> about = {});

}  // namespace aloni

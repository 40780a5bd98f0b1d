#pragma once
// What was measured about all-reduce on some ranks: which algorithm, in parts of which size, is the fastest for which amount of data, and
// what a simple model says.
//
//   const Tuning tuning = calibrate(comm);            // calibration.hpp; collective, a few seconds
//   write_file(path, to_text(tuning));                // aloni calibrate does both
//   comm.set_tuning(parse_tuning(read_file(path)));   // from here on `automatic` chooses by it
//   for (const auto& report : comm.explain(AllReduce{std::span(values), Reduction::sum}).algorithms) …
//
// Pure.
#include <aloni/core/comm/collectives.hpp>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace aloni::comm {

struct Measurement {
  AllReduceAlgorithm algorithm{};
  std::size_t bytes = 0;
  double seconds = 0;          ///< of the slowest rank
  std::size_t part_bytes = 0;  ///< it was the fastest in parts of so many; 0: in the library's own
};

struct Tuning {
  int ranks = 0, nodes = 0;  ///< measured on; it is refused elsewhere
  /// A message of n bytes takes latency + n * seconds_per_byte; adding up n bytes takes n * combine_seconds_per_byte.
  double latency = 0, seconds_per_byte = 0, combine_seconds_per_byte = 0;
  std::vector<Measurement> measurements = {};

  /// Between measured sizes by a straight line in logarithms, beyond them in proportion to the size; negative when nothing was measured.
  double measured_seconds(AllReduceAlgorithm algorithm, std::size_t bytes) const;
  /// Of the largest measured size that isn't larger; 0 when nothing was measured.
  std::size_t part_bytes(AllReduceAlgorithm algorithm, std::size_t bytes) const;
};

/// One value a line; for files.
std::string to_text(const Tuning& tuning);
/// Throws InvalidArgument that names the source, if that isn't empty, and the line.
Tuning parse_tuning(std::string_view text, const std::string& source = "");

/// Why an algorithm is taken, or isn't.
struct AlgorithmReport {
  AllReduceAlgorithm algorithm{};
  bool chosen = false;
  std::string unsupported = "";   ///< the reason, or empty
  double predicted_seconds = -1;  ///< by the model; negative without tuning
  double measured_seconds = -1;   ///< by the tuning; negative without
};

}  // namespace aloni::comm

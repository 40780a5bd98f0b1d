#pragma once
// Measured all-reduce times on given ranks, and the parameters of a simple cost model. From them follow the fastest
// algorithm and part size for each amount of data.
//
//   const Tuning tuning = calibrate(comm);            // calibration.hpp; collective, a few seconds
//   write_file(path, to_text(tuning));                // `aloni calibrate` does both
//   comm.set_tuning(parse_tuning(read_file(path)));   // from now on `automatic` uses the tuning
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
  double seconds = 0;          ///< time of the slowest rank
  std::size_t part_bytes = 0;  ///< fastest part size; 0: the library's default

  friend bool operator==(const Measurement&, const Measurement&) = default;
};

struct Tuning {
  int ranks = 0, nodes = 0;  ///< where it was measured; communicators with other numbers refuse it
  /// A message of n bytes takes latency + n * seconds_per_byte; adding n bytes takes n * combine_seconds_per_byte.
  double latency = 0, seconds_per_byte = 0, combine_seconds_per_byte = 0;
  std::vector<Measurement> measurements = {};

  /// Estimated seconds for `bytes`; negative if the algorithm was not measured. Between measured sizes: log-log
  /// interpolation. Above them: proportional to the size. Below them: the time of the smallest measured size.
  double measured_seconds(AllReduceAlgorithm algorithm, std::size_t bytes) const;
  /// Part size, in bytes, of the largest measured size not above `bytes`; 0 if there is none.
  std::size_t part_bytes(AllReduceAlgorithm algorithm, std::size_t bytes) const;

  friend bool operator==(const Tuning&, const Tuning&) = default;
};

/// Text form for files, one value per line.
std::string to_text(const Tuning& tuning);
/// Reads the text form. `source`: name of the file for error texts, or empty. Throws InvalidArgument with source and
/// line.
Tuning parse_tuning(std::string_view text, const std::string& source = "");

/// Why an algorithm is chosen or not.
struct AlgorithmReport {
  AllReduceAlgorithm algorithm{};
  bool chosen = false;
  std::string unsupported = "";   ///< reason why these ranks cannot use it; empty if they can
  double predicted_seconds = -1;  ///< by the cost model; negative without tuning
  double measured_seconds = -1;   ///< by the measurements; negative without tuning
};

}  // namespace aloni::comm

#pragma once
#include <aloni/core/comm/communicator.hpp>
#include <aloni/core/comm/tuning.hpp>

#include <cstddef>

namespace aloni::comm {

struct CalibrationOptions {
  std::size_t smallest_bytes = 64, largest_bytes = std::size_t{32} << 20;  ///< sizes in steps of four
  double seconds_per_case = 0.02;
};

/// Collective. Times every all-reduce algorithm that these ranks can use, in parts of several sizes where there is enough data, and
/// messages between neighbours; equal on all ranks. Takes seconds_per_case times the number of sizes, algorithms (at most 5) and
/// sizes of parts (at most 5), at least three repetitions each.
Tuning calibrate(const Communicator& comm, const CalibrationOptions& options = {});

}  // namespace aloni::comm

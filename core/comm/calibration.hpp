#pragma once
// Measures the Tuning of a communicator (tuning.hpp).
#include <aloni/core/comm/communicator.hpp>
#include <aloni/core/comm/tuning.hpp>

#include <cstddef>
#include <functional>

namespace aloni::comm {

struct CalibrationOptions {
  std::size_t smallest_bytes = 64, largest_bytes = std::size_t{32} << 20;  ///< each size is four times the one before
  double seconds_per_case = 0.02;                                          ///< for each size, algorithm and part size
};

/// Seconds for each call of f() on the slowest rank, in the fastest of a few batches, which a busy machine disturbs
/// least. Takes about `seconds`; f() runs at least four times, as often on all ranks. Equal on all ranks. Collective.
double seconds_per_call(const Communicator& comm, double seconds, const std::function<void()>& f);

/// Times messages between neighbours, and every all-reduce algorithm that these ranks can use, with several part sizes.
/// The result is equal on all ranks. Takes about seconds_per_case × sizes × algorithms (at most 5) × part sizes (at
/// most 5); each case runs at least three times. Collective. Throws InvalidArgument if a size or the time is out of
/// range.
Tuning calibrate(const Communicator& comm, const CalibrationOptions& options = {});

}  // namespace aloni::comm

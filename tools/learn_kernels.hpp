#pragma once
// Trains learned models of the times of kernels (model/learned_kernel.hpp) by this library's own networks: the recipe
// of paper performance-models, section 3.1. Inputs and outputs are logarithms; the output is the logarithm of a factor.
// There are five hidden layers of 50 with ReLU. Mean squared error, Adam with a rate of 1e-3 that falls to a tenth
// after 15 epochs without an improvement, early stop after 20. Of the problems a fifth is left out for the error. Of
// the others each network has another fifth that decides its rate and its stop.
#include <aloni/core/comm/communicator.hpp>
#include <aloni/model/learned_kernel.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace aloni::tools {

struct KernelTime {
  model::KernelCall call;
  double seconds = 0;
};

struct LearnOptions {
  int ranks_per_node = 1, threads_per_rank = 1;  ///< layout of processes of the measurements
  int networks = 4;                              ///< whose mean counts
  int most_epochs = 1000;
  Index batch = 16;
  std::uint64_t seed = 1;
  std::string scratch_folder = {};  ///< for a file of weights; empty: the system's folder
};

/// Least number of times for a model.
inline constexpr std::size_t least_times_to_learn = 25;

/// One model from the times of one kind and type. Its relative_error is the mean over the times that were left out.
/// Trains on the calling rank alone. @pre comm has one rank
/// Throws InvalidArgument for fewer than least_times_to_learn times, times of several kinds or types, and
/// times that are not above 0. Throws FileError if the scratch file cannot be written.
model::LearnedKernel learn_kernel(const comm::Communicator& comm, const std::vector<KernelTime>& times,
                                  const LearnOptions& options = {});

}  // namespace aloni::tools

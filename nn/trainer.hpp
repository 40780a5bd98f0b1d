#pragma once
// The training loop: shuffles, fills mini-batches, steps, evaluates, and keeps account of the time.
//
//   TrainReport report = train<double>(comm, lenet5(data.train.image, 10), Strategy::uniform(ProcessGrid::parse("h2")),
//                                      data.train, data.test, {.batch = 64, .epochs = 3});
#include <aloni/core/comm/communicator.hpp>
#include <aloni/nn/data/labelled_images.hpp>
#include <aloni/nn/local/convolution_problem.hpp>
#include <aloni/nn/network_description.hpp>
#include <aloni/nn/strategy.hpp>

#include <cstdint>
#include <vector>

namespace aloni::nn {

/// How the learning rate goes on from its first value: the same in every step, or on a straight line to zero at the end.
enum class LearningRateSchedule { constant, linear };

/// Whose gradients a step adds: those of all ranks, or of the ranks that are there when more than half are (core/comm/partial_all_reduce.hpp):
/// late ones count in the next step, and what is left over at the end of an epoch in a step of its own. Losses then depend on time.
enum class GradientReduction { all, majority };

struct TrainOptions {
  Index batch = 64;  ///< samples per step over all ranks
  int epochs = 1;
  std::int64_t steps = 0;  ///< > 0: stop after so many steps in all (whatever `epochs` says)
  std::uint64_t seed = 1;
  double learning_rate = 0.05;
  LearningRateSchedule schedule = LearningRateSchedule::constant;
  double momentum = 0.9;
  double weight_decay = 0.0;
  int shift = 0;  ///< each training image is moved by up to so many pixels in height and width, anew in each epoch
  local::ConvolutionBackend backend = local::ConvolutionBackend::automatic;
  GradientReduction gradients = GradientReduction::all;
};

struct EpochReport {
  double loss = 0;           ///< mean over the epoch's steps
  double test_accuracy = 0;  ///< in [0,1]
};

/// Seconds of rank 0, training steps only.
struct TimeReport {
  double compute = 0, halo = 0, collective = 0, input = 0;
};

struct TrainReport {
  std::vector<double> losses;  ///< one per step
  std::vector<EpochReport> epochs;
  double step_seconds = 0;  ///< median
  double samples_per_second = 0;
  TimeReport time;
  std::uint64_t peak_memory_bytes = 0;  ///< largest resident set of any rank
};

/// Called on every rank; only rank 0 should speak.
class TrainObserver {
 public:
  virtual ~TrainObserver() = default;
  /// `step` counts from 1 to `total_steps` over the whole training.
  virtual void after_step(std::int64_t step, std::int64_t total_steps, double loss, double seconds) = 0;
  /// `epoch` counts from 1.
  virtual void after_epoch(int epoch, int epochs, const EpochReport& report, double samples_per_second) = 0;
};

/// Collective. The order of samples, the initial parameters and so the losses depend on the seed only, not on ranks or strategy (up
/// to the order of sums; with GradientReduction::all). An incomplete last mini-batch of an epoch is trained on too. With `steps` > 0 the last epoch may be
/// incomplete; it is evaluated all the same.
/// T: float, double; comm::bfloat16 for activations of that type (nn/network.hpp), computed on the host in every build.
/// Throws InvalidArgument, Unsupported (equal on all ranks), PeerFailed.
template <class T>
TrainReport train(const comm::Communicator& comm, const NetworkDescription& network, const Strategy& strategy,
                  const LabelledImages& train_set, const LabelledImages& test_set, const TrainOptions& options,
                  TrainObserver* observer = nullptr);

}  // namespace aloni::nn

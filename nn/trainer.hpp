#pragma once
// The training loop: shuffles samples, fills mini-batches, runs steps, evaluates and measures times.
//
//   TrainReport report = train<double>(comm, lenet5(data.train.image, 10), Strategy::uniform(ProcessGrid::parse("h2")),
//                                      data.train, data.test, {.batch = 64, .epochs = 3});
#include <aloni/core/comm/communicator.hpp>
#include <aloni/core/machine.hpp>
#include <aloni/core/measured_implementations.hpp>
#include <aloni/nn/averaging.hpp>
#include <aloni/nn/data/augmentation.hpp>
#include <aloni/nn/data/dataset.hpp>
#include <aloni/nn/data/labelled_images.hpp>
#include <aloni/nn/kfac_options.hpp>
#include <aloni/nn/learning_rate.hpp>
#include <aloni/nn/local/convolution_problem.hpp>
#include <aloni/nn/metrics.hpp>
#include <aloni/nn/network_description.hpp>
#include <aloni/nn/optimiser.hpp>
#include <aloni/nn/plan/memory_wish.hpp>
#include <aloni/nn/sample_pictures.hpp>
#include <aloni/nn/strategy.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace aloni::nn {

class StepTimes;

/// all: each step sums the gradients of all ranks.
/// majority: each step sums the gradients that have arrived once more than half of the ranks have contributed
/// (core/comm/partial_all_reduce.hpp). Late gradients count in the next step. An extra step at the end of an epoch
/// adds the remaining ones. Losses then depend on timing.
enum class GradientReduction { all, majority };

/// Checkpoints of a training (docs/checkpoint.md). A training that resumes continues as the one that wrote the
/// checkpoint would have continued, on any number of ranks and with any strategy. On the same ranks and strategy the
/// losses have the same bits.
struct CheckpointOptions {
  std::string folder;            ///< gets one folder per checkpoint; empty: no checkpoints
  std::int64_t every_steps = 0;  ///< a checkpoint after each so many steps; 0: only the last one
  double every_seconds = 0;      ///< a checkpoint after so many seconds since the last one; 0: not by time
  int keep = 2;                  ///< number of checkpoints that stay; 0: all
  bool resume = false;           ///< continues from the newest whole checkpoint in the folder, if it has one
  /// Asked after each step on each rank, without `folder` never. If one rank answers true, a last checkpoint is written
  /// and the training stops.
  std::function<bool()> stop = {};
};

struct TrainOptions {
  Index batch = 64;  ///< samples per step, of all ranks together
  /// Number of micro-batches of a step; divides `batch`. Each one takes memory for its own samples only. The last
  /// one sums the gradients of all over ranks, and updates (nn/gradient_sum.hpp).
  Index accumulate = 1;
  int epochs = 1;
  std::int64_t steps = 0;  ///< if above 0: total number of steps, regardless of `epochs`
  std::uint64_t seed = 1;
  Optimiser optimiser = SgdOptions{};  ///< with the initial learning rate
  /// Loss scaling throws Unsupported with `kfac` and without GradientReduction::all.
  UpdateOptions update = {};
  /// K-FAC preconditions the gradients before each update (nn/kfac.hpp). Requires an optimiser of kind sgd and
  /// GradientReduction::all. Throws Unsupported otherwise, and for layers with split channels or filters.
  std::optional<KfacOptions> kfac = {};
  /// Multiplies the rate of the optimiser. PlateauSchedule and the early stop observe the loss of the test set after
  /// each epoch, or without a test set the mean training loss.
  LearningRate schedule = {};
  EarlyStop early_stop = {};
  /// Tests evaluate with the moving average of the parameters (nn/weight_average.hpp). Empty: with their values.
  std::optional<Averaging> average = {};
  // Random changes of training samples, new in each epoch, as in AugmentationOptions (nn/data/augmentation.hpp).
  int shift = 0;                        ///< at most this many pixels in height and width
  bool flip = false;                    ///< mirrors half of the samples in width
  double brightness = 0, contrast = 0;  ///< largest relative changes, from 0 to 1
  local::ConvolutionBackend backend = local::ConvolutionBackend::automatic;
  bool tf32 = false;    ///< NetworkOptions::tf32
  bool record = false;  ///< NetworkOptions::record, of training steps
  GradientReduction gradients = GradientReduction::all;
  /// If above 0: after each so many steps the ranks compare checksums of the parameters that they keep.
  std::int64_t check_replicas = 0;
  bool allow_nonfinite = false;  ///< goes on after a loss that is NaN or infinite
  /// Number of training steps whose nodes are timed (TrainReport::times). These are the steps after the first five, or
  /// the last steps of a shorter training.
  std::int64_t timed_steps = 0;
  CheckpointOptions checkpoint = {};
  /// File of the first weights (nn/weights_file.hpp); empty: from the seed. A training that resumes does not read it.
  std::string initial_weights = {};
  std::string export_weights = {};  ///< file for the last weights, or their average; empty: none
  /// Recomputation, offloading and a limit of memory. Where kernels run on the host, train() throws Unsupported for
  /// offloading: activations are in host memory already. Throws InvalidArgument on all ranks if no savings meet the
  /// limit.
  MemoryWish memory = {};
  /// NetworkOptions::bucket_bytes, chunk_bytes, direct_bytes, consolidate_below and largest_overhead; empty: the
  /// constants of the library.
  /// A machine file may know better ones (model/step_limits.hpp).
  std::optional<Index> bucket_bytes = {}, chunk_bytes = {}, direct_bytes = {}, consolidate_below = {};
  std::optional<double> largest_overhead = {};
  /// NetworkOptions::multiplications_per_slab and convolutions, likewise: measured times of convolutions choose their
  /// implementations, in training and in tests.
  std::optional<double> multiplications_per_slab = {};
  MeasuredImplementations convolutions = {};
  /// NetworkOptions::work_per_copied_byte, likewise (model/machine.hpp).
  std::optional<WorkPerCopiedByte> work_per_copied_byte = {};
  /// Number of test samples in TrainReport::samples. There are at most as many as in a mini-batch.
  Index sample_results = 0;
};

AugmentationOptions augmentation_of(const TrainOptions& options);

struct EpochReport {
  double loss = 0;  ///< mean over the epoch's steps
  /// Correct predictions of the test set (nn/network_description.hpp) divided by all, in [0,1]. Empty without a test
  /// set, and for mean_squared_error.
  std::optional<double> test_accuracy = {};
  std::optional<double> test_loss = {};   ///< mean over the test set; empty without a test set
  std::vector<Metric> test_metrics = {};  ///< other metrics of the test set (nn/metrics.hpp)
};

/// Time in seconds on rank 0, training steps only.
struct TimeReport {
  double compute = 0, halo = 0, collective = 0, input = 0;
};

struct TrainReport {
  std::vector<double> losses;  ///< one per step
  std::vector<EpochReport> epochs;
  /// Median of the steps whose nodes are not timed, if there are any. The first five, at most half, do not count.
  double step_seconds = 0;
  double samples_per_second = 0;
  TimeReport time;
  // Maxima over all ranks, where nothing else is said.
  std::uint64_t peak_memory_bytes = 0;  ///< largest resident set
  /// The sum over all ranks at the end of the training, when all buffers are there. Pages that several ranks of a node
  /// use count once. 0 where the system does not report it.
  std::uint64_t memory_of_all_ranks_bytes = 0;
  /// The resident set before the networks were made, moving average included; Network::planned_resident_bytes() for
  /// full mini-batches, planned_additional_bytes() for each size of incomplete ones; the host batches of data sets; the
  /// copy that a checkpoint makes.
  std::uint64_t predicted_memory_bytes = 0;
  /// Sent to other ranks in one training step with a full mini-batch, as Communicator::traffic_by_peer counts.
  std::uint64_t bytes_sent = 0, messages = 0;
  std::int64_t resumed_at = 0;               ///< number of steps, with their losses, that come from a checkpoint
  std::optional<LossScale> loss_scale = {};  ///< of the next step; empty without UpdateOptions::loss_scaling
  std::string recomputed = {};               ///< the recomputed blocks, by names of layers; empty: none
  std::string offloaded = {};                ///< the offloaded layers, likewise
  bool stopped = false;  ///< CheckpointOptions::stop has ended the training; its last checkpoint is whole
  /// The first samples of the test set, with the predictions after the last step; none without a test set.
  std::vector<SampleResult> samples = {};
  /// Of TrainOptions::timed_steps, on this rank, with the clock offset to rank 0; null without timed steps.
  std::shared_ptr<const StepTimes> times = nullptr;
};

struct StepReport {
  std::int64_t step = 0, total_steps = 0;  ///< from 1 to total_steps, over the whole training
  double loss = 0;                         ///< mean over the mini-batch, before the update
  double learning_rate = 0;                ///< of the update
  double seconds = 0;
};

/// Called on every rank. Only rank 0 should print.
class TrainObserver {
 public:
  virtual ~TrainObserver() = default;
  virtual void after_step(const StepReport& step) = 0;
  /// `epoch` counts from 1.
  virtual void after_epoch(int epoch, int epochs, const EpochReport& report, double samples_per_second) = 0;
};

/// The order of samples and the initial parameters depend on the seed only, not on the ranks or the strategy. With
/// GradientReduction::all the losses do too, up to the order of sums.
/// With accumulate > 1 batch normalisation takes its statistics over a micro-batch, and masks of dropout are others.
/// An incomplete last mini-batch of an epoch is trained on as well. With `steps` > 0 the last epoch may be
/// incomplete; it is evaluated too.
/// T: float, double, or for activations of 16 bits comm::bfloat16, comm::float16 (nn/network.hpp).
/// With options.checkpoint the losses do not change. Running statistics are averaged over the ranks at each checkpoint,
/// so they may differ in the last bits from those of a training without checkpoints.
/// Collective. All ranks pass equal arguments, except for the observer; the ranks compare them, the data as checksums.
/// Throws InvalidArgument on all ranks for a wrong argument, or one that differs between ranks; the text names these
/// ranks. Throws Unsupported on all ranks. Throws NotFinite on all ranks after the first step or evaluation whose loss
/// is NaN or infinite. Also after 50 updates in a row that loss scaling has skipped. Throws ReplicasDiffer as
/// Parameters::check_replicas, and PeerFailed.
/// Throws InvalidArgument on all ranks if options.initial_weights are those of another network, FileError or PeerFailed
/// if a file of weights cannot be read or written.
/// Throws FileError on all ranks if no checkpoint of options.checkpoint is whole, or if the last one cannot be written.
template <class T>
TrainReport train(const comm::Communicator& comm, const NetworkDescription& network, const Strategy& strategy,
                  const LabelledImages& train_set, const LabelledImages& test_set, const TrainOptions& options,
                  TrainObserver* observer = nullptr);

/// Trains on data sets of files or of memory (nn/data/dataset.hpp). A thread of each rank reads its part of the next
/// mini-batches during a step. The kind of the targets must suit the loss of the network (docs/data.md).
/// Collective. As above otherwise. The ranks compare fingerprints of the sets (nn/data/sample_array.hpp).
/// Throws InvalidArgument on all ranks for a set that does not fit the network. A file that cannot be read throws
/// FileError on its rank, and PeerFailed on the others.
template <class T>
TrainReport train(const comm::Communicator& comm, const NetworkDescription& network, const Strategy& strategy,
                  const Dataset& train_set, const std::optional<Dataset>& test_set, const TrainOptions& options,
                  TrainObserver* observer = nullptr);

/// Trains on made-up data (nn/data/synthetic.hpp) for time and memory: any network, any loss, no test set.
/// Collective. As above otherwise; `epochs`, `shift` do not count. Throws InvalidArgument unless `steps` > 0.
template <class T>
TrainReport train_on_synthetic_data(const comm::Communicator& comm, const NetworkDescription& network,
                                    const Strategy& strategy, const TrainOptions& options,
                                    TrainObserver* observer = nullptr);

}  // namespace aloni::nn

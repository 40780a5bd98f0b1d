#pragma once
// A runnable network: activations, gradients, exchanges and layers of one rank, for one mini-batch size.
//
//   Parameters<float> parameters(comm, queue, description, seed);
//   Network<float> network(comm, queue, description, strategy, 64, parameters);
//   // each step: fill network.input() (this rank's box network.input_box()) and network.labels(), then
//   StepResult result = network.train_step(queue);   // forward, loss, backward, gradient all-reduce
//   parameters.sgd(queue, {.learning_rate = 0.05});  // or parameters.update() with another optimiser
//
// With NetworkOptions::update the update is part of the step's graph: the update of a segment starts when its gradients
// are summed. The options of the optimiser may differ from step to step.
//
//   Network<float> network(comm, queue, description, strategy, 64, parameters, {.update = true});
//   StepResult result = network.train_step(queue, SgdOptions{.learning_rate = 0.05}, step);   // step = 1, 2, 3, …
//
// Network<comm::bfloat16> stores and sends activations and their gradients as bfloat16, which halves the memory of
// float. Network<comm::float16> does so with float16, which has three more bits and a small range: 6e-8 to 65504. Its
// small gradients need loss scaling (nn/loss_scaling.hpp).
// * Parameters, their gradients, statistics and sums stay float (Parameters<float>) or double. A layer computes in
//   float or double and rounds once, when it writes a result.
// * Three sums are in 16 bits, with one rounding per summand. These are the gradients that several readers return to a
//   tensor, Add, and the ghost gradients of overlapping windows. Each has few summands.
// * On a host, convolutions of bfloat16 use oneDNN. On processors for which oneDNN has no bfloat16 the constructor
//   throws Unsupported, unless the backend is `kokkos_kernels` or `reference`. Those of float16 are computed in copies
//   of float.
// * On a device they use cuDNN, which rounds the gradients of filters to 16 bits. Where it has no engine, and with
//   `kokkos_kernels`, they are computed in copies of float.
//
// Number of threads. With the backends reference, direct and onednn, activations of a forward pass have the same bits
// for every number of threads. This holds up to the first Dense layer. BLAS (Dense, kokkos_kernels), the loss and the
// backward pass sum in an order that depends on the number of threads. Equal runs with equal numbers of threads give
// equal bits. NetworkOptions::convolutions chooses implementations, so it belongs to the equal arguments of equal runs;
// tables measured with other numbers of threads may choose others (nn/local/convolution_choice.hpp).
//
// The data of a simulation. halo::Redistribution takes input_field() and output_field(). A network can also read a
// tensor of the caller where it lies (nn/adopted_input.hpp):
//
//   Network<float> network(comm, queue, description, strategy, 1, parameters, {}, density);   // a DistributedView
//
// Filters. oneDNN wants them in its own order. A pass reorders the filters of a convolution once, although several
// regions use them. Networks for training reorder all filters in one place, as large as those of the largest
// convolution. Networks for inference keep the reordered filters of each convolution. With ParameterWrites::announced
// these are reordered only after a change of the values (nn/parameters.hpp).
//
// Several networks may share one set of parameters, for example one for full and one for incomplete mini-batches.
// Member functions that take a queue are collective over the communicator; the others are not. All calls of one
// network use the same queue. Nothing is allocated after construction.
#include <aloni/core/comm/communicator.hpp>
#include <aloni/core/comm/partial_all_reduce.hpp>
#include <aloni/core/machine.hpp>
#include <aloni/core/measured_implementations.hpp>
#include <aloni/core/queue.hpp>
#include <aloni/core/stopwatch.hpp>
#include <aloni/halo/field.hpp>
#include <aloni/nn/adopted_input.hpp>
#include <aloni/nn/local/convolution_problem.hpp>
#include <aloni/nn/local/local_types.hpp>
#include <aloni/nn/network_description.hpp>
#include <aloni/nn/parameters.hpp>
#include <aloni/nn/plan/offloading.hpp>
#include <aloni/nn/plan/recomputation.hpp>
#include <aloni/nn/strategy.hpp>
#include <aloni/views/local_view.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

namespace aloni::nn {

class StepTimes;
template <class T, class Exec>
class FactorSums;

enum class Mode { training, evaluation };

struct NetworkOptions {
  local::ConvolutionBackend backend = local::ConvolutionBackend::automatic;
  /// Convolutions of float multiply in TF32, whose mantissa has 10 bits, on the tensor cores of a device; sums stay
  /// float. Dense layers multiply in float. The constructor throws Unsupported without cuDNN, and for another type.
  bool tf32 = false;
  /// The network only evaluates: no gradients, and activations are kept only until their last reader is done. The
  /// parameters may be made for inference. Functions for training throw InvalidArgument.
  bool inference = false;
  /// train_step() takes an optimiser of the kind for which the parameters were made, and ends with the update of the
  /// parameters. Otherwise it ends with their gradients.
  /// With an update, other buffers use the memory of the gradients while a step does not need them. So each call of
  /// this network leaves other values in Parameters::gradients(), also forward() and evaluate().
  bool update = false;
  bool input_gradient = false;  ///< backward also computes the gradient of the network's input
  /// In evaluation a convolution also computes the ReLU that follows it. With oneDNN this ReLU turns NaN into 0.
  bool fuse_inference = true;
  /// A batch normalisation also computes the ReLU that follows it, and its gradient; or the sum (Add) that follows it,
  /// with the ReLU behind that. In 16-bit types this sum is rounded once instead of twice.
  bool fuse_batch_norm = true;
  /// A max pooling also computes the ReLU before it, and its gradient, if it is the only reader of that ReLU and needs
  /// no ghosts. Results are the same to the bit. The input of the ReLU is not kept for the backward pass.
  bool fuse_pooling = true;
  /// Above 0: each step runs in a random allowed order drawn from this seed, and memory starts as NaN. Tests use it to
  /// find accesses that layers did not declare.
  std::uint64_t schedule_seed = 0;
  /// Replaces MachineDescription::direct_bytes: ghosts of at least this many bytes for one rank are copied from its
  /// memory, fewer are sent. At least 0.
  std::optional<Index> direct_bytes = {};
  /// Replaces MachineDescription::consolidate_below: messages between nodes with a mean length below this many bytes
  /// are joined into one; 0: none. At least 0.
  std::optional<Index> consolidate_below = {};
  /// Replaces MachineDescription::bucket_bytes: gradients are summed in buckets of at least this many bytes, 1 or more.
  std::optional<Index> bucket_bytes = {};
  /// Replaces MachineDescription::chunk_bytes, of partial sums and gathered rows. At least 1.
  std::optional<Index> chunk_bytes = {};
  /// Gradients are summed beside the backward pass. Otherwise each segment is summed at once after it, as on devices
  /// whose sums wait on the host.
  bool sums_beside_backward = true;
  std::optional<double> largest_overhead = {};  ///< DistributedConvolutionOptions::largest_overhead
  /// Replaces MachineDescription::multiplications_per_slab. At least 1.
  std::optional<double> multiplications_per_slab = {};
  /// MachineDescription::convolutions: measured times by which `automatic` chooses implementations. Equal on all ranks.
  MeasuredImplementations convolutions = {};
  /// Replaces MachineDescription::work_per_copied_byte, by which `offload` is scheduled. All above 0.
  std::optional<WorkPerCopiedByte> work_per_copied_byte = {};
  std::uint64_t dropout_seed = 0;  ///< of the masks of dropout layers
  /// Blocks of layers whose activations a step drops after the forward pass. It computes them again before the backward
  /// pass, with the same bits. The values of the parameters must not change between forward() and backward().
  Recomputation recompute = {};
  /// Layers whose activations a step keeps in host memory between both passes, with the same bits
  /// (nn/plan/offloading.hpp). On hosts this copies them and saves nothing.
  Offloading offload = {};
  /// Streams of a device on which a step runs, 1 to 4 (nn/stream_plan.hpp); by default 4. On hosts everything runs in
  /// order on the queue of the caller, and more streams only plan more scratch memory.
  std::optional<int> streams = {};
  /// The kernels between communication are recorded once, as graphs of the device, and repeated by one call of the host
  /// (nn/step_segments.hpp). Kernels then reorder their filters in each step. Builds without a device throw
  /// Unsupported.
  bool record = false;
};

struct StepResult {
  double loss = 0;    ///< as defined for each Loss: a mean over the mini-batch, or the Dice loss of the mini-batch
  Index correct = 0;  ///< correct predictions in the mini-batch
};

/// Memory through which a mini-batch of host memory reaches a device; empty before the first one, and on hosts.
template <class T, class Mem>
struct BatchStaging {
  Kokkos::View<T*, Mem> input;
  Kokkos::View<T*, Kokkos::SharedHostPinnedSpace> host_input;
  Kokkos::View<int*, Kokkos::SharedHostPinnedSpace> host_labels;
};

template <class T, class Exec = Kokkos::DefaultExecutionSpace>
class Network {
  static_assert(has_activations<T>, "this build of aloni has no such activations: CMake option aloni_ACTIVATIONS");

 public:
  using Mem = typename Exec::memory_space;

  /// `samples`: size of the mini-batch of all ranks together. The parameters are whole on every rank, or split as
  /// the strategy says.
  /// `input`: a tensor of the caller that the network reads instead of an own input, in any layout and distribution.
  /// It is given here because transfers and kernels are bound to memory once; another tensor needs another network.
  /// Collective. All ranks pass the same arguments, and parameters with the same values.
  /// @pre `parameters` and the ranks of the communicator outlive the network
  /// @pre `input` has the extents of the mini-batch, and spans the communicator
  /// Throws InvalidArgument on all ranks, for a wrong argument or one that differs between ranks; the text names these
  /// ranks. Throws ReplicasDiffer as Parameters::check_replicas, Unsupported on all ranks, PeerFailed.
  Network(const comm::Communicator& comm, const Queue<Exec>& queue, const NetworkDescription& description,
          const Strategy& strategy, Index samples, Parameters<parameter_type_t<T>, Exec>& parameters,
          const NetworkOptions& options = {}, const std::optional<AdoptedInput<T, Mem>>& input = {});
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;
  ~Network();

  // --- filled by the caller before a step; not collective ---

  const views::Distribution& input_distribution() const;
  /// Global indices of input(). Samples are counted within the mini-batch.
  const views::Box& input_box() const;
  /// This rank's part of the input: memory of the network, or the caller's own if the input is adopted.
  views::LocalView<T, Mem> input() const;
  /// input() as the destination of a halo::Redistribution. Throws Unsupported (equal on all ranks) for types of 16
  /// bits.
  halo::Field<Mem> input_field() const;
  const views::Distribution& output_distribution() const;
  const views::Box& output_box() const;
  /// Labels of the samples in output_box() (LossTargets::sample_labels); otherwise empty.
  const Kokkos::View<int*, Mem>& labels() const;
  /// Labels of the pixels in output_box(), with one channel (LossTargets::pixel_labels); otherwise empty.
  views::LocalView<int, Mem> pixel_labels() const;
  /// Targets of the elements in output_box() (LossTargets::elements); otherwise empty.
  views::LocalView<T, Mem> targets() const;

  // --- whole steps ---

  /// Forward, loss, backward, all-reduce. Afterwards the parameters' gradients are those of the mean loss, equal on
  /// all ranks that keep them.
  /// With `partial` the gradients are the result of one round of it, and the loss is the mean over the samples of
  /// that round.
  /// `partial` is made for as many elements as gradients() of the parameters has.
  /// Collective. Throws InvalidArgument if `partial` is given and the parameters are split, and with options.update.
  StepResult train_step(const Queue<Exec>& queue, comm::PartialAllReduce<parameter_type_t<T>>* partial = nullptr);
  /// As above, then the update of the parameters: the bits of Parameters::update(), in the same graph. The loss is that
  /// before the update. `step`: number of the update, from 1.
  /// Collective. Throws InvalidArgument without options.update, and as Parameters::update().
  StepResult train_step(const Queue<Exec>& queue, const Optimiser& optimiser, std::int64_t step);
  /// train_step() with an update, without its result: the host does not wait for the kernels at the end, so on a device
  /// it can prepare the next step. Collective. Asynchronous: the kernels may still run. Throws as train_step().
  void start_train_step(const Queue<Exec>& queue, const Optimiser& optimiser, std::int64_t step);
  /// The result of the last step in training, and the one place where the host waits for it. Not collective.
  /// @pre a step was started on this queue, and gradients() of the parameters have not changed since
  /// Throws InvalidArgument with options.inference.
  StepResult step_result(const Queue<Exec>& queue);
  /// Forward with running statistics, then the loss and the sums of the metrics. Collective.
  StepResult evaluate(const Queue<Exec>& queue);
  /// The sums of the last evaluate() over all ranks, equal on all of them, from which metrics follow (nn/metrics.hpp).
  /// Empty if the loss has no metrics. Valid until the next evaluate().
  std::span<const double> metric_sums() const;

  // --- parts of a step, for custom losses and for tests ---

  /// In training a dropout layer draws a new mask, and backward() uses it: see set_dropout_step().
  void forward(const Queue<Exec>& queue, Mode mode);
  /// This rank's part of the last layer's output.
  views::LocalView<T, Mem> output() const;
  /// output() as the source of a halo::Redistribution. Throws Unsupported (equal on all ranks) for types of 16 bits.
  halo::Field<Mem> output_field() const;
  /// Gradient of the loss with respect to output(). The caller writes it before backward().
  views::LocalView<T, Mem> output_gradient() const;
  /// output_gradient() as the destination of a halo::Redistribution. Throws Unsupported (equal on all ranks) for types
  /// of 16 bits.
  halo::Field<Mem> output_gradient_field() const;
  void backward(const Queue<Exec>& queue);
  /// @pre options.input_gradient
  views::LocalView<T, Mem> input_gradient() const;
  /// A micro-batch that is not the last one of its mini-batch (nn/gradient_sum.hpp): forward, loss and backward. Its
  /// gradients are added to those of earlier ones, without a sum over ranks. The next train_step() completes the
  /// mini-batch by the last micro-batch; its result is that of all samples. Collective. Asynchronous.
  /// Throws InvalidArgument (equal on all ranks) if the parameters were not made for ParameterUse::accumulation.
  void add_gradients(const Queue<Exec>& queue);
  /// Forward, loss and backward without the sum over ranks: the gradients become those of the part that this rank
  /// computes. Collective. Throws InvalidArgument with options.update.
  void compute_gradients(const Queue<Exec>& queue);
  /// Sums the gradients over all ranks. Collective.
  void reduce_gradients(const Queue<Exec>& queue);
  /// The loss of a mini-batch is this factor times the sum that its ranks add.
  double loss_factor() const;

  /// Each forward pass in training mode has a number, counted from 0; train_step() contains one. The masks of dropout
  /// layers depend on dropout_seed and this number. All backward passes up to the next forward pass use its masks.
  /// Sets the number of the next forward pass, for example to repeat it. Not collective.
  /// @pre equal on all ranks, step < 2^40
  void set_dropout_step(std::uint64_t step);
  /// The number of the next forward pass in training mode.
  std::uint64_t dropout_step() const;

  /// Averages the running statistics of batch normalisation over the ranks, so that all ranks evaluate the same
  /// network. Before, groups of ranks differ if their statistics cover only a part of the mini-batch. Collective.
  void synchronise_statistics(const Queue<Exec>& queue);

  /// Bytes of this rank that the plans predict for the network: buffers, packed messages and copies of weights, without
  /// the parameters. The libraries' own memory is not included.
  Index planned_bytes() const;
  /// Growth of the resident set of this process that the plans predict, in bytes. It is counted from before the network
  /// is made to the end of the first step. It consists of planned_bytes(), code, and pages of other ranks that this
  /// rank reads (nn/plan/process_memory.hpp).
  Index planned_resident_bytes() const;
  /// As above, for a network that is not the first one of the process: the pages of libraries are there already.
  Index planned_additional_bytes() const;
  /// How often convolutions of this rank have made their filters ready for their kernels, over all of them.
  std::uint64_t filter_refreshes() const;
  /// Wall-clock time of the steps on this rank, by phase.
  Stopwatch& stopwatch();
  /// Of fill_batch(), which allocates it at its first call.
  BatchStaging<T, typename Exec::memory_space>& staging();
  /// Steps add the times of their nodes to `times` from now on (nn/step_times.hpp); null, as at first: to nothing.
  /// Recording allocates. Not collective. @pre `times` outlives all steps until the next call
  void record_times(StepTimes* times);
  /// Backward passes add the factors of K-FAC to `sums` from now on (nn/factor_sums.hpp); null, as at first: nowhere.
  /// Layers that the plan of `sums` names must not split channels or filters, as plan_kfac() requires. Not collective.
  /// Throws InvalidArgument with options.inference. @pre `sums` outlives all steps until the next call
  void record_factors(FactorSums<T, Exec>* sums);

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace aloni::nn

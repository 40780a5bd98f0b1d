#pragma once
// A network that runs: activations, gradients, exchanges and layers of one rank, for one size of mini-batch.
//
//   Parameters<float> parameters(comm, queue, description, seed);
//   Network<float> network(comm, queue, description, strategy, 64, parameters);
//   // each step: fill network.input() (this rank's box network.input_box()) and network.labels(), then
//   StepResult result = network.train_step(queue);   // forward, loss, backward, gradient all-reduce
//   parameters.sgd(queue, {.learning_rate = 0.05});
//
// Network<comm::bfloat16, Kokkos::DefaultHostExecutionSpace> holds and sends activations and their gradients as bfloat16, half the memory of floats;
// there is none for devices. Parameters, their gradients, statistics and sums stay float (Parameters<float>) or double; the arithmetic within a layer is
// float or double, rounded once when a result is written. Three sums are of bfloat16, with a rounding per summand, of which there are few: gradients
// that come back to a tensor from several readers, Add, and ghosts of gradients of overlapping windows. Convolutions go through oneDNN: on processors
// for which that has no bfloat16 the constructor throws Unsupported, unless the backend is `reference`.
//
// Several networks (a full and an incomplete mini-batch, say) may share one set of parameters. All member functions that take a queue are
// collective over the communicator, except input(), labels() and targets(); all calls of one network use the same queue.
// After construction nothing is allocated.
#include <aloni/core/comm/communicator.hpp>
#include <aloni/core/comm/partial_all_reduce.hpp>
#include <aloni/core/queue.hpp>
#include <aloni/core/stopwatch.hpp>
#include <aloni/nn/layers/layer.hpp>
#include <aloni/nn/local/local_types.hpp>
#include <aloni/nn/network_description.hpp>
#include <aloni/nn/parameters.hpp>
#include <aloni/nn/strategy.hpp>
#include <aloni/views/local_view.hpp>

#include <cstdint>
#include <memory>
#include <optional>

namespace aloni::nn {

struct NetworkOptions {
  local::ConvolutionBackend backend = local::ConvolutionBackend::automatic;
  bool input_gradient = false;  ///< backward also computes the gradient of the network's input
  /// In evaluation convolutions end with the ReLU that follows them. oneDNN's then make a NaN 0.
  bool fuse_inference = true;
  /// Above 0: each step does its work in an order drawn from it, of all that are allowed: tries whether layers name all memory that they touch.
  std::uint64_t schedule_seed = 0;
  std::optional<double> largest_overhead = {};  ///< of DistributedConvolutionOptions
};

struct StepResult {
  double loss = 0;    ///< mean over the mini-batch (samples, or elements for binary cross-entropy)
  Index correct = 0;  ///< right predictions in the mini-batch
};

template <class T, class Exec = Kokkos::DefaultExecutionSpace>
class Network {
 public:
  using Mem = typename Exec::memory_space;

  /// Collective. `parameters` and the communicator's ranks outlive the network. `samples`: size of the mini-batch, all ranks together.
  /// The parameters are whole on every rank, or split as the strategy says.
  /// Throws InvalidArgument, Unsupported (equal on all ranks); PeerFailed.
  Network(const comm::Communicator& comm, const Queue<Exec>& queue, const NetworkDescription& description,
          const Strategy& strategy, Index samples, Parameters<parameter_type_t<T>, Exec>& parameters,
          const NetworkOptions& options = {});
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;
  ~Network();

  // --- what the caller fills before a step; not collective ---

  const views::Distribution& input_distribution() const;
  /// Global indices of input(), samples counted within the mini-batch.
  const views::Box& input_box() const;
  /// This rank's part of the input.
  views::LocalView<T, Mem> input() const;
  const views::Distribution& output_distribution() const;
  const views::Box& output_box() const;
  /// Labels of the samples in output_box() (softmax cross-entropy).
  const Kokkos::View<int*, Mem>& labels() const;
  /// Targets of the elements in output_box() (binary cross-entropy).
  views::LocalView<T, Mem> targets() const;

  // --- whole steps ---

  /// Forward, loss, backward, all-reduce: the parameters' gradients are then those of the mean loss, equal on all ranks that keep them. With
  /// `partial`, made for gradients().extent(0) elements of the parameters, which must be whole on every rank (else InvalidArgument), they are what
  /// a round of it has gathered, the loss the mean of those samples.
  StepResult train_step(const Queue<Exec>& queue, comm::PartialAllReduce<parameter_type_t<T>>* partial = nullptr);
  /// Forward with running statistics, and the loss.
  StepResult evaluate(const Queue<Exec>& queue);

  // --- parts of a step, for own losses and for tests ---

  void forward(const Queue<Exec>& queue, Mode mode);
  /// This rank's part of the last layer's output.
  views::LocalView<T, Mem> output() const;
  /// Gradient of the loss with respect to output(): written by the caller before backward().
  views::LocalView<T, Mem> output_gradient() const;
  void backward(const Queue<Exec>& queue);
  /// @pre options.input_gradient
  views::LocalView<T, Mem> input_gradient() const;
  /// Adds the gradients of all ranks.
  void reduce_gradients(const Queue<Exec>& queue);

  /// Averages the running statistics of batch normalisation over the ranks, so that all evaluate the same network: with statistics over a
  /// part of the mini-batch each group has its own.
  void synchronise_statistics(const Queue<Exec>& queue);

  /// Wall-clock time of the steps on this rank by kind.
  Stopwatch& stopwatch();

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace aloni::nn

#pragma once
// Binds the nodes of step plans to kernels, transfers and sums over ranks, and adds them to steps that run
// (nn/step.hpp). It decides nothing: every choice is in the plan.
//
//   Binder<float, Exec> binder(comm, queue, memory, machine);
//   Step<Exec> step;
//   for (int n = 0; n < size; ++n) binder.bind(plan, n, step);
//   step.prepare();
//
// Nodes of several plans share kernels, transfers and communicators where they do the same work on the same buffers.
#include <aloni/core/comm/communicator.hpp>
#include <aloni/core/comm/partial_all_reduce.hpp>
#include <aloni/core/comm/view_all_reduce.hpp>
#include <aloni/core/machine.hpp>
#include <aloni/core/queue.hpp>
#include <aloni/halo/transfer.hpp>
#include <aloni/nn/local/batch_norm.hpp>
#include <aloni/nn/local/bias.hpp>
#include <aloni/nn/local/convolution.hpp>
#include <aloni/nn/local/group_norm.hpp>
#include <aloni/nn/local/layer_norm.hpp>
#include <aloni/nn/parameters.hpp>
#include <aloni/nn/plan/step_plan.hpp>
#include <aloni/nn/run/convolution_kernels.hpp>
#include <aloni/nn/run/plan_memory.hpp>
#include <aloni/nn/run/subgroups.hpp>
#include <aloni/nn/step.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace aloni::nn {

template <class T, class Exec>
class FactorSums;

template <class T, class Exec>
class Binder {
 public:
  using Mem = typename Exec::memory_space;
  using Parameter = parameter_type_t<T>;
  using AllParameters = Parameters<Parameter, Exec>;
  using View = views::LocalView<T, Mem>;
  template <class U>
  using Flat = Kokkos::View<U*, Mem>;

  /// `memory` and `parameters` outlive this object and all steps. `parameters` is null for plans without statistics,
  /// sums of gradients and loss.
  /// `machine`: the one for which the plans were made. Transfers have its limits, so they are as the plans say.
  Binder(const comm::Communicator& comm, const Queue<Exec>& queue, PlanMemory<Exec>& memory,
         const MachineDescription& machine, AllParameters* parameters = nullptr);
  Binder(const Binder&) = delete;
  Binder& operator=(const Binder&) = delete;

  /// Binds node `n` and adds it to the step. The plan, this object and the step's queue outlive the step.
  /// Collective over the ranks of the plan: every rank binds the same communication in the same order.
  /// Throws Unsupported if a backend cannot compute a convolution, on the ranks with that part. Also throws it if the
  /// ranks of a sum cannot use its algorithm.
  void bind(const StepPlan& plan, int n, Step<Exec>& step);

  /// Version of the filter values of the next executions; 0, the default, disables caching.
  void set_filter_version(std::uint64_t version) { filters_version_ = version; }
  /// Whether kernels keep reordered filters from step to step, as is the default. Otherwise each call reorders them, so
  /// that every step submits the same kernels: a recorded step needs that (nn/step_recorder.hpp).
  void keep_filters(bool keep) { keeps_filters_ = keep; }
  /// How often convolutions have made their filters ready for their kernels, in all steps so far.
  std::uint64_t filter_refreshes() const;
  /// Seed of the masks of dropout layers. Call it before bind().
  void set_dropout_seed(std::uint64_t seed) { dropout_seed_ = seed; }
  /// Number of the step whose masks the next executions make, forward and backward.
  void set_dropout_step(std::uint64_t step) { dropout_step_ = step; }
  /// Optimiser and number of the update of the next executions. @pre the parameters' check_update() throws nothing
  void set_update(const Optimiser& optimiser, std::int64_t number) {
    optimiser_ = optimiser;
    update_number_ = number;
  }
  /// The next executions add the inputs and dL/dy of layers to `sums`, where they compute gradients of weights; null:
  /// nowhere. @pre `sums` outlives these executions
  void record_factors(FactorSums<T, Exec>* sums) { factor_sums_ = sums; }
  /// Bytes of kernels and messages: the memory of this rank besides the buffers of the plans.
  std::size_t bytes() const;
  /// Whether sums of gradients can start before the end of the backward pass. Otherwise a plan has them after it
  /// (GradientSums::after_backward). Equal on all ranks. Collective at the first call.
  bool sums_can_start();
  /// The partial all-reduce of the next executions of plans with GradientSums::partial. @pre it has as many elements as
  /// the gradients of the parameters, and outlives these executions
  void set_partial(comm::PartialAllReduce<Parameter>& partial) { partial_ = &partial; }
  /// Number of contributions in the gradients after such an execution, late ones included.
  int contributions() const { return contributions_; }
  /// Sums all gradients over the ranks at once. Collective.
  void sum_gradients(const Queue<Exec>& queue);

 private:
  using Kernel = typename Step<Exec>::Kernel;
  using AddToStep = std::function<void(Step<Exec>&)>;  ///< a bound node; may be added to several steps
  /// One convolution: its kernels and weights.
  struct Convolution {
    detail::ConvolutionKernels<T, Exec> kernels;
    detail::ConvolutionKernels<Parameter, Exec> sum_kernels;
    std::vector<detail::PartWeights<Parameter, Exec>> parts;
    std::uint64_t seen_version = 0, refreshed = 0;
  };
  struct Normalisation {
    std::optional<local::LocalGroupNorm<T, Exec>> group;
    std::optional<local::LocalLayerNorm<T, Exec>> layer;
    Flat<Parameter> ones, zeros;  ///< gamma and beta that are not learned
  };
  /// A sum of values of one buffer, or of one segment of gradients.
  template <class U>
  struct Sum {
    std::optional<comm::ViewAllReduce<U, Exec>> reduction;
    std::map<std::pair<Index, Index>, comm::Request> pending = {};  ///< by first element and number
  };

  // One function per kind of work.
  Kernel kernel(const StepPlan& plan, const ConvolutionWork& work);
  Kernel kernel(const StepPlan& plan, const FilterGradientWork& work);
  Kernel kernel(const StepPlan& plan, const WeightsWork& work);
  Kernel kernel(const StepPlan& plan, const BiasWork& work);
  Kernel kernel(const StepPlan& plan, const BiasGradientWork& work);
  Kernel kernel(const StepPlan& plan, const RoundingWork& work);
  Kernel kernel(const StepPlan& plan, const PoolingWork& work);
  Kernel kernel(const StepPlan& plan, const ResamplingWork& work);
  Kernel kernel(const StepPlan& plan, const NormalisationWork& work);
  Kernel kernel(const StepPlan& plan, const GlobalAverageWork& work);
  Kernel kernel(const StepPlan& plan, const DenseWork& work);
  Kernel kernel(const StepPlan& plan, const PointwiseWork& work);
  Kernel kernel(const StepPlan& plan, const DropoutWork& work);
  Kernel kernel(const StepPlan& plan, const LossWork& work);
  Kernel kernel(const StepPlan& plan, const MetricsWork& work);
  Kernel kernel(const StepPlan& plan, const AccumulationWork& work);
  Kernel kernel(const StepPlan& plan, const NormWork& work);
  Kernel kernel(const StepPlan& plan, const OptimiserWork& work);
  Kernel kernel(const StepPlan& plan, const OffloadWork& work);

  /// The stream for which the plan has scratch memory of a convolution.
  static int stream_of(const StepPlan& plan, const ConvolutionWork& work) {
    return work.border && has_border_stream(plan.streams) ? border_stream : compute_stream;
  }
  template <class Target>
  Kernel region(const StepPlan& plan, const ConvolutionWork& work, detail::ConvolutionKernels<Target, Exec>& kernels);
  Kernel batch_norm(const StepPlan& plan, const NormalisationWork& work);
  Kernel group_norm(const StepPlan& plan, const NormalisationWork& work);
  Kernel layer_norm(const StepPlan& plan, const NormalisationWork& work);

  AddToStep bind_transfer(const StepPlan& plan, const TransferWork& work, StepNode node);
  AddToStep bind_reduction(const StepPlan& plan, const ReductionWork& work, StepNode node);
  template <class U>
  static AddToStep bind_sum(StepNode node, std::shared_ptr<Sum<U>> sum, const ReductionWork& work);
  template <class U>
  static AddToStep bind_whole_sum(StepNode node, std::shared_ptr<Sum<U>> sum, const ReductionWork& work);
  template <class U>
  std::shared_ptr<Sum<U>> sum_of(std::map<std::string, std::shared_ptr<Sum<U>>>& all, const std::string& name,
                                 const Flat<U>& values, const std::vector<int>& members);
  AddToStep bind_partial_sum(StepNode node);
  void make_gradient_sums();

  Convolution& convolution(const StepPlan& plan, int weights);
  template <class Views>
  Views views_of(const StepPlan& plan, const NormalisationWork& work);
  Normalisation& normalisation(const StepPlan& plan, const NormalisationWork& work);
  Flat<Parameter> channels(const StepPlan& plan, BufferId b, const views::Box& region) const;
  Flat<Parameter> filters(const StepPlan& plan, BufferId b, const ConvolutionPart& part) const;
  views::LocalView<std::int32_t, Mem> positions(const StepPlan& plan, BufferId argmax, bool backward) const;
  halo::AnyTransferItem<Mem> item(const StepPlan& plan, const TransferItemPlan& item) const;
  template <class U>
  halo::TransferItem<U, Mem> item_of(const StepPlan& plan, const TransferItemPlan& item) const;

  comm::Communicator comm_;
  Subgroups groups_;  ///< of the sums
  Queue<Exec> queue_;
  PlanMemory<Exec>& memory_;
  std::size_t direct_bytes_, consolidate_below_;            ///< fields of MachineDescription
  std::vector<std::shared_ptr<local::Scratch>> scratches_;  ///< of all convolutions, by stream
  AllParameters* parameters_;
  std::uint64_t filters_version_ = 0;
  bool keeps_filters_ = true;
  std::uint64_t dropout_seed_ = 0, dropout_step_ = 0;
  FactorSums<T, Exec>* factor_sums_ = nullptr;
  Optimiser optimiser_;
  std::int64_t update_number_ = 1;
  comm::PartialAllReduce<Parameter>* partial_ = nullptr;
  int contributions_;
  typename AllParameters::Flat::HostMirror host_gradients_;           ///< of partial sums
  std::map<std::string, std::unique_ptr<Convolution>> convolutions_;  ///< by the name of the weights
  std::map<int, std::unique_ptr<Normalisation>> normalisations_;      ///< by layer
  std::map<std::string, halo::Transfer<Exec>> transfers_;  ///< by name, buffers and number of occurrences before
  std::map<const StepPlan*, std::map<std::string, int>> occurrences_;  ///< of a transfer's name and buffers in a plan
  std::map<std::pair<const StepPlan*, int>, AddToStep> bound_;
  std::map<std::string, std::shared_ptr<Sum<double>>> double_sums_;    ///< by buffer
  std::map<std::string, std::shared_ptr<Sum<Parameter>>> value_sums_;  ///< by buffer
  std::vector<std::shared_ptr<Sum<Parameter>>> gradient_sums_;         ///< by segment
};

}  // namespace aloni::nn

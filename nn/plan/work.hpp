#pragma once
// The work of one node of a step plan, as plain data. It is a kernel with its problem, a transfer with its plan, or a
// reduction with its members. nn/run/ binds each to a kernel, transfer or collective; cost() prices it.
//
// A work names buffers of its plan (StepPlan::buffers). Boxes are global indices of these buffers.
#include <aloni/core/comm/all_reduce_traffic.hpp>
#include <aloni/halo/stencil.hpp>
#include <aloni/halo/transfer_plan.hpp>
#include <aloni/nn/layer.hpp>
#include <aloni/nn/local/convolution_choice.hpp>
#include <aloni/nn/local/convolution_problem.hpp>
#include <aloni/nn/local/element_type.hpp>
#include <aloni/nn/local/pooling_problem.hpp>
#include <aloni/nn/local/resampling_problem.hpp>
#include <aloni/nn/network_description.hpp>
#include <aloni/nn/optimiser.hpp>
#include <aloni/views/box.hpp>

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace aloni::nn {

const char* name(ElementType type);

/// Index in StepPlan::buffers.
using BufferId = int;
inline constexpr BufferId no_buffer = -1;

/// One call of a local convolution kernel: the product of one weight part with one box.
struct ConvolutionCall {
  int part = 0;  ///< index in ConvolutionWeights::parts
  /// False: no input reaches the box, which becomes zero, or the bias.
  bool computes = true;
  local::ConvolutionProblem problem = {};
  /// The implementation; never `automatic`.
  local::ConvolutionBackend backend = local::ConvolutionBackend::reference;
  bool tf32 = false;                                           ///< local::ConvolutionPasses::tf32
  std::int64_t engine = -1;                                    ///< of cuDNN; -1: cuDNN chooses
  local::ChoiceSource chosen_by = local::ChoiceSource::given;  ///< the reason for the implementation
  views::Box source = {}, target = {};                         ///< with the channels and filters of the part
};

/// One region of the result of a convolution: y from x, or dL/dx from dL/dy.
struct ConvolutionWork {
  bool backward = false;  ///< from dL/dy to dL/dx
  bool gathers = true;    ///< computed by forward kernels; otherwise by backward-data kernels
  bool relu = false;      ///< with max(y, 0)
  bool border = false;    ///< outputs that need ghosts; other nodes compute the interior
  /// Whether the target holds partial sums in the type of the parameters, from a copy of the source in that type.
  bool partial_sums = false;
  int weights = 0;  ///< index in StepPlan::convolution_weights
  BufferId source = no_buffer, target = no_buffer;
  BufferId bias = no_buffer;  ///< added to the result
  BufferId copy = no_buffer;  ///< of partial sums: memory for the source in the type of the parameters
  views::Box region = {};     ///< of the target
  std::vector<ConvolutionCall> calls = {};
};

/// The gradient of the weights. Where it can be computed at the same time, also the gradient of the bias.
struct FilterGradientWork {
  int weights = 0;          ///< index in StepPlan::convolution_weights
  bool transposed = false;  ///< the kernels take dy for their input and x for their output
  BufferId x = no_buffer, dy = no_buffer, dw = no_buffer;
  BufferId db = no_buffer;                           ///< no_buffer: not computed here
  std::vector<ConvolutionCall> calls = {};           ///< source: of x; target: of dy
  bool zeroes_weights = false, zeroes_bias = false;  ///< parts that are not computed on this rank become zero
};

/// Makes the weights ready: copies parts that are not dense, and tells kernels that filters may have changed.
struct WeightsWork {
  int weights = 0;  ///< index in StepPlan::convolution_weights
};

/// target += bias, per channel.
struct BiasWork {
  BufferId bias = no_buffer, target = no_buffer;
  views::Box region = {};  ///< of the target
};

/// The gradient of a bias: the sum of dy over its pixels; zero for filters of other ranks.
struct BiasGradientWork {
  BufferId dy = no_buffer, db = no_buffer;
  views::Box region = {};  ///< of dy
  /// False: another rank has the first copy of the region, or the region is empty. This rank then writes zeros.
  bool contributes = true;
};

/// target = sums (+ bias), rounded to the type of activations.
struct RoundingWork {
  BufferId sums = no_buffer, target = no_buffer, bias = no_buffer;
  views::Box region = {};  ///< of the target
};

struct PoolingWork {
  bool backward = false;
  PoolingKind kind = PoolingKind::max;
  /// Of the maximum: x and dx are those of the ReLU before this layer, y = max(0, …), and that ReLU has no nodes.
  bool relu = false;
  local::AverageDivisor divisor = local::AverageDivisor::window;
  local::PoolingProblem problem = {};
  BufferId source = no_buffer, target = no_buffer;  ///< x and y, or dy and dx
  BufferId argmax = no_buffer;                      ///< max pooling whose gradient is computed
  views::Box from = {}, to = {};                    ///< of source and target
};

/// Adaptive pooling and up-sampling.
struct ResamplingWork {
  bool backward = false;
  bool maximum = false;
  local::ResamplingProblem problem = {};
  BufferId source = no_buffer, target = no_buffer;
  BufferId argmax = no_buffer;
  views::Box from = {}, to = {};
};

/// A stage of batch, group or layer normalisation. Sums travel between stages in `sums`, by a ReductionWork.
enum class NormalisationStage : std::uint8_t {
  statistics,       ///< sums of x
  squares,          ///< layer normalisation with split channels: sums of (x - mean)², from the sums of x
  forward,          ///< y from x and the sums
  gradient_sums,    ///< sums for the gradient; batch normalisation writes dgamma and dbeta too
  scale_gradients,  ///< dgamma and dbeta (group and layer normalisation)
  backward          ///< dx
};
enum class NormalisationKind : std::uint8_t { batch, group, layer };

struct NormalisationWork {
  NormalisationKind kind = NormalisationKind::batch;
  NormalisationStage stage = NormalisationStage::statistics;
  int layer = 0;
  /// Batch normalisation: y = max(0, …), the output of the ReLU that follows, and dy is the gradient of that output.
  bool relu = false;
  /// Batch normalisation, forward: y = max(0, …), the output of the ReLU behind the sum with `summand`.
  bool sum_relu = false;
  bool trains = true;           ///< false: batch normalisation by running statistics
  bool updates_running = true;  ///< false: batch normalisation in a node that repeats another one
  /// Of batch normalisation: the ranks over which sums are taken, as BatchNorm::scope and BatchNorm::ranks.
  StatisticsScope scope = StatisticsScope::all;
  int scope_ranks = 1;
  Index count = 0;  ///< elements that share a mean, on all ranks together
  /// Group normalisation: the number of groups whose sums the rank has, the channels of a group, and the first channel.
  /// The latter is the position of the rank's first channel among the channels of these groups.
  Index groups = 1, group_channels = 1, first_channel = 0;
  bool splits_cells = false;  ///< layer normalisation: other ranks have other channels of the rank's cells
  double epsilon = 1e-5, momentum = 0;
  bool is_first_copy = true;  ///< false: another rank contributes the same gradients of gamma and beta
  views::Box region = {};     ///< of x, y, dx and dy
  BufferId x = no_buffer, y = no_buffer, dx = no_buffer, dy = no_buffer;
  /// Batch normalisation, forward: y is the sum (Add) that follows, of this and itself. Backward: the gradient of x by
  /// its other reader, to which dx is added. `summand_region`: the part of it, in its own indices.
  BufferId summand = no_buffer;
  views::Box summand_region = {};
  BufferId gamma = no_buffer, beta = no_buffer, dgamma = no_buffer, dbeta = no_buffer;  ///< no_buffer: 1 and 0
  BufferId sums = no_buffer;  ///< that the stage writes or reads
  /// Batch normalisation, statistics and forward: sums of the first channels of x, which another normalisation has; the
  /// stage `statistics` computes those of the other channels. The stage `forward` writes both to `all_sums`.
  BufferId known_sums = no_buffer, all_sums = no_buffer;
  BufferId squares = no_buffer;     ///< that the stage `squares` writes
  BufferId statistics = no_buffer;  ///< means and deviations that the backward pass reads
  BufferId partial = no_buffer;     ///< batch normalisation: sums of shares of the rows
  BufferId running = no_buffer;     ///< running mean and variance
};

/// The mean over all pixels: sums of this rank (`sums` is written), the mean (`sums` is read), or the gradient.
enum class GlobalAverageStage : std::uint8_t { sums, mean, backward };
struct GlobalAverageWork {
  GlobalAverageStage stage = GlobalAverageStage::sums;
  double scale = 1;
  BufferId source = no_buffer, target = no_buffer;
  views::Box from = {}, to = {};
};

enum class DensePass : std::uint8_t { forward, parameters, data };
struct DenseWork {
  DensePass pass = DensePass::forward;
  int layer = 0;
  bool contributes = true;  ///< false: not the first copy of the outputs, or none; gradients of parameters become zero
  Index samples = 0, features = 0, inputs = 0;
  BufferId x = no_buffer, y = no_buffer, dx = no_buffer, dy = no_buffer;
  BufferId w = no_buffer, b = no_buffer, dw = no_buffer, db = no_buffer;
  /// Copies of x or dx, and of y or dy, in the type of the parameters; no_buffer if that is the type of activations.
  BufferId input_copy = no_buffer, output_copy = no_buffer;
};

/// Element by element. The inputs and the output have boxes of equal extents.
enum class PointwiseFunction : std::uint8_t {
  copy,            ///< the elements in memory order; flatten copies between boxes of different shapes
  add,             ///< sum of all inputs, in their order
  layer,           ///< y of a pointwise layer, from x
  layer_gradient,  ///< dx, from x or y as the layer's properties say, and dy
};
struct PointwiseInput {
  BufferId buffer = no_buffer;
  views::Box box = {};
};
struct PointwiseWork {
  PointwiseFunction function = PointwiseFunction::copy;
  std::vector<PointwiseInput> inputs = {};
  PointwiseInput output = {};
  Operation operation = Relu{};  ///< of `layer` and `layer_gradient`
};

/// Dropout, and its gradient: output = input × mask. The mask follows from global indices.
struct DropoutWork {
  int layer = 0;
  double rate = 0;
  views::Extents extents = {};                      ///< of the whole tensor
  BufferId source = no_buffer, target = no_buffer;  ///< x and y, or dy and dx
  views::Box region = {};                           ///< of both
};

/// The loss and, with `gradient`, its derivative by the output of the network. A loss that is a function of sums over
/// all ranks has two stages, and a ReductionWork of `global` between them.
enum class LossStage : std::uint8_t {
  whole,  ///< loss and gradient at once
  sums,   ///< `global` from this rank's elements
  rest    ///< loss and gradient, from `global` over all ranks
};
struct LossWork {
  LossStage stage = LossStage::whole;
  Loss loss = Loss::softmax_cross_entropy;
  BufferId output = no_buffer, targets = no_buffer, gradient = no_buffer;
  BufferId sums = no_buffer;    ///< the sum of losses and the number of correct predictions
  BufferId global = no_buffer;  ///< dice: the sums of p t, p², t² and the number of correct predictions
  double share = 1;             ///< of `rest`: the part of the loss that this rank adds to the sum over ranks
  views::Box region = {};       ///< of the output
  double scale = 1;             ///< 1 / (number of summands of the mean)
  bool scales_loss = false;     ///< the gradient is multiplied by Parameters::loss_scale()
  bool is_first_copy = true;    ///< false: another rank contributes the same samples
  double smoothing = 0;         ///< of labels
};

/// The sums of this rank's samples from which the metrics of a test set follow (nn/metrics.hpp). In inference only.
struct MetricsWork {
  Loss loss = Loss::softmax_cross_entropy;
  BufferId output = no_buffer, targets = no_buffer;
  BufferId sums = no_buffer;
  views::Box region = {};     ///< of the output
  bool is_first_copy = true;  ///< false: another rank contributes the same samples, and the sums are 0
};

/// A learned tensor in an update.
struct UpdatedTensor {
  BufferId value = no_buffer, gradient = no_buffer;
  std::vector<BufferId> states = {};  ///< in the order of the optimiser's properties
};

/// One update of all tensors of a segment by the optimiser. Its options (for example the learning rate) and the number
/// of the update are arguments of the execution.
struct OptimiserWork {
  OptimiserKind kind = OptimiserKind::sgd;
  BufferId factors = no_buffer;  ///< by which it scales gradients and rates; no_buffer: no norms are needed
  int segment = 0;               ///< of the parameters: tensors whose gradients are summed over the same ranks
  Index elements = 0;
  std::vector<UpdatedTensor> tensors = {};
};

/// Accumulation of gradients over micro-batches, of one part of a segment before its sum over ranks. Micro-batches
/// before the last one add their gradients to `sums`. In the last one the gradients become the mean over all of them
/// (nn/gradient_sum.hpp). The numbers of samples are arguments of the execution.
struct AccumulationWork {
  int segment = 0;                ///< of the parameters
  Index first = 0, elements = 0;  ///< of the segment, with the two sums of the loss
  bool with_loss = false;         ///< the sums of the loss follow the gradients
  std::vector<BufferId> gradients = {}, sums = {};
};

/// The norms of an update (nn/plan/norm_layout.hpp). Between its stages a ReductionWork sums the squares of split
/// tensors over the ranks.
enum class NormStage : std::uint8_t {
  squares,  ///< of the gradients of a segment, and with LARS of its values, on this rank
  factors   ///< of the update, from the squares of all tensors
};
struct NormWork {
  NormStage stage = NormStage::squares;
  // squares
  int segment = 0;
  std::vector<UpdatedTensor> tensors = {};  ///< without states; without values if only gradients have norms
  Index elements = 0;                       ///< that are squared
  int blocks = 1, block = 0;                ///< of the segment, and the block of this rank
  bool is_first_copy = true;                ///< false: another rank writes the sums of this block, and this one zeros
  BufferId chunks = no_buffer;              ///< sums of chunks
  BufferId sums = no_buffer;                ///< `whole_sums` or `block_sums`
  // factors
  BufferId whole_sums = no_buffer, block_sums = no_buffer;
  BufferId factors = no_buffer;
  Index sums_read = 0;  ///< number of sums of squares
};

/// A copy between a buffer and its place in host memory: there behind the last use in the forward pass, and back before
/// the first use in the backward pass (nn/plan/offloading.hpp). The buffers have equal boxes and types.
struct OffloadWork {
  bool back = false;
  BufferId buffer = no_buffer, host = no_buffer;
  /// Of a copy to host memory: the buffer keeps its place up to this node of the plan, so that kernels do not wait.
  int kept_until = -1;
};

/// One source and one destination of a transfer; equal for a halo exchange.
struct TransferItemPlan {
  BufferId source = no_buffer, destination = no_buffer;
  views::Box source_box, destination_box;  ///< the parts of the buffers that take part
  halo::TransferPlan plan = {};
  /// Positions in the buffers of the plan's channel 0; above 0 for inputs of a concatenation.
  Index source_channels = 0, destination_channels = 0;
};
enum class TransferPurpose : std::uint8_t {
  ghosts,          ///< of one distribution, or their sums in the owned cells
  redistribution,  ///< between the distributions of two layers
  partial_sums     ///< of the ranks that share outputs of a convolution
};
struct TransferWork {
  TransferPurpose purpose = TransferPurpose::ghosts;
  bool adjoint = false;
  std::string name;  ///< part of labels of kernels and messages
  std::vector<TransferItemPlan> items = {};
};

/// A sum over ranks.
struct ReductionWork {
  std::vector<int> members = {};  ///< ascending; includes this rank
  Index elements = 0;             ///< equal on all members
  ElementType type = ElementType::float64;
  /// How collectives on host memory add them; set by PlanBuilder::reduction(). A device's library has its own ways.
  comm::AllReducePlan plan = {};
  std::vector<BufferId> buffers = {};  ///< the values
  /// Of gradients: their range in a segment of the parameters; -1: not gradients.
  int segment = -1;
  Index first = 0;
  /// The first bucket of gradients also carries the two sums of the loss.
  bool with_loss = false;
  /// One round of a partial all-reduce (core/comm/partial_all_reduce.hpp). Late contributions belong to a later round.
  bool partial = false;

  /// Elements that travel: a round of a partial all-reduce also sums the number of contributions.
  Index travelling_elements() const { return elements + (partial ? 1 : 0); }
};

using Work = std::variant<ConvolutionWork, FilterGradientWork, WeightsWork, BiasWork, BiasGradientWork, RoundingWork,
                          PoolingWork, ResamplingWork, NormalisationWork, GlobalAverageWork, DenseWork, PointwiseWork,
                          DropoutWork, LossWork, MetricsWork, AccumulationWork, NormWork, OptimiserWork, OffloadWork,
                          TransferWork, ReductionWork>;

/// "convolution", "filter_gradient", … For people and files.
const char* kind(const Work& work);

/// Whether it computes the border of a convolution beside its interior.
bool is_border(const Work& work);

/// Whether it copies between device and host memory.
bool is_copy(const Work& work);

/// StepNode::changing_arguments of a node with this work. @pre kernels do not keep reordered filters from step to step
std::string changing_arguments(const Work& work);

/// Implementations of a convolution or of the gradient of its filters, each once: "onednn", "cudnn engine 3",
/// "direct, onednn". Empty for other work, and where no kernel runs.
std::string implementations(const Work& work);

}  // namespace aloni::nn

#pragma once
// One training or inference step of one rank as a value: buffers with boxes and lifetimes, and nodes with typed work.
// Made by plan_step() (nn/plan/plan_step.hpp) without MPI, Kokkos or memory; checked by verify(), sized by memory_of(),
// executed by Network.
//
// The nodes are listed in a valid sequential order. The reads and writes of the nodes decide all else: dependencies,
// overlap (nn/step_graph.hpp), lifetimes and memory.
#include <aloni/nn/network_plan.hpp>
#include <aloni/nn/plan/work.hpp>
#include <aloni/nn/step_graph.hpp>

#include <optional>
#include <string>
#include <vector>

namespace aloni::nn {

/// training: forward, loss, backward, sums over ranks, update. gradients: as training, with the gradient of a loss of
/// the user's in place of the loss. inference: forward alone.
enum class StepKind : std::uint8_t { training, gradients, inference };

enum class BufferRole : std::uint8_t {
  input,                ///< filled by the user: input, labels, targets, and for StepKind::gradients dL/dy
  activation,           ///< outputs of layers
  gradient,             ///< gradients of activations
  ghosts,               ///< copies with ghosts
  partial_sums,         ///< sums of one rank before they are added over ranks
  parameters,           ///< learned values
  parameter_gradients,  ///< and their gradients
  gradient_sums,        ///< sums of parameter gradients over micro-batches
  optimiser,            ///< state of the optimiser (persistent), norms and factors of an update
  workspace,            ///< statistics, argmax, copies of weights
  messages,             ///< packed values
  offloaded             ///< copies of activations in host memory
};
const char* name(BufferRole role);

/// Nodes of a plan, by their positions in its list.
struct NodeRange {
  int first = 0, last = 0;  ///< inclusive

  friend bool operator==(const NodeRange&, const NodeRange&) = default;
};

struct PlanBuffer {
  std::string name;  ///< unique in the plan
  BufferRole role = BufferRole::activation;
  ElementType type = ElementType::float32;
  views::Box owned = {}, box = {};  ///< the box that this rank owns, and the box of the memory
  /// Root buffer whose memory this one uses; no_buffer: memory of its own. A root has no alias itself.
  BufferId alias = no_buffer;
  /// Of an alias: whether its boxes have other coordinates than those of the root. Then each access is an access to
  /// the whole root.
  bool other_indices = false;
  bool shared = false;      ///< other ranks of the node read it in transfers
  bool by_kernels = false;  ///< the kernels allocate it when they are made; the extent is an estimate
  bool persistent = false;  ///< its contents outlive the step, or are there before it
  /// Convolutions get views that reach beyond the cells that their nodes name, so that memory is dense. They multiply
  /// these cells by zero, so the cells must be finite. Therefore the buffer shares its memory with no other one.
  bool read_beyond = false;
  bool adopted = false;       ///< memory of the caller, which no node writes; `box` is in any layout
  int first = -1, last = -1;  ///< first and last node that uses it or an alias of it; set by plan_step()
  /// Of a root: the nodes between `first` and `last` during which no later node needs its contents. Ascending; set by
  /// plan_step(). They precede nodes that compute the contents again (PlanNode::repeats), or fetch them from host
  /// memory (OffloadWork).
  std::vector<NodeRange> unused = {};

  Index bytes() const { return box.size() * bytes_of(type); }
  /// Whether it lies in host memory, for activations that leave the device.
  bool on_host() const { return role == BufferRole::offloaded; }
};

struct PlanRegion {
  BufferId buffer = no_buffer;
  views::Box box = {};
};

/// The summand of a parameter gradient that a node computes: over which outputs of the layer it sums.
struct GradientSummand {
  BufferId gradient = no_buffer;
  views::Box part;     ///< of the gradient
  views::Box outputs;  ///< global indices of the layer's output; its channels are ignored
};

enum class StepPhase : std::uint8_t { forward, loss, backward, update };
const char* name(StepPhase phase);

struct PlanNode {
  std::string label;
  int layer = -1;  ///< in the network; -1: none
  StepPhase phase = StepPhase::forward;
  Work work;
  std::vector<PlanRegion> reads = {}, writes = {};
  std::vector<GradientSummand> summands = {};
  /// Of transfers and reductions: a number that is equal on all ranks that take part, and ascends in the list.
  int communication = -1;
  /// The forward node that this backward node repeats, for values that were dropped (StepOptions::recompute); -1: none.
  int repeats = -1;

  NodeKind kind() const;
  bool sums_gradients() const;  ///< of parameters, over ranks
  bool accumulates() const;     ///< gradients of parameters, over micro-batches
};

/// A part of a convolution's weights that one rank multiplies by.
struct WeightPart {
  ConvolutionPart part;
  views::Box box;       ///< of the weights
  bool copied = false;  ///< not dense in the memory of the weights
};
/// The weights of one convolution on one rank.
struct ConvolutionWeights {
  int layer = 0;
  BufferId w = no_buffer, dw = no_buffer;
  BufferId filters = no_buffer;  ///< stands for the weights in the kernels' order
  std::vector<WeightPart> parts = {};
};

/// The memory of the gradients of one segment of the parameters (ParameterSegment). Parameters has it.
struct GradientMemory {
  struct Tensor {
    BufferId gradient = no_buffer;
    Index offset = 0;  ///< in bytes
  };
  std::vector<Tensor> tensors = {};
  Index bytes = 0;
  bool shared = true;  ///< other ranks of the node can read it
};

struct StepPlan {
  StepKind kind = StepKind::training;
  int rank = 0, ranks = 1;
  Index samples = 1;
  std::vector<PlanBuffer> buffers = {};
  std::vector<PlanNode> nodes = {};
  std::vector<ConvolutionWeights> convolution_weights = {};
  BufferId input = no_buffer, output = no_buffer;                    ///< of the network
  BufferId input_gradient = no_buffer, output_gradient = no_buffer;  ///< no_buffer: not computed
  std::vector<BufferId> gradients = {};                              ///< in training: dL/dy of each layer, or no_buffer
  /// The optimiser that updates the parameters at the end of the step; empty: the plan ends with the gradients.
  std::optional<OptimiserKind> update = {};
  UpdateOptions update_options = {};
  bool accumulates = false;                          ///< StepOptions::accumulates
  std::vector<GradientMemory> gradient_memory = {};  ///< of each segment; empty without gradients
  int communications = 0;                            ///< numbers given to communication; equal on all ranks
  /// Streams on which the step may run (nn/stream_plan.hpp). Kernels of two streams have scratch memory of their own.
  int streams = 1;
  bool keeps_filters = true;  ///< StepOptions::keeps_filters
  /// ReLUs, by number of the layer, that the max pooling behind them computes too: they have no nodes.
  std::vector<int> pooled_relus = {};

  /// Position of a buffer. Throws InvalidArgument for an unknown name.
  BufferId find(const std::string& name) const;
  BufferId root(BufferId b) const {
    return buffers[static_cast<std::size_t>(b)].alias == no_buffer ? b : buffers[static_cast<std::size_t>(b)].alias;
  }
};

/// The accesses of a node. Aliases are accesses to their root; Access::memory points to the root's PlanBuffer.
std::vector<Access> accesses_of(const StepPlan& plan, const PlanNode& node);

/// All nodes with their accesses, for schedule(). @pre the plan outlives the graph
StepGraph graph_of(const StepPlan& plan);

}  // namespace aloni::nn

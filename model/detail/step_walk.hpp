#pragma once
// The walk of simulate.hpp in two parts: plans with their prices, and a walk over them. The first part costs most, and
// serves all draws of variation.hpp. Private to simulate.cpp and variation.cpp.
//
//   const PricedStep step(network, layers, machine, kernels, options);     // the arguments outlive it
//   std::vector<WalkedPart> parts = whole_classes(step);
//   parts[0].kernel_factors = {1, 1.3};
//   step.walk(parts).seconds;
#include <aloni/model/communication.hpp>
#include <aloni/model/simulate.hpp>
#include <aloni/nn/step_graph.hpp>

#include <array>
#include <optional>
#include <vector>

namespace aloni::model::detail {

/// The ranks reach a step at different times. In the second step these times are those of all later ones.
inline constexpr int walked_steps = 2;

/// One node of a rank: its kernel, or its communication with the classes of ranks that it waits for.
struct NodeCosts {
  bool runs = false;  ///< the node belongs to the section
  Estimate kernel;
  TransferCost transfer;
  std::vector<int> senders = {}, readers = {};  ///< classes, in the order of arrivals and readers
  /// Factor of the wire times of messages between nodes: the ranks of a node share its link.
  double contention = 1;
  ReductionCost reduction;
  std::vector<int> members = {};   ///< classes of the members of a sum, each once
  bool sum_crosses_nodes = false;  ///< the members of the sum are in several nodes
  /// Of a sum: at most this share of its bytes is on the way at once. Parts of it that have not begun let others pass.
  double begun_share = 1;
};

/// Ranks whose plans and prices are equal.
struct RankClass {
  int rank = 0;  ///< the lowest one, whose plan this is
  nn::StepPlan plan;
  std::vector<nn::StepAction> actions = {};
  /// Of each action: those of other queues that it waits for; empty on hosts.
  std::vector<std::vector<int>> waits = {};
  std::vector<NodeCosts> nodes = {};
  std::vector<double> far_wires = {};  ///< by communication: wire time of all messages from other nodes
};

/// The nodes of a step that run together.
enum class StepSection {
  whole,
  micro_batch  ///< that is not the last one: all but the sums of gradients over ranks and the update
};

class ConsolidatedTransfers;

/// The ranks of a section of a step.
class PricedSection {
 public:
  PricedSection(const nn::NetworkDescription& network, const nn::NetworkPlan& layers, const Machine& machine,
                const KernelTimes& kernels, const SimulationOptions& options, StepSection section);
  /// Another section of the same plans.
  PricedSection(const PricedSection& other, const Machine& machine, const KernelTimes& kernels, StepSection section);

  const nn::NetworkDescription& network() const { return network_; }
  const SimulationOptions& options() const { return options_; }
  bool on_host() const { return description_.on_host; }
  const std::vector<RankClass>& classes() const { return classes_; }
  const std::vector<int>& class_of_rank() const { return class_of_; }
  /// Of each rank; empty: all ranks are on one node.
  const std::vector<int>& node_of_rank() const { return description_.nodes; }

 private:
  void price(const Machine& machine, const KernelTimes& kernels, StepSection section);
  void price(RankClass& c, const Machine& machine, const KernelTimes& kernels, FittedCollectives& fits,
             ConsolidatedTransfers& consolidated, StepSection section);
  void find_contention();
  int class_of(int rank) const { return class_of_[static_cast<std::size_t>(rank)]; }

  const nn::NetworkDescription& network_;
  const SimulationOptions& options_;
  MachineDescription description_;
  std::vector<int> class_of_;  ///< by rank
  std::vector<RankClass> classes_;
};

/// Ranks of a class that are walked as one: all of them, or those with equal links.
struct WalkedPart {
  int rank_class = 0;
  std::array<double, walked_steps> kernel_factors = {1, 1};  ///< of the times of kernels in each step
  /// Of the times of messages that arrive from other nodes. A sum over nodes takes the largest one of its members.
  double link_factor = 1;
};

/// A whole step: its micro-batches. The last one has all nodes.
class PricedStep {
 public:
  /// Throws as simulate().
  PricedStep(const nn::NetworkDescription& network, const nn::NetworkPlan& layers, const Machine& machine,
             const KernelTimes& kernels, const SimulationOptions& options);

  /// Equal for all sections.
  const std::vector<RankClass>& classes() const { return last_.classes(); }
  const std::vector<int>& class_of_rank() const { return last_.class_of_rank(); }
  const std::vector<int>& node_of_rank() const { return last_.node_of_rank(); }

  /// A part waits for all parts of a class that one of its ranks waits for. @pre each class has a part
  /// Throws InvalidArgument for plans that wait forever.
  SimulatedStep walk(const std::vector<WalkedPart>& parts) const;

 private:
  PricedSection last_;
  int micro_batches_;
  std::optional<PricedSection> earlier_;  ///< with several micro-batches
};

/// One part for each class, without changes.
std::vector<WalkedPart> whole_classes(const PricedStep& step);

}  // namespace aloni::model::detail

#pragma once
// The time of one step on a machine, by a discrete-event walk over the plans and schedules that real ranks execute.
// Resources are the cores of ranks, which run kernels and copies, and links, which messages share.
//
//   const NetworkPlan layers = nn::plan_network(net, nn::resolve(strategy, net, ranks), ranks, samples);
//   const MachineKernels kernels(machine, 2, 1);
//   const SimulatedStep step = simulate(net, layers, machine, kernels);
//   step.seconds, step.exposed_communication;
//
// Ranks whose plans differ by position only are walked once (nn/plan/representatives.hpp). Ranks and links of unequal
// speed are in variation.hpp. Pure.
#include <aloni/model/communication.hpp>
#include <aloni/model/kernel_times.hpp>
#include <aloni/model/machine.hpp>
#include <aloni/nn/network_description.hpp>
#include <aloni/nn/network_plan.hpp>
#include <aloni/nn/plan/plan_step.hpp>

#include <array>
#include <vector>

namespace aloni::model {

struct SimulationOptions {
  nn::StepKind kind = nn::StepKind::training;
  nn::StepOptions step = {};
  /// Of a training step (nn::TrainOptions::accumulate). Above 1 the plans accumulate gradients, whatever
  /// nn::StepOptions::accumulates says. All nodes run once for each micro-batch, but for the sums of gradients over
  /// ranks and the update: these run in the last one.
  int micro_batches = 1;
  /// Factor of the times of kernels. It does not change Processor::kernel_seconds, which kernels priced by the
  /// roofline take besides.
  double kernel_scale = 1;
  /// SimulatedStep has the actions of all walked ranks.
  bool timeline = false;
  /// The place of each rank on the machine, as for description_of(). Empty: its own.
  std::vector<int> rank_of = {};
  /// Up to this number all ranks are walked, with the messages of a real run. Beyond it, equal plans are walked once.
  int most_single_ranks = 8;
};

/// Seconds of one rank. On a host `kernels + copies + waits` is the time of all its actions. On a device copies run
/// beside kernels: there `waits` is the time in which no kernel runs, and `copies` is 0.
struct RankTime {
  double kernels = 0;
  double copies = 0;  ///< packing, unpacking, sums over ranks, posting of messages: the core is busy
  double waits = 0;   ///< for messages and other ranks

  double sum() const { return kernels + copies + waits; }
  RankTime& operator+=(const RankTime& other);
};

/// Seconds of communication by itself: all ranks reach it together, and no kernel hides it.
struct CommunicationTime {
  double halos = 0;            ///< ghosts of one distribution, forward and backward
  double redistributions = 0;  ///< between layers with different splits
  double sums = 0;             ///< over ranks: partial sums, statistics, gradients

  double seconds() const { return halos + redistributions + sums; }
  CommunicationTime& operator+=(const CommunicationTime& other);
};

struct SimulatedAction {
  int rank = 0, node = 0;  ///< node: of the plan of the rank
  nn::StepActionKind kind = nn::StepActionKind::run;
  double start = 0, end = 0;  ///< seconds since the start of the step
};

struct SimulatedStep {
  double seconds = 0;  ///< between the ends of two consecutive steps, each on its slowest rank
  int slowest_rank = 0;
  /// Of the slowest rank, by StepPhase: forward, loss, backward, update.
  std::array<RankTime, 4> phases = {};
  /// Of the slowest rank, by layer; the last element belongs to no layer.
  std::vector<RankTime> layers = {};
  /// Likewise. A sum of gradients belongs to the first layer of its bucket.
  std::vector<CommunicationTime> communication = {};
  /// Of the slowest rank: copies and waits, which no kernel hides.
  double exposed_communication = 0;
  /// Share of the time of kernels, on the slowest rank, by source of their times.
  std::array<double, kernel_sources> sources = {};
  /// Of the slowest rank, by layer, as `layers`: the kernels of RankTime, with their sources and errors.
  std::vector<KernelSeconds> kernels = {};
  /// Share of the time of sums over ranks by themselves, on the slowest rank, by CommunicationSource.
  std::array<double, communication_sources> sum_sources = {};
  /// The same of transfers that bring values from other ranks.
  std::array<double, communication_sources> transfer_sources = {};
  std::vector<SimulatedAction> actions = {};  ///< with SimulationOptions::timeline
  std::vector<int> walked = {};               ///< by rank: the rank that was walked for it
};

/// @pre `layers` was made from `network`, for one micro-batch
/// Throws InvalidArgument as description_of(), and for micro_batches below 1, or above 1 without a training step.
SimulatedStep simulate(const nn::NetworkDescription& network, const nn::NetworkPlan& layers, const Machine& machine,
                       const KernelTimes& kernels, const SimulationOptions& options = {});

}  // namespace aloni::model

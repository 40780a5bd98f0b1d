#pragma once
// The part of `aloni calibrate` that measures the implementations of the convolutions of a network: --model, with
// --batch, --strategy, --precision and --workspace. Planners of a job with the machine file choose by these times.
//
//   ConvolutionArguments network;
//   network.add_options(command);                          // then: app.parse(…), network.check()
//   if (network.given()) add_convolutions(comm, machine, network.planned(comm), network.most_workspace_bytes(), …);
#include <aloni/core/comm/agreement.hpp>
#include <aloni/core/comm/communicator.hpp>
#include <aloni/model/machine.hpp>
#include <aloni/model/measure_kernels.hpp>
#include <aloni/tools/network_arguments.hpp>
#include <aloni/tools/strategy_argument.hpp>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace aloni::tools {

class ConvolutionArguments {
 public:
  /// Adds the options to `command`. @pre this object outlives `command`
  void add_options(CLI::App& command);
  /// Throws UsageError.
  void check() const;
  /// The options that all ranks must pass alike.
  void add_to(comm::ReplicatedValues& values) const;

  /// Whether the user asks for the convolutions of a network.
  bool given() const;
  Index most_workspace_bytes() const { return workspace_; }
  /// Training and inference of the network on the ranks of `comm`.
  /// Collective. Throws UsageError, FileError, InvalidArgument on rank 0, PeerFailed on the others.
  std::vector<model::PlannedNetwork> planned(const comm::Communicator& comm) const;

 private:
  CLI::App* command_ = nullptr;
  NetworkArguments network_{""};
  StrategyArgument strategy_{FewerBlocks::refused};
  Index batch_ = 64, workspace_ = Index{1} << 30;
  std::string precision_ = "float";
};

/// Adds times of all implementations of the networks' convolutions to the tables of `machine`
/// (model/measure_convolutions.hpp). Before each convolution `progress` gets the numbers of those that are done and of
/// all, and `save` may keep the machine in a file; both on all ranks. On devices with cuDNN each of its engines counts.
/// Collective. Throws as nn::measure_node.
void add_convolutions(const comm::Communicator& comm, model::Machine& machine,
                      const std::vector<model::PlannedNetwork>& networks, Index most_workspace_bytes,
                      const std::function<void(std::size_t done, std::size_t all)>& progress,
                      const std::function<void()>& save);

/// Several lines: each convolution of the networks with the times of its implementations, the chosen one first.
std::string convolution_times_text(const model::Machine& machine, const std::vector<model::PlannedNetwork>& networks);

}  // namespace aloni::tools

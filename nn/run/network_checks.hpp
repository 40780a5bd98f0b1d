#pragma once
// Checks and comparisons of the constructor of Network, before it allocates anything. Each function runs on all ranks,
// and throws on all ranks.
#include <aloni/core/comm/communicator.hpp>
#include <aloni/core/machine.hpp>
#include <aloni/nn/network.hpp>
#include <aloni/nn/network_plan.hpp>

#include <optional>

namespace aloni::nn::detail {

/// Throws Unsupported if the backend cannot compute with activations of type T.
template <class T, class Exec>
void check_support(const NetworkOptions& options);

/// Returns `comm`, once all ranks have passed equal arguments: plans of different arguments would wait for ever.
/// `input`: distribution of an adopted input, or null. Collective. Throws InvalidArgument.
template <class T>
const comm::Communicator& agreed(const comm::Communicator& comm, const NetworkDescription& description,
                                 const Strategy& strategy, Index samples, const NetworkOptions& options,
                                 OptimiserKind optimiser, const UpdateOptions& update,
                                 const views::Distribution* input);

/// The costs by which steps are planned: the defaults, replaced by those of the options. Throws InvalidArgument.
MachineDescription costs_of(const NetworkOptions& options, bool on_host);

/// The facts of an adopted input that the plan needs. Collective. Throws InvalidArgument for a View of another box.
template <class T, class Mem>
std::optional<AdoptedInputPlan> plan_of(const comm::Communicator& comm,
                                        const std::optional<AdoptedInput<T, Mem>>& input);

/// Throws InvalidArgument if a rank does not keep the weights by which its layers multiply, or not for this use.
template <class T, class Exec>
void check_parameters(const comm::Communicator& comm, const NetworkDescription& description, const NetworkPlan& plan,
                      const Parameters<T, Exec>& parameters, const NetworkOptions& options);

}  // namespace aloni::nn::detail

#include <aloni/nn/plan/memory_savings.hpp>

#include <aloni/core/error.hpp>
#include <aloni/nn/plan/largest_memory.hpp>

namespace aloni::nn {

namespace {
constexpr const char* operation = "aloni::nn::memory_savings_for";
}

Offloading choose_offloading(const NetworkDescription& network, const NetworkPlan& layers,
                             const MachineDescription& machine, const StepOptions& options,
                             std::optional<Index> limit) {
  const auto all = static_cast<int>(network.layers.size());
  const auto first = [](int number) {
    Offloading chosen;
    for (int i = 0; i < number; ++i) chosen.push_back(i);
    return chosen;
  };
  if (!limit) return first(all);
  const auto fits = [&](int number) {
    StepOptions step = options;
    step.offload = first(number);
    return largest_memory(network, layers, machine, StepKind::training, step, limit).peak <= *limit;
  };
  if (fits(0)) return {};
  int few = 0, many = all;  // `few` layers do not suffice
  while (many - few > 1) {
    const int middle = (few + many) / 2;
    (fits(middle) ? many : few) = middle;
  }
  return first(many);
}

MemorySavings memory_savings_for(const NetworkDescription& network, const NetworkPlan& layers,
                                 const MachineDescription& machine, const StepOptions& options,
                                 const MemoryWish& wish) {
  const bool chooses_blocks = wish.recompute == "auto", chooses_layers = wish.offload == "auto";
  if (machine.on_host && !wish.offload.empty()) {
    throw Unsupported(operation, "offloading", '"' + wish.offload + '"',
                      "recomputation, or a device: activations of a host are in host memory already");
  }
  StepOptions step = options;
  step.recompute =
      wish.recompute.empty() || chooses_blocks ? Recomputation{} : recomputed_blocks(network, wish.recompute);
  step.offload = wish.offload.empty() || chooses_layers ? Offloading{} : offloaded_layers(network, wish.offload);
  if (chooses_layers) step.offload = choose_offloading(network, layers, machine, step, wish.limit);
  MemorySavings savings{.recomputation = chooses_blocks
                                             ? choose_recomputation(network, layers, machine, step, wish.limit)
                                             : price_recomputation(network, layers, machine, step),
                        .offload = step.offload};
  const PricedRecomputation& priced = savings.recomputation;
  if (wish.limit && priced.peak_bytes > *wish.limit) {
    throw InvalidArgument(operation, "memory limit", std::to_string(*wish.limit) + " bytes",
                          "at least " + std::to_string(priced.peak_bytes) + " bytes; most are in use at layer " +
                              priced.peak_layer + ". Recomputation \"auto\" chooses blocks to meet the limit" +
                              (machine.on_host || chooses_layers
                                   ? std::string()
                                   : ", and offloading \"auto\" layers whose activations go to host memory"));
  }
  if (savings.offload.empty()) return savings;
  savings.apply(step);
  const LargestMemory most = largest_memory(network, layers, machine, StepKind::training, step);
  savings.moved_bytes = most.moved;
  savings.host_bytes = most.host;
  return savings;
}

}  // namespace aloni::nn

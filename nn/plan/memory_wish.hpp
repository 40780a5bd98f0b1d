#pragma once
// The ways in which a training step saves memory, as a user wishes them. nn/plan/memory_savings.hpp finds the layers.
#include <aloni/core/index.hpp>

#include <optional>
#include <string>

namespace aloni::nn {

/// The results of a step have the same bits in all ways.
struct MemoryWish {
  /// Layers whose activations a step drops and computes again: "" (none), "auto", or patterns for recomputed_blocks()
  /// (nn/plan/recomputation.hpp).
  std::string recompute = {};
  /// Layers whose activations a step keeps in host memory between the forward and the backward pass: "" (none), "auto",
  /// or patterns for offloaded_layers() (nn/plan/offloading.hpp). Devices only.
  std::string offload = {};
  /// Most bytes of the planned buffers of a training step, on each rank (PlanMemoryUse::peak). "auto" saves as little
  /// memory as meets it; without a limit, as much as it can.
  std::optional<Index> limit = {};

  bool saves() const { return !recompute.empty() || !offload.empty(); }
  bool empty() const { return !saves() && !limit; }
};

}  // namespace aloni::nn

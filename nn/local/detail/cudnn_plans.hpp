#pragma once
// Execution plans of cuDNN for the passes of one convolution, by its graph interface. A plan is made for a device that
// is described, so it is made and checked on machines without one. Only CudnnHandle needs a device.
//
//   const CudnnDevice device = CudnnDevice::described(text);          // or CudnnHandle().device() where there is one
//   const std::vector<CudnnPlan> plans = cudnn_plans(graph, device, {.most = 1});
//   plans.front().engine(), plans.front().workspace_bytes();
//
// Graphs
// * forward: y = conv(x, w), then + bias and max(0, ·) if the graph has them. Sums are float (double for double).
// * backward_data: dx of the part of the input that outputs read (padded_problem.hpp). The caller zeroes the rest.
// * backward_filter: dw. cuDNN sums in float and rounds dw once to the type of x: it has no engine that reads bfloat16
//   and writes float.
// * Tensors have the strides of their Views, so ghosted boxes are read and written in place. An engine
//   that wants tensors without gaps copies them into its workspace first.
//
// Layout of filters: (filters, kernel, channels / groups), dense, as everywhere in this library.
//
// Without Kokkos. Source of the sequence of calls: NVIDIA, cuDNN documentation, "Graph API", 9.x.
#include <aloni/nn/local/detail/padded_problem.hpp>
#include <aloni/nn/local/element_type.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace aloni::nn::local::detail {

/// Element strides of (sample, depth, height, width, channel).
using CudnnStrides = std::array<Index, 5>;
/// Those of a dense tensor with these extents, of any number of samples.
CudnnStrides dense_strides(const std::array<Index, 3>& pixels, Index channels);

struct CudnnGraph {
  PaddedProblem problem;
  ConvolutionPass pass = ConvolutionPass::forward;
  ElementType type = ElementType::float32;  ///< of x, y, their gradients, w and dw; not int32
  CudnnStrides input_strides{}, output_strides{};
  bool bias = false, relu = false;  ///< of the forward pass
  /// Of the addresses, in bytes: powers of two. Tensors of parameters lie one behind the other, without gaps, so their
  /// addresses may have the alignment of an element only.
  Index input_alignment = 16, output_alignment = 16, filters_alignment = 16, bias_alignment = 16;

  friend bool operator==(const CudnnGraph&, const CudnnGraph&) = default;
};

/// padded_problem() with the rest of the input, of less than a stride, which no output reads. cuDNN rounds the number
/// of outputs down. Without the rest the tensor has gaps, and most engines copy it.
PaddedProblem cudnn_problem(const ConvolutionProblem& problem);

/// The graph of a pass with dense x and y.
CudnnGraph dense_graph(const ConvolutionProblem& problem, ConvolutionPass pass, ElementType type);

/// A device for which plans are made.
class CudnnDevice {
 public:
  /// `json`: the properties in cuDNN's format; all of its keys are needed. Throws Unsupported without cuDNN, and Error
  /// if cuDNN refuses the text.
  static CudnnDevice described(const std::string& json);

  struct Descriptor;
  const Descriptor& descriptor() const { return *descriptor_; }
  /// In cuDNN's format. Two devices with the same text have the same plans.
  std::string properties() const;

 private:
  friend class CudnnHandle;
  CudnnDevice() = default;

  std::shared_ptr<const Descriptor> descriptor_;
};

/// Pointers on the device. w: read by forward and backward_data, written by backward_filter.
struct CudnnOperands {
  void *input = nullptr, *output = nullptr, *filters = nullptr, *bias = nullptr, *workspace = nullptr;
};

class CudnnPlan {
 public:
  struct Descriptors;
  CudnnPlan(std::shared_ptr<const Descriptors> descriptors, std::int64_t engine, Index workspace_bytes,
            bool reduces_precision)
      : descriptors_(std::move(descriptors)),
        engine_(engine),
        workspace_bytes_(workspace_bytes),
        reduces_precision_(reduces_precision) {}

  std::int64_t engine() const { return engine_; }  ///< cuDNN's number of it
  Index workspace_bytes() const { return workspace_bytes_; }
  /// Whether products have fewer bits than the type: TF32, or Winograd's transforms in a shorter type.
  bool reduces_precision() const { return reduces_precision_; }
  /// cuDNN's own form, for a file.
  std::string json() const;
  /// The plan of that form on a device, with the engine's number and precision that it had. None if cuDNN refuses it:
  /// another version or device has made it, or it is damaged.
  static std::optional<CudnnPlan> from_json(const std::string& json, const CudnnDevice& device, std::int64_t engine,
                                            bool reduces_precision);
  const Descriptors& descriptors() const { return *descriptors_; }

 private:
  std::shared_ptr<const Descriptors> descriptors_;
  std::int64_t engine_ = 0;
  Index workspace_bytes_ = 0;
  bool reduces_precision_ = false;
};

struct CudnnPlanOptions {
  int most = 8;
  /// Number of plans that are left out, in the order of cuDNN. With most = 1 this is the number of the wanted plan.
  int first = 0;
  Index most_workspace_bytes = Index{1} << 30;
  /// Engines whose products have fewer bits than float: TF32.
  bool reduced_precision = false;
  std::int64_t engine = -1;  ///< only this one; -1: all
  /// Only engines that give the same bits in each call, if one serves the graph. Others add in any order.
  bool repeatable = true;
};

/// Access to the current device.
class CudnnHandle {
 public:
  /// Throws Unsupported without cuDNN, and Error without a device.
  CudnnHandle();
  CudnnHandle(const CudnnHandle&) = delete;
  CudnnHandle& operator=(const CudnnHandle&) = delete;
  ~CudnnHandle();

  const CudnnDevice& device() const { return device_; }
  /// Queues the plan's kernels on a CUDA stream. False: the engine refuses the alignment of a pointer, although the
  /// graph names it, and nothing is queued. Threads may call it at the same time.
  [[nodiscard]] bool run(const CudnnPlan& plan, const CudnnOperands& operands, void* stream);

 private:
  std::mutex mutex_;
  void* handle_ = nullptr;
  CudnnDevice device_;
};

/// Plans in cuDNN's order of expected speed; empty if it has no engine for the graph on this device.
/// Throws Error if cuDNN refuses a description. @pre no extent of graph.problem is 0
std::vector<CudnnPlan> cudnn_plans(const CudnnGraph& graph, const CudnnDevice& device,
                                   const CudnnPlanOptions& options = {});

}  // namespace aloni::nn::local::detail

#pragma once
// The shape of one rank's part of a convolution, as plain data. Backends are built from it; benchmarks and cost models
// name work with it.
//
// Each side is a box of a tensor in canonical five dimensions. In a spatial dimension, output index o and kernel index
// k, both counted from zero in the local boxes, read the local input index
//
//   i = o * stride + k * dilation + offset
//
// and an i outside the input box reads as zero. `offset` is negative for padding, and for ghosts that the domain's edge
// clips. It is positive for an input box that is larger than this part of the output needs. So the same numbers
// describe an unsplit tensor, a ghosted box, and its interior or its border.
//
// With groups, channels and filters are split into `groups` runs of equal length. The filters of a run read the
// channels of the same run only: filter f reads channels [g * channels / groups, (g + 1) * channels / groups) with g =
// f / (filters / groups). With one group per channel it is a depthwise convolution, and filters / channels is its depth
// multiplier.
#include <aloni/core/index.hpp>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace aloni::nn::local {

struct ConvolutionProblem {
  Index samples = 0, channels = 0, filters = 0;  ///< of all groups together
  Index groups = 1;
  std::array<Index, 3> input{1, 1, 1}, output{1, 1, 1};  ///< depth, height, width of the local boxes; may be 0
  std::array<Index, 3> kernel{1, 1, 1}, stride{1, 1, 1}, dilation{1, 1, 1};
  std::array<Index, 3> offset{0, 0, 0};

  /// Channels that one filter reads, and filters that read the same channels. @pre groups ≥ 1
  constexpr Index channels_per_group() const { return channels / groups; }
  constexpr Index filters_per_group() const { return filters / groups; }

  friend constexpr bool operator==(const ConvolutionProblem&, const ConvolutionProblem&) = default;
};

/// The offset of a problem in one dimension. The local output starts at global index `output_lower`, the local input at
/// global index `input_lower`, and the layer has `padding` zeros before the domain. Pooling uses it too.
constexpr Index local_offset(Index output_lower, Index input_lower, Index stride, Index padding) {
  return output_lower * stride - padding - input_lower;
}

enum class ConvolutionPass { forward, backward_data, backward_filter };

/// The passes that an object can run. Fewer passes need less memory and time to prepare.
struct ConvolutionPasses {
  bool forward = false, backward_data = false, backward_filter = false;
  bool relu = false;  ///< forward ends with max(y, 0). A NaN stays a NaN, except in oneDNN, which makes it 0.
  /// All views of x (dense_input), or of y and dy (dense_output), are dense. Then no workspace for packing is kept; a
  /// view with gaps throws InvalidArgument.
  bool dense_input = false, dense_output = false;
  /// Products of float may have the 10 bits of TF32. For cuDNN only: other implementations multiply in float.
  bool tf32 = false;
  /// The engine of cuDNN to run, where it has it for the strides of the views; -1: cuDNN chooses. Others ignore it.
  std::int64_t engine = -1;

  friend constexpr bool operator==(const ConvolutionPasses&, const ConvolutionPasses&) = default;
};

/// Implementations. `automatic` takes the fastest known one for each pass.
enum class ConvolutionBackend { automatic, reference, direct, onednn, kokkos_kernels, cudnn };

/// "automatic", "reference", "direct", "onednn", "kokkos_kernels", "cudnn".
std::string_view name(ConvolutionBackend backend);
/// "forward", "backward_data", "backward_filter".
std::string_view name(ConvolutionPass pass);
/// The backend with this name; none for an unknown name.
std::optional<ConvolutionBackend> convolution_backend_named(std::string_view name);

/// Multiplications and additions of one pass, counted as 2 × samples × output pixels × kernel × channels of a group ×
/// filters. Padding counts as data, as usual.
double flops(const ConvolutionProblem& problem);

/// Bytes of scratch memory that a kernel of one pass takes, as an estimate: dense copies, and the gradient of the
/// filters in the order of the kernel. Copied are views with gaps (not `dense_input`, not `dense_output`), and the part
/// of the input that outputs read if it is not contiguous: the last row of an even input with stride 2 is not read.
/// `activation_bytes`, `filter_bytes`: of an element.
Index scratch_bytes(const ConvolutionProblem& problem, const ConvolutionPasses& passes, int activation_bytes,
                    int filter_bytes);
/// Bytes of the input and the output in float: copies in which hosts compute activations of float16.
Index bytes_as_floats(const ConvolutionProblem& problem);

/// One line: "32x(1,28,28)x1 -> (1,28,28)x6, kernel (1,5,5), stride (1,1,1), dilation (1,1,1), offset (0,-2,-2)";
/// with groups, "…x6, groups 3, kernel …".
std::string to_string(const ConvolutionProblem& problem);

/// Throws InvalidArgument if an extent is negative, or if a kernel, stride, dilation or number of groups is not
/// positive. Also if the groups do not divide channels and filters.
void validate(const ConvolutionProblem& problem);

}  // namespace aloni::nn::local

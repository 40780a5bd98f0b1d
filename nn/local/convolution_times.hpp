#pragma once
// Problems of convolutions as keys of measured times (core/measured_implementations.hpp): as numbers for plans, as a
// line of text for machine files. Pure.
//
//   const ConvolutionCase c{problem, ConvolutionPass::forward, ElementType::float32};
//   const std::string text = to_string(c);          // "forward float32 4x(1,34,34)x64 -> (1,32,32)x64, kernel …"
//   parse_convolution_case(text) == c;
//   machine.convolutions.times().find(numbers_of(c));
#include <aloni/core/measured_implementations.hpp>
#include <aloni/nn/local/convolution_problem.hpp>
#include <aloni/nn/local/element_type.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace aloni::nn::local {

/// The facts on which the time of a pass depends. Whether filters are in the order of the kernels already, a bias and a
/// ReLU are not among them: they cost all implementations about the same.
struct ConvolutionCase {
  ConvolutionProblem problem = {};
  ConvolutionPass pass = ConvolutionPass::forward;
  ElementType type = ElementType::float32;       ///< of x and y
  bool input_gaps = false, output_gaps = false;  ///< of the views of x and y: some libraries copy such views

  friend bool operator==(const ConvolutionCase&, const ConvolutionCase&) = default;
};

MeasuredImplementations::Problem numbers_of(const ConvolutionCase& convolution);
/// The inverse; none for a list that is not the result of numbers_of().
std::optional<ConvolutionCase> convolution_case_of(const MeasuredImplementations::Problem& numbers);

/// One line of ASCII: "forward float32 4x(1,34,34)x64 -> (1,32,32)x64, kernel (1,3,3), stride (1,1,1), dilation
/// (1,1,1), offset (0,0,0)"; then ", input with gaps" and ", output with gaps" if they have.
std::string to_string(const ConvolutionCase& convolution);
/// The inverse; none for any other text, and for a problem that validate() refuses.
std::optional<ConvolutionCase> parse_convolution_case(std::string_view text);

/// One implementation, and for cuDNN its engine.
struct ConvolutionImplementation {
  ConvolutionBackend backend = ConvolutionBackend::reference;  ///< never `automatic`
  std::int64_t engine = -1;                                    ///< cuDNN's number of it; -1: cuDNN chooses

  friend bool operator==(const ConvolutionImplementation&, const ConvolutionImplementation&) = default;
};
/// "onednn"; "cudnn engine 3".
std::string to_string(const ConvolutionImplementation& implementation);
/// The inverse; none for any other text.
std::optional<ConvolutionImplementation> convolution_implementation_named(std::string_view text);

/// How much the sizes of two problems of one kind differ: the product of the ratios, each ≥ 1, of samples, channels of
/// a group, filters of a group, groups, and the three extents of the output. Products of quotients have the same bits
/// on all processors; sums of logarithms would not. Infinite for problems of different kinds. A kind has one pass,
/// type, kernel, stride, dilation, and gaps. All its problems have full vectors of 16 channels, or none has, and
/// likewise of filters. Its problems are all depthwise, or all have several groups, or all have one group.
double distance(const ConvolutionCase& a, const ConvolutionCase& b);

/// The largest distance at which a measured problem stands for another one: one size is twice that of the other, or
/// several differ by less. Farther problems may live in another level of the caches; then the rules on shapes decide.
inline constexpr double farthest_measured = 2;

}  // namespace aloni::nn::local

#pragma once
// What each backend's .cpp provides; convolution.cpp alone decides which of them exist in this build.
#include <aloni/nn/local/convolution.hpp>

namespace aloni::nn::local::detail {

template <class T, class Exec>
std::unique_ptr<LocalConvolution<T, Exec>> make_reference_convolution(const ConvolutionProblem& problem,
                                                                      const Exec& exec, ConvolutionPasses passes);

// Host execution spaces only.
template <class T, class Exec>
std::unique_ptr<LocalConvolution<T, Exec>> make_direct_convolution(const ConvolutionProblem& problem, const Exec& exec,
                                                                   ConvolutionPasses passes);

// Host execution spaces only. @pre problem.groups == problem.channels and filters > 0
template <class T, class Exec>
std::unique_ptr<LocalConvolution<T, Exec>> make_depthwise_convolution(const ConvolutionProblem& problem,
                                                                      const Exec& exec, ConvolutionPasses passes);

// Host execution spaces, float and bfloat16. Passes with a reason against oneDNN run through the direct implementation; those of bfloat16 in
// copies of float, by what `automatic` takes.
template <class T, class Exec>
std::unique_ptr<LocalConvolution<T, Exec>> make_onednn_convolution(const ConvolutionProblem& problem, const Exec& exec,
                                                                   ConvolutionPasses passes,
                                                                   const std::shared_ptr<FilterOrders>& orders);
std::shared_ptr<FilterOrders> make_onednn_filter_orders();
std::optional<std::string> onednn_unsupported_reason(const ConvolutionProblem& problem, ConvolutionPass pass);
/// In copies of float, by what `automatic` takes for these: T is bfloat16. Filters are rounded to it.
template <class T, class Exec>
std::unique_ptr<LocalConvolution<T, Exec>> make_converting_convolution(const ConvolutionProblem& problem,
                                                                       const Exec& exec, ConvolutionPasses passes);
/// Why oneDNN has no kernels for bfloat16 here, and what to take instead; none where it has.
std::optional<std::string> onednn_bfloat16_unsupported_reason();

template <class T, class Exec>
std::unique_ptr<LocalConvolution<T, Exec>> make_kokkos_kernels_convolution(const ConvolutionProblem& problem,
                                                                           const Exec& exec, ConvolutionPasses passes);

}  // namespace aloni::nn::local::detail

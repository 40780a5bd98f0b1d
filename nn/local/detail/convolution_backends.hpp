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

// Host execution spaces, float only. Passes with a reason against oneDNN run through the direct implementation.
template <class T, class Exec>
std::unique_ptr<LocalConvolution<T, Exec>> make_onednn_convolution(const ConvolutionProblem& problem, const Exec& exec,
                                                                   ConvolutionPasses passes);
std::optional<std::string> onednn_unsupported_reason(const ConvolutionProblem& problem, ConvolutionPass pass);

template <class T, class Exec>
std::unique_ptr<LocalConvolution<T, Exec>> make_kokkos_kernels_convolution(const ConvolutionProblem& problem,
                                                                           const Exec& exec, ConvolutionPasses passes);

}  // namespace aloni::nn::local::detail

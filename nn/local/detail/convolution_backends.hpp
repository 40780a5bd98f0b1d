#pragma once
// Factories of the backends, one .cpp each. Only convolution.cpp decides which of them exist in this build.
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

// Host execution spaces, float and bfloat16. Passes that oneDNN does not support (onednn_unsupported_reason) run
// through the direct implementation; with bfloat16 they run as a converting convolution.
template <class T, class Exec>
std::unique_ptr<LocalConvolution<T, Exec>> make_onednn_convolution(const ConvolutionProblem& problem, const Exec& exec,
                                                                   ConvolutionPasses passes,
                                                                   const std::shared_ptr<FilterOrders>& orders);
std::shared_ptr<FilterOrders> make_onednn_filter_orders(const std::shared_ptr<Scratch>& scratch);
/// T has 16 bits. Copies the arguments to float, with filters rounded to T, and runs the backend `of_floats`.
/// `orders`: of convolutions by `of_floats` alone; null: it has its own.
template <class T, class Exec>
std::unique_ptr<LocalConvolution<T, Exec>> make_converting_convolution(
    const ConvolutionProblem& problem, const Exec& exec, ConvolutionPasses passes, ConvolutionBackend of_floats,
    const std::shared_ptr<FilterOrders>& orders = nullptr);
/// Why oneDNN has no bfloat16 kernels on this processor, and the alternative; none if it has.
std::optional<std::string> onednn_bfloat16_unsupported_reason();

template <class T, class Exec>
std::unique_ptr<LocalConvolution<T, Exec>> make_kokkos_kernels_convolution(const ConvolutionProblem& problem,
                                                                           const Exec& exec, ConvolutionPasses passes);

/// Kokkos::Cuda. Problems for which cuDNN has no engine get the implementation of Kokkos Kernels; with bfloat16 it is
/// a converting convolution.
template <class T, class Exec>
std::unique_ptr<LocalConvolution<T, Exec>> make_cudnn_convolution(const ConvolutionProblem& problem, const Exec& exec,
                                                                  ConvolutionPasses passes,
                                                                  const std::shared_ptr<FilterOrders>& orders);

}  // namespace aloni::nn::local::detail

#pragma once
// Convolution (cross-correlation, as everywhere in machine learning) of one rank's local boxes: one interface, several
// implementations, no communication. Users normally take a distributed layer, which builds on it.
//
//   ConvolutionProblem p{.samples = 8, .channels = 3, .filters = 16, .input = {1, 30, 32}, .output = {1, 28, 32},
//                        .kernel = {1, 3, 3}, .offset = {0, 0, -1}};       // ghost rows on both sides, padded in width
//   auto conv = make_local_convolution<float>(ConvolutionBackend::automatic, p, exec, {.forward = true});
//   conv->forward(exec, x, filters, bias, y);
//
// Contract of every implementation
// * Views have exactly the extents of the problem: x is (samples, input, channels), y is (samples, output, filters),
//   filters are (filters, kernel, channels / groups) and dense. x and y may have any strides (ghosted buffers, parts of
//   tensors). Other extents or filters with gaps throw InvalidArgument.
// * Asynchronous: calls queue kernels on the given instance; arguments stay unchanged until the caller fences it. An
//   object owns its workspace, so all calls of one object use one instance, one after the other. No call allocates
//   device memory or fences.
// * Calls write every element of an output and do not read its old values. Boxes of size 0 are allowed.
// * All implementations give the same bits if the type holds all products and sums exactly (small integers).
// * T is float, double, comm::bfloat16 or comm::float16. With the types of 16 bits, x, y and their gradients have this
//   type; filters, bias and their gradients are float. Filters are rounded to T for the products. Sums are float
//   (double in `reference`); y and dx are rounded once. On devices both run through cuDNN, which rounds dw to T.
//   `kokkos_kernels` computes them in copies of float.
// * On hosts bfloat16 runs through oneDNN, on processors for which oneDNN has bfloat16 kernels. `direct` throws
//   Unsupported. All implementations compute float16 in copies of float, which halves the memory of activations only.
//
// Backward-data of a distributed layer has a problem of its own: x is the box of dx to write, y is the box of dy that
// it needs (with ghosts), and offset relates these two boxes.
#include <aloni/core/machine.hpp>
#include <aloni/nn/local/convolution_problem.hpp>
#include <aloni/nn/local/filter_orders.hpp>
#include <aloni/nn/local/local_types.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace aloni::nn::local {

/// Limit of the workspace of the `kokkos_kernels` backend, in bytes. One output pixel's window may exceed it.
inline constexpr std::size_t workspace_limit = std::size_t{32} << 20;

template <class T, class Exec = Kokkos::DefaultExecutionSpace>
class LocalConvolution {
 public:
  using Parameter = parameter_type_t<T>;

  LocalConvolution(const ConvolutionProblem& problem, ConvolutionPasses passes) : problem_(problem), passes_(passes) {}
  LocalConvolution(const LocalConvolution&) = delete;
  LocalConvolution& operator=(const LocalConvolution&) = delete;
  virtual ~LocalConvolution() = default;

  const ConvolutionProblem& problem() const { return problem_; }
  const ConvolutionPasses& passes() const { return passes_; }
  /// The implementation that runs `pass`, e.g. "direct" or "onednn jit:avx512_core"; for reports.
  virtual std::string implementation(ConvolutionPass pass) const = 0;
  /// Without shared filters, which FilterOrders::bytes() counts.
  virtual std::size_t workspace_bytes() const = 0;

  /// Version of the filter values; 0, the initial value, disables caching. An implementation that reorders filters does
  /// so once for each version. @pre all calls of one version get the same filter values
  virtual void set_filter_version(std::uint64_t version) { filters_version_ = version; }

  /// y = conv(x, w) + bias; with passes().relu, y = max(conv(x, w) + bias, 0). `bias` has extent filters; 0 means no
  /// bias.
  /// @pre passes().forward
  void forward(const Exec& exec, InTensor<T, Exec> x, InTensor<Parameter, Exec> w, InArray<Parameter, Exec> bias,
               OutTensor<T, Exec> y);
  /// dx[i] = Σ dy[o] w[k] over all o, k with i = o * stride + k * dilation + offset. @pre passes().backward_data
  void backward_data(const Exec& exec, InTensor<T, Exec> dy, InTensor<Parameter, Exec> w, OutTensor<T, Exec> dx);
  /// dw = Σ dy x over this box; db = Σ dy, unless db has extent 0. @pre passes().backward_filter
  void backward_filter(const Exec& exec, InTensor<T, Exec> x, InTensor<T, Exec> dy, OutTensor<Parameter, Exec> dw,
                       OutArray<Parameter, Exec> db);

 protected:
  std::uint64_t filters_version() const { return filters_version_; }

  /// Whether run_forward() applies the ReLU of passes().relu. If not, forward() starts a further kernel.
  virtual bool fuses_relu() const { return false; }
  // Called with checked arguments.
  virtual void run_forward(const Exec& exec, const Tensor<const T, Exec>& x, const Tensor<const Parameter, Exec>& w,
                           const Array<const Parameter, Exec>& bias, const Tensor<T, Exec>& y) = 0;
  virtual void run_backward_data(const Exec& exec, const Tensor<const T, Exec>& dy,
                                 const Tensor<const Parameter, Exec>& w, const Tensor<T, Exec>& dx) = 0;
  virtual void run_backward_filter(const Exec& exec, const Tensor<const T, Exec>& x, const Tensor<const T, Exec>& dy,
                                   const Tensor<Parameter, Exec>& dw, const Array<Parameter, Exec>& db) = 0;

 private:
  ConvolutionProblem problem_;
  ConvolutionPasses passes_;
  std::uint64_t filters_version_ = 0;
};

/// Why `backend` cannot run `pass` of `problem` in this build with this type and execution space; none if it can.
/// `automatic` and `reference` run every problem.
template <class T, class Exec = Kokkos::DefaultExecutionSpace>
std::optional<std::string> unsupported_reason(ConvolutionBackend backend, const ConvolutionProblem& problem,
                                              ConvolutionPass pass);

/// Makes the implementation and allocates its workspace. `automatic` chooses for each pass separately and by shape
/// only, so equal problems get equal backends on all ranks. Objects with the same `orders` share reordered filters
/// (filter_orders.hpp). Throws Unsupported with the reason above, or InvalidArgument.
template <class T, class Exec = Kokkos::DefaultExecutionSpace>
std::unique_ptr<LocalConvolution<T, Exec>> make_local_convolution(
    ConvolutionBackend backend, const ConvolutionProblem& problem, const Exec& exec, ConvolutionPasses passes,
    const std::shared_ptr<FilterOrders>& orders = nullptr);

/// The backend that `automatic` takes for a pass in this build on this processor (convolution_choice.hpp).
template <class T, class Exec = Kokkos::DefaultExecutionSpace>
ConvolutionBackend automatic_backend(const ConvolutionProblem& problem, ConvolutionPass pass);

/// The default description, with the implementations that this build has and this processor can run.
MachineDescription machine_of_this_build(bool on_host);

}  // namespace aloni::nn::local

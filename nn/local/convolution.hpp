#pragma once
// Convolution (cross-correlation, as everywhere in machine learning) of one rank's local boxes: one interface, several
// implementations, no communication. Distributed layers build on it; users normally take those.
//
//   ConvolutionProblem p{.samples = 8, .channels = 3, .filters = 16, .input = {1, 30, 32}, .output = {1, 28, 32},
//                        .kernel = {1, 3, 3}, .offset = {0, 0, -1}};       // ghost rows above and below, padded in width
//   auto conv = make_local_convolution<float>(ConvolutionBackend::automatic, p, exec, {.forward = true});
//   conv->forward(exec, x, filters, bias, y);
//
// Contract of every implementation
// * Views have exactly the problem's extents: x is (samples, input, channels), y is (samples, output, filters), filters are
//   (filters, kernel, channels / groups) and dense. x and y may have any strides (ghosted buffers, parts of tensors). Extents and
//   the density of the filters are checked: InvalidArgument.
// * Asynchronous: kernels are queued on the given instance; arguments are frozen until it is fenced. An object owns its
//   workspace, so calls of one object must use one instance, one after the other. No call allocates device
//   memory or fences.
// * Every element of an output is written; what was there before is not read. Zero-sized boxes are fine.
// * With data whose products and sums the type holds exactly (small integers), all implementations give the same bits.
// * T is float, double or, on host execution spaces, comm::bfloat16: then x, y and their gradients are bfloat16, and filters, bias and their
//   gradients float. Products are those of bfloat16, filters are rounded for them; sums are float (of the reference double), y and dx rounded
//   once. It goes through oneDNN, on processors whose bfloat16 kernels it has, or by `reference`; all else throws Unsupported.
//
// Backward-data of a distributed layer is a problem of its own: x is the box of dx to be written, y the box of dy needed
// for it (with ghosts), and offset relates these two boxes.
#include <aloni/nn/local/convolution_problem.hpp>
#include <aloni/nn/local/filter_orders.hpp>
#include <aloni/nn/local/local_types.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace aloni::nn::local {

/// Bytes of workspace that the implementation through Kokkos Kernels takes at most (one output pixel's window excepted).
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
  /// Without what it shares with others: FilterOrders::bytes().
  virtual std::size_t workspace_bytes() const = 0;

  /// Which filters the calls to come are given: an implementation that has an order of its own for them brings them into it once for each
  /// version. 0, as at first: unknown, every call looks at them. @pre calls of one version are given filters of the same values
  virtual void set_filter_version(std::uint64_t version) { filters_version_ = version; }

  /// y = conv(x, w) + bias, and with passes().relu the larger of this and 0. `bias` has extent filters, or 0 for none. @pre passes().forward
  void forward(const Exec& exec, InTensor<T, Exec> x, InTensor<Parameter, Exec> w, InArray<Parameter, Exec> bias,
               OutTensor<T, Exec> y);
  /// dx[i] = Σ dy[o] w[k] over all o, k with i = o * stride + k * dilation + offset. @pre passes().backward_data
  void backward_data(const Exec& exec, InTensor<T, Exec> dy, InTensor<Parameter, Exec> w, OutTensor<T, Exec> dx);
  /// dw = Σ dy x over this box; db = Σ dy, unless db has extent 0. @pre passes().backward_filter
  void backward_filter(const Exec& exec, InTensor<T, Exec> x, InTensor<T, Exec> dy, OutTensor<Parameter, Exec> dw,
                       OutArray<Parameter, Exec> db);

 protected:
  std::uint64_t filters_version() const { return filters_version_; }

  /// Whether run_forward() does what passes().relu asks for; otherwise a kernel of its own follows.
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

/// Why `backend` cannot run `pass` of `problem` in this build with this type and execution space; none when it can.
/// `automatic` and `reference` run everything.
template <class T, class Exec = Kokkos::DefaultExecutionSpace>
std::optional<std::string> unsupported_reason(ConvolutionBackend backend, const ConvolutionProblem& problem,
                                              ConvolutionPass pass);

/// Makes the implementation and allocates its workspace. `automatic` chooses for each pass on its own, by shape only, so
/// that equal problems choose equally on all ranks. With `orders` it shares filters in an order of their own with the others that have been
/// given these (filter_orders.hpp). Throws Unsupported (with the reason above), InvalidArgument.
template <class T, class Exec = Kokkos::DefaultExecutionSpace>
std::unique_ptr<LocalConvolution<T, Exec>> make_local_convolution(
    ConvolutionBackend backend, const ConvolutionProblem& problem, const Exec& exec, ConvolutionPasses passes,
    const std::shared_ptr<FilterOrders>& orders = nullptr);

/// The implementation that `automatic` takes for a pass: never `automatic`.
template <class T, class Exec = Kokkos::DefaultExecutionSpace>
ConvolutionBackend automatic_backend(const ConvolutionProblem& problem, ConvolutionPass pass);

}  // namespace aloni::nn::local

#pragma once
// One pass of a local convolution on data of its own: made, run once and checked, then run as often as one likes.
#include <aloni/core/queue.hpp>
#include <aloni/nn/local/convolution.hpp>

#include <array>
#include <memory>
#include <vector>

namespace aloni::bench {

using Exec = Kokkos::DefaultExecutionSpace;

/// A dense tensor with small integers, and the same on the host as floats.
template <class T>
struct Field {
  std::array<Index, 5> extents;
  Kokkos::View<T*, Exec::memory_space> data;
  std::vector<float> host;

  Field(const Exec& exec, std::array<Index, 5> e, unsigned seed);
  nn::local::Tensor<T, Exec> view() const;
  void bring_down(const Exec& exec);
};

/// Whether an implementation is told that the filters are those of the last call (LocalConvolution::set_filter_version).
enum class Filters { may_change, stay };

/// T: float; comm::bfloat16, of activations, where Exec is a host's.
template <class T = float>
class LocalRun {
 public:
  /// Throws std::runtime_error when a result is wrong.
  LocalRun(const nn::local::ConvolutionProblem& problem, nn::local::ConvolutionPass pass,
           nn::local::ConvolutionBackend backend, Filters filters = Filters::may_change);

  /// Ends with the work done.
  void run();
  const nn::local::LocalConvolution<T>& convolution() const { return *convolution_; }

 private:
  Queue<Exec> queue_;
  nn::local::ConvolutionPass pass_;
  Field<T> x_, y_;
  Field<float> w_;
  std::unique_ptr<nn::local::LocalConvolution<T>> convolution_;
};

}  // namespace aloni::bench

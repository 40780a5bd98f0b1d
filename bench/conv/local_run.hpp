#pragma once
// One pass of a local convolution on its own data. The constructor runs and checks it once; run() repeats it.
#include <aloni/core/queue.hpp>
#include <aloni/nn/local/convolution.hpp>

#include <array>
#include <memory>
#include <vector>

namespace aloni::bench {

using Exec = Kokkos::DefaultExecutionSpace;

/// A dense tensor of small integers, with a copy on the host as floats.
template <class T>
struct Field {
  std::array<Index, 5> extents;
  Kokkos::View<T*, Exec::memory_space> data;
  std::vector<float> host;

  Field(const Exec& exec, std::array<Index, 5> e, unsigned seed);
  nn::local::Tensor<T, Exec> view() const;
  /// Copies `data` to `host`.
  void bring_down(const Exec& exec);
};

/// Whether the implementation may cache reordered filters. `stay` sets a filter version
/// (LocalConvolution::set_filter_version).
enum class Filters { may_change, stay };

/// T: type of the activations, float, or on hosts comm::bfloat16. Filters are float.
template <class T = float>
class LocalRun {
 public:
  /// Runs the pass once. Throws std::runtime_error if the result is wrong.
  LocalRun(const nn::local::ConvolutionProblem& problem, nn::local::ConvolutionPass pass,
           nn::local::ConvolutionBackend backend, Filters filters = Filters::may_change);

  /// One pass; returns when it is complete.
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

#pragma once
// A tensor for tests of local kernels. It may have gaps around it (as in a ghosted buffer) or channels-first strides.
// It has a host copy to fill and read, and a canary in every element of the buffer outside the tensor.
#include <aloni/nn/local/convolution_problem.hpp>
#include <aloni/nn/local/local_types.hpp>

#include <Kokkos_Core.hpp>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>

namespace aloni::test {

/// Of x, y and w of a convolution.
inline std::array<Index, 5> input_extents(const nn::local::ConvolutionProblem& p) {
  return {p.samples, p.input[0], p.input[1], p.input[2], p.channels};
}
inline std::array<Index, 5> output_extents(const nn::local::ConvolutionProblem& p) {
  return {p.samples, p.output[0], p.output[1], p.output[2], p.filters};
}
inline std::array<Index, 5> filter_extents(const nn::local::ConvolutionProblem& p) {
  return {p.filters, p.kernel[0], p.kernel[1], p.kernel[2], p.channels_per_group()};
}

struct Placement {
  std::array<Index, 5> before{}, after{};  ///< elements of the buffer around the tensor
  bool channels_first = false;
};

template <class T>
class LocalTensor {
 public:
  using Exec = Kokkos::DefaultExecutionSpace;
  using View = nn::local::Tensor<T, Exec>;
  static constexpr T canary = T(-77);

  explicit LocalTensor(std::array<Index, 5> extents, const Placement& placement = {}) : extents_(extents) {
    const std::array<int, 5> slowest_first =
        placement.channels_first ? std::array<int, 5>{0, 4, 1, 2, 3} : std::array<int, 5>{0, 1, 2, 3, 4};
    Index size = 1;
    for (int i = 4; i >= 0; --i) {
      const int dim = slowest_first[i];
      strides_[dim] = size;
      size *= extents[dim] + placement.before[dim] + placement.after[dim];
    }
    for (int i = 0; i < 5; ++i) first_ += placement.before[i] * strides_[i];
    device_ = Kokkos::View<T*, Exec::memory_space>("test", size);
    host_ = Kokkos::create_mirror_view(device_);
    Kokkos::deep_copy(host_, canary);
    upload();
  }

  const std::array<Index, 5>& extents() const { return extents_; }
  T& operator()(Index n, Index d, Index h, Index w, Index c) { return host_(at(n, d, h, w, c)); }
  T operator()(Index n, Index d, Index h, Index w, Index c) const { return host_(at(n, d, h, w, c)); }

  /// f(n, d, h, w, c) for each element in canonical order.
  template <class F>
  void for_each(const F& f) const {
    for (Index n = 0; n < extents_[0]; ++n)
      for (Index d = 0; d < extents_[1]; ++d)
        for (Index h = 0; h < extents_[2]; ++h)
          for (Index w = 0; w < extents_[3]; ++w)
            for (Index c = 0; c < extents_[4]; ++c) f(n, d, h, w, c);
  }

  /// Fills in canonical order with value() and uploads.
  template <class F>
  LocalTensor& fill(F&& value) {
    for_each([&](auto... i) { (*this)(i...) = static_cast<T>(value()); });
    upload();
    return *this;
  }
  LocalTensor& fill_integers(std::mt19937& random, int largest) {
    std::uniform_int_distribution<int> values(-largest, largest);
    return fill([&] { return values(random); });
  }
  LocalTensor& fill_reals(std::mt19937& random) {
    std::uniform_real_distribution<double> values(-1, 1);
    return fill([&] { return values(random); });
  }

  void upload() { Kokkos::deep_copy(device_, host_); }
  void download() { Kokkos::deep_copy(host_, device_); }

  View view() const {
    auto e = [&](int i) { return static_cast<std::size_t>(extents_[i]); };
    auto s = [&](int i) { return static_cast<std::size_t>(strides_[i]); };
    return View(device_.data() + first_,
                Kokkos::LayoutStride(e(0), s(0), e(1), s(1), e(2), s(2), e(3), s(3), e(4), s(4)));
  }
  operator View() const { return view(); }
  operator nn::local::Tensor<const T, Exec>() const { return view(); }

  /// Number of changed elements of the buffer outside the tensor.
  Index damaged() const {
    Index changed = 0, inside = 0;
    for (std::size_t i = 0; i < host_.extent(0); ++i) changed += host_(i) != canary;
    for_each([&](auto... i) { inside += (*this)(i...) != canary; });
    return changed - inside;
  }

 private:
  Index at(Index n, Index d, Index h, Index w, Index c) const {
    return first_ + n * strides_[0] + d * strides_[1] + h * strides_[2] + w * strides_[3] + c * strides_[4];
  }
  std::array<Index, 5> extents_, strides_{};
  Index first_ = 0;
  Kokkos::View<T*, Exec::memory_space> device_;
  typename Kokkos::View<T*, Exec::memory_space>::HostMirror host_;
};

/// A flat array with a host copy.
template <class T>
class LocalArray {
 public:
  using Exec = Kokkos::DefaultExecutionSpace;
  explicit LocalArray(Index size, T value = T(0)) : device_("test", size), host_(Kokkos::create_mirror_view(device_)) {
    Kokkos::deep_copy(host_, value);
    upload();
  }
  T& operator()(Index i) { return host_(i); }
  T operator()(Index i) const { return host_(i); }
  Index size() const { return static_cast<Index>(host_.extent(0)); }
  template <class F>
  LocalArray& fill(F&& value) {
    for (Index i = 0; i < size(); ++i) host_(i) = static_cast<T>(value());
    upload();
    return *this;
  }
  void upload() { Kokkos::deep_copy(device_, host_); }
  void download() { Kokkos::deep_copy(host_, device_); }
  nn::local::Array<T, Exec> view() const { return device_; }
  operator nn::local::Array<T, Exec>() const { return device_; }
  operator nn::local::Array<const T, Exec>() const { return device_; }

 private:
  Kokkos::View<T*, Exec::memory_space> device_;
  typename Kokkos::View<T*, Exec::memory_space>::HostMirror host_;
};

inline Kokkos::DefaultExecutionSpace test_space() { return {}; }
inline void wait(const Kokkos::DefaultExecutionSpace& exec) { exec.fence("aloni::test: read the result"); }

/// Number of elements with different bits.
template <class T>
Index differing_bits(const LocalTensor<T>& a, const LocalTensor<T>& b) {
  Index different = 0;
  a.for_each([&](auto... i) {
    const T x = a(i...), y = b(i...);
    different += std::memcmp(&x, &y, sizeof(T)) != 0;
  });
  return different;
}

/// The seed of random tests: printed, and taken from ALONI_TEST_SEED to repeat a run.
inline unsigned test_seed() {
  const char* const given = std::getenv("ALONI_TEST_SEED");
  const unsigned seed = given != nullptr ? static_cast<unsigned>(std::strtoul(given, nullptr, 10)) : 20240817U;
  std::printf("seed %u (ALONI_TEST_SEED)\n", seed);
  return seed;
}

}  // namespace aloni::test

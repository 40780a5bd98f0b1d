#pragma once
// Scale and offset per channel behind a normalisation: learned, or 1 and 0.
#include <aloni/nn/layers/layer.hpp>

#include <Kokkos_Core.hpp>

#include <cstddef>

namespace aloni::nn {

template <class T, class Exec>
struct Affine {
  using Vector = Kokkos::View<T*, typename Exec::memory_space>;

  Vector gamma, beta;
  Vector dgamma, dbeta;  ///< unallocated where nothing is learned

  Affine(const LayerSetup<T, Exec>& s, bool learned) {
    if (learned) {
      const int first = s.parameters.find(s.index, 0);
      gamma = s.parameters.vector_value(first);
      beta = s.parameters.vector_value(first + 1);
      dgamma = s.parameters.vector_gradient(first);
      dbeta = s.parameters.vector_gradient(first + 1);
    } else {
      const Exec& exec = s.queue.space();
      const auto channels = static_cast<std::size_t>(s.plan.input.extents()[views::Dim::channel]);
      gamma = Vector(Kokkos::view_alloc(exec, Kokkos::WithoutInitializing, "aloni::nn::gamma"), channels);
      Kokkos::deep_copy(exec, gamma, T(1));
      beta = Vector(Kokkos::view_alloc(exec, "aloni::nn::beta"), channels);
    }
  }

  bool learned() const { return dgamma.is_allocated(); }

  /// @pre learned()
  void zero_gradients(const Exec& exec) const {
    Kokkos::deep_copy(exec, dgamma, T(0));
    Kokkos::deep_copy(exec, dbeta, T(0));
  }
};

}  // namespace aloni::nn

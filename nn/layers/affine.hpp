#pragma once
// Scale and offset per channel after a normalisation, for the channels that the rank owns. They are learned, or 1 and
// 0. Gradients of other channels are zero.
#include <aloni/nn/layers/layer.hpp>

#include <Kokkos_Core.hpp>

#include <cstddef>

namespace aloni::nn {

template <class T, class Exec>
struct Affine {
  using Parameter = parameter_type_t<T>;
  using Vector = Kokkos::View<Parameter*, typename Exec::memory_space>;

  Vector gamma, beta;
  Vector dgamma, dbeta;  ///< not allocated unless learned

  Affine(const LayerSetup<T, Exec>& s, bool learned) {
    const views::Box own = s.plan.input.owned(s.comm.rank());
    if (learned) {
      const int first = s.parameters.find(s.index, 0);
      const auto part = [&](const Vector& v) {
        return Vector(
            Kokkos::subview(v, Kokkos::make_pair(own.lower(views::Dim::channel), own.upper(views::Dim::channel))));
      };
      all_dgamma_ = s.parameters.vector_gradient(first);
      all_dbeta_ = s.parameters.vector_gradient(first + 1);
      gamma = part(s.parameters.vector_value(first));
      beta = part(s.parameters.vector_value(first + 1));
      dgamma = part(all_dgamma_);
      dbeta = part(all_dbeta_);
    } else {
      const Exec& exec = s.queue.space();
      const auto channels = static_cast<std::size_t>(own.extent(views::Dim::channel));
      gamma = Vector(Kokkos::view_alloc(exec, Kokkos::WithoutInitializing, "aloni::nn::gamma"), channels);
      Kokkos::deep_copy(exec, gamma, Parameter(1));
      beta = Vector(Kokkos::view_alloc(exec, "aloni::nn::beta"), channels);
    }
  }

  bool learned() const { return all_dgamma_.is_allocated(); }
  /// Whether this rank does not own all channels. Then all gradients are zeroed before those of its channels are
  /// written.
  bool has_others() const { return all_dgamma_.extent(0) > dgamma.extent(0); }
  Access writes_dgamma() const { return writes(all_dgamma_); }
  Access writes_dbeta() const { return writes(all_dbeta_); }

  /// @pre learned()
  void zero_gradients(const Exec& exec) const {
    Kokkos::deep_copy(exec, all_dgamma_, Parameter(0));
    Kokkos::deep_copy(exec, all_dbeta_, Parameter(0));
  }

 private:
  Vector all_dgamma_, all_dbeta_;
};

}  // namespace aloni::nn

#pragma once
// The argument types of the local kernels. A kernel deduces its element type from the view that it writes, or from the
// template argument. Its other views convert: managed, unmanaged, const and mutable views are all accepted.
#include <aloni/core/index.hpp>
#include <aloni/nn/local/element_type.hpp>
#include <aloni/views/local_view.hpp>

#include <Kokkos_Core.hpp>

#include <cstdint>
#include <type_traits>

namespace aloni::nn {

/// The type of parameters, their gradients and sums for activations of type T.
template <class T>
using parameter_type_t = std::conditional_t<is_16_bit(element_type<T>), float, T>;

/// The execution space for activations of type T.
template <class T>
using execution_space_t = Kokkos::DefaultExecutionSpace;

}  // namespace aloni::nn

namespace aloni::nn::local {

/// A tensor that is written, in canonical order; filters are F,KD,KH,KW,C.
template <class T, class Exec>
using Tensor = views::LocalView<T, typename Exec::memory_space>;

/// A flat array: bias, statistics, parameters, results.
template <class T, class Exec>
using Array =
    Kokkos::View<T*, Kokkos::LayoutRight, typename Exec::memory_space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;

/// The same types in non-deduced contexts, so that conversions to const apply.
template <class T, class Exec>
using InTensor = std::type_identity_t<Tensor<const T, Exec>>;
template <class T, class Exec>
using InArray = std::type_identity_t<Array<const T, Exec>>;
template <class T, class Exec>
using OutTensor = std::type_identity_t<Tensor<T, Exec>>;
template <class T, class Exec>
using OutArray = std::type_identity_t<Array<T, Exec>>;

/// A dense tensor view over existing memory.
template <class T, class Exec>
Tensor<T, Exec> dense_tensor(T* data, Index n, Index d, Index h, Index w, Index c) {
  const Index sw = c, sh = w * sw, sd = h * sh, sn = d * sd;
  return Tensor<T, Exec>(data, Kokkos::LayoutStride(n, sn, d, sd, h, sh, w, sw, c, Index{1}));
}

}  // namespace aloni::nn::local

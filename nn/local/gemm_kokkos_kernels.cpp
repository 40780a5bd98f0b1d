#include <aloni/nn/local/detail/execution.hpp>
#include <aloni/nn/local/detail/gemm_backends.hpp>

#include <KokkosBlas3_gemm.hpp>

namespace aloni::nn::local::detail {

template <class T, class Exec>
void kokkos_kernels_gemm(const Exec& exec, const GemmArguments<T>& g) {
  using Device = Kokkos::Device<Exec, typename Exec::memory_space>;
  using Unmanaged = Kokkos::MemoryTraits<Kokkos::Unmanaged>;
  // A subview of whole rows with the columns of the matrix keeps LayoutRight and the row stride, which BLAS accepts.
  auto view = [](auto m) {
    using Element = std::remove_pointer_t<decltype(m.data)>;
    return Kokkos::subview(Kokkos::View<Element**, Kokkos::LayoutRight, Device, Unmanaged>(m.data, m.rows, m.stride),
                           Kokkos::ALL, std::pair<Index, Index>(0, m.columns));
  };
  const auto text = [](Transpose op) { return op == Transpose::yes ? "T" : "N"; };
  KokkosBlas::gemm(exec, text(g.op_a), text(g.op_b), g.alpha, view(g.a), view(g.b), g.beta, view(g.c));
}

#define INSTANTIATE(T, Exec) template void kokkos_kernels_gemm<T, Exec>(const Exec&, const GemmArguments<T>&);
ALONI_INSTANTIATE_FOR_SPACES(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::nn::local::detail

#include <aloni/nn/local/blas_library.hpp>

#include <aloni/core/config.hpp>

#include <dlfcn.h>

namespace aloni::nn::local {

namespace {

/// A function of OpenBLAS; null with another BLAS. Not declared in a header that every BLAS has, so looked up by name.
template <class F>
F* function(const char* name) {
  return reinterpret_cast<F*>(dlsym(RTLD_DEFAULT, name));
}

}  // namespace

BlasLibrary blas_library() {
  if constexpr (!config::has_kokkos_kernels) return {};
  BlasLibrary blas{.name = "unknown"};
  if (auto* const configuration = function<char*()>("openblas_get_config")) blas.name = configuration();
  if (auto* const processor = function<char*()>("openblas_get_corename"))
    blas.name += std::string(", kernels for ") + processor();
  if (auto* const threads = function<int()>("openblas_get_num_threads")) blas.threads = threads();
  if (auto* const parallel = function<int()>("openblas_get_parallel")) {
    constexpr BlasLibrary::Threading kinds[] = {BlasLibrary::Threading::sequential, BlasLibrary::Threading::own,
                                                BlasLibrary::Threading::openmp};
    const int kind = parallel();
    if (kind >= 0 && kind < 3) blas.threading = kinds[kind];
  }
  return blas;
}

const char* name(BlasLibrary::Threading threading) {
  switch (threading) {
    case BlasLibrary::Threading::unknown:
      break;
    case BlasLibrary::Threading::sequential:
      return "sequential";
    case BlasLibrary::Threading::openmp:
      return "OpenMP";
    case BlasLibrary::Threading::own:
      return "its own";
  }
  return "unknown";
}

}  // namespace aloni::nn::local

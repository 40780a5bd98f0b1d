#include <aloni/core/blas_library.hpp>

#include <aloni/core/config.hpp>

#include <dlfcn.h>

#include <mutex>

namespace aloni {

namespace {

/// A function of OpenBLAS; null with another BLAS. Not declared in a header that every BLAS has, so looked up by name.
template <class F>
F* blas_function(const char* name) {
  return reinterpret_cast<F*>(dlsym(RTLD_DEFAULT, name));
}

BlasLibrary::Threading threading_of_blas() {
  constexpr BlasLibrary::Threading kinds[] = {BlasLibrary::Threading::sequential, BlasLibrary::Threading::own,
                                              BlasLibrary::Threading::openmp};
  auto* const parallel = blas_function<int()>("openblas_get_parallel");
  const int kind = parallel ? parallel() : -1;
  return kind >= 0 && kind < 3 ? kinds[kind] : BlasLibrary::Threading::unknown;
}

/// The number of threads of an OpenBLAS with its own threads.
struct OwnThreads {
  std::mutex mutex;
  int objects = 0;  ///< that want one thread
  int before = 0;   ///< threads before the first of them
};

OwnThreads& own_threads() {
  static OwnThreads threads;
  return threads;
}

}  // namespace

BlasLibrary blas_library() {
  if constexpr (!config::has_kokkos_kernels && !config::has_lapack) return {};
  BlasLibrary blas{.name = "unknown"};
  if (auto* const configuration = blas_function<char*()>("openblas_get_config")) blas.name = configuration();
  if (auto* const processor = blas_function<char*()>("openblas_get_corename"))
    blas.name += std::string(", kernels for ") + processor();
  if (auto* const threads = blas_function<int()>("openblas_get_num_threads")) blas.threads = threads();
  blas.threading = threading_of_blas();
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

OneBlasThread::OneBlasThread() {
  static const BlasLibrary::Threading threading = threading_of_blas();
  if (threading == BlasLibrary::Threading::openmp) {
    // OpenBLAS asks omp_get_max_threads(), which each thread of the program has for itself.
    auto* const get = blas_function<int()>("omp_get_max_threads");
    auto* const set = blas_function<void(int)>("omp_set_num_threads");
    if (!get || !set) return;
    openmp_threads_ = get();
    set(1);
  } else if (threading == BlasLibrary::Threading::own) {
    auto* const get = blas_function<int()>("openblas_get_num_threads");
    auto* const set = blas_function<void(int)>("openblas_set_num_threads");
    if (!get || !set) return;
    OwnThreads& own = own_threads();
    const std::lock_guard lock(own.mutex);
    if (own.objects++ == 0) {
      own.before = get();
      set(1);
    }
    counted_ = true;
  }
}

OneBlasThread::~OneBlasThread() {
  if (openmp_threads_ > 0) {
    if (auto* const set = blas_function<void(int)>("omp_set_num_threads")) set(openmp_threads_);
  } else if (counted_) {
    auto* const set = blas_function<void(int)>("openblas_set_num_threads");
    OwnThreads& own = own_threads();
    const std::lock_guard lock(own.mutex);
    if (--own.objects == 0 && set) set(own.before);
  }
}

}  // namespace aloni

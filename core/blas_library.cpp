#include <aloni/core/blas_library.hpp>

#include <aloni/core/config.hpp>

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <mutex>
#include <string_view>

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

constexpr const char* kernels_variable = "OPENBLAS_CORETYPE";

/// Those of which match_blas_to_processor() has got rid; empty: none.
std::string& kernels_before() {
  static std::string kernels;
  return kernels;
}

#if defined(__x86_64__)
bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#else
bool has_avx2() { return false; }
bool has_avx512() { return false; }
#endif

}  // namespace

std::string better_blas_kernels(const std::string& present, bool has_avx2, bool has_avx512) {
  // Its choice for processors that it does not know is one of these. Kernels for AVX are not among them: it may have a
  // reason for them.
  constexpr std::array<std::string_view, 16> without_avx{
      "Katmai",  "Coppermine", "Northwood", "Prescott",     "Banias",    "Core2",  "Penryn", "Dunnington",
      "Nehalem", "Athlon",     "Opteron",   "Opteron_SSE3", "Barcelona", "Bobcat", "Atom",   "Nano"};
  if (std::ranges::find(without_avx, present) == without_avx.end()) return {};
  return has_avx512 ? "SkylakeX" : has_avx2 ? "Haswell" : "";
}

void match_blas_to_processor() {
  if (std::getenv(kernels_variable)) return;
  auto* const present = blas_function<char*()>("openblas_get_corename");
  // OpenBLAS calls both itself, when it is loaded and unloaded.
  auto* const quit = blas_function<void()>("gotoblas_dynamic_quit");
  auto* const init = blas_function<void()>("gotoblas_dynamic_init");
  if (!present || !quit || !init) return;
  const std::string before = present();
  const std::string better = better_blas_kernels(before, has_avx2(), has_avx512());
  if (better.empty()) return;
  setenv(kernels_variable, better.c_str(), 0);
  quit();
  init();
  unsetenv(kernels_variable);
  if (present() != before) kernels_before() = before;
}

BlasLibrary blas_library() {
  if constexpr (!config::has_kokkos_kernels && !config::has_lapack) return {};
  BlasLibrary blas{.name = "unknown"};
  if (auto* const configuration = blas_function<char*()>("openblas_get_config")) blas.name = configuration();
  if (auto* const processor = blas_function<char*()>("openblas_get_corename")) blas.kernels = processor();
  blas.own_kernels = kernels_before();
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

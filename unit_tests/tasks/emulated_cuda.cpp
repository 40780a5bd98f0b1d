#include "tasks/emulated_cuda.hpp"

#include <aloni/core/blas_functions.hpp>

#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <cusolverDn.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <utility>
#include <vector>

namespace emulated_cuda {  // CUDA's own types have members of it

/// The work of a stream; guarded by work_mutex.
struct Work {
  struct Item {
    std::function<void()> run = {};
    std::shared_ptr<Work> awaited = {};  // with `position`: first the work of this stream up to there
    std::size_t position = 0;
  };

  std::deque<Item> items = {};
  std::size_t done = 0;
  bool has_kernels = false, has_failed = false;

  std::size_t end() const { return done + items.size(); }
  bool front_may_run() const { return !items.front().awaited || items.front().awaited->done >= items.front().position; }
  void run_front() {
    const Item item = std::move(items.front());
    items.pop_front();
    if (item.run) item.run();
    ++done;
  }
  /// As late as possible: the work of other streams only if this one waits for it.
  void run_until(std::size_t position) {
    while (done < position) {
      if (!front_may_run()) items.front().awaited->run_until(items.front().position);
      run_front();
    }
  }
};

}  // namespace emulated_cuda

struct CUstream_st {
  std::shared_ptr<emulated_cuda::Work> work = std::make_shared<emulated_cuda::Work>();
};
struct CUevent_st {
  std::shared_ptr<emulated_cuda::Work> work = {};
  std::size_t position = 0;
};
struct cublasContext {
  cudaStream_t stream = nullptr;
};
struct cusolverDnContext {
  cudaStream_t stream = nullptr;
};

namespace {

using aloni::test::emulated_device;
using emulated_cuda::Work;
namespace blas = aloni::blas;

std::mutex device_mutex;
std::map<const char*, std::size_t> device_memory, locked_memory;  // guarded by device_mutex
constexpr int potrf_workspace = 3;

std::mutex work_mutex;
std::set<std::shared_ptr<Work>> all_work;  // guarded by work_mutex, as the next one
std::mt19937_64 random_numbers;
std::uint64_t seeded = 0;

bool contains(const std::map<const char*, std::size_t>& memory, const void* data) {
  const std::lock_guard lock(device_mutex);
  const auto* const at = static_cast<const char*>(data);
  auto after = memory.upper_bound(at);
  return after != memory.begin() && (--after, at < after->first + after->second);
}
bool on_device(const void* data) { return contains(device_memory, data); }
bool is_locked(const void* data) { return contains(locked_memory, data); }

/// Adds work to a stream. With a seed, some streams then do some of their work.
void add(cudaStream_t stream, Work::Item item) {
  const std::lock_guard lock(work_mutex);
  stream->work->items.push_back(std::move(item));
  const std::uint64_t seed = emulated_device().early_seed;
  if (seed == 0) return;
  if (std::exchange(seeded, seed) != seed) random_numbers.seed(seed);
  for (const auto& work : all_work)
    for (auto n = random_numbers() % 4; n > 0 && !work->items.empty() && work->front_may_run(); --n) work->run_front();
}
void add(cudaStream_t stream, std::function<void()> run) { add(stream, Work::Item{.run = std::move(run)}); }

/// Whether the call is to fail, of which so many are left to succeed.
bool fails(int& left) {
  const std::lock_guard lock(device_mutex);
  return left >= 0 && left-- == 0;
}
bool fails() { return fails(emulated_device().calls_to_failure); }

void change(int& count, int by) {
  const std::lock_guard lock(device_mutex);
  count += by;
}

char op_of(cublasOperation_t op) { return op == CUBLAS_OP_N ? 'N' : 'T'; }
char part_of(cublasFillMode_t part) { return part == CUBLAS_FILL_MODE_LOWER ? 'L' : 'U'; }

template <class T>
cublasStatus_t gemm(cublasHandle_t h, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n, int k,
                    const T* alpha, const T* a, int lda, const T* b, int ldb, const T* beta, T* c, int ldc) {
  if (fails()) return CUBLAS_STATUS_EXECUTION_FAILED;
  if (!on_device(a) || !on_device(b) || !on_device(c)) return CUBLAS_STATUS_INVALID_VALUE;
  add(h->stream, [=, alpha = *alpha, beta = *beta] {
    blas::gemm(op_of(op_a), op_of(op_b), m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
  });
  return CUBLAS_STATUS_SUCCESS;
}

template <class T>
cublasStatus_t syrk(cublasHandle_t h, cublasFillMode_t part, cublasOperation_t op, int n, int k, const T* alpha,
                    const T* a, int lda, const T* beta, T* c, int ldc) {
  if (fails()) return CUBLAS_STATUS_EXECUTION_FAILED;
  if (!on_device(a) || !on_device(c)) return CUBLAS_STATUS_INVALID_VALUE;
  add(h->stream,
      [=, alpha = *alpha, beta = *beta] { blas::syrk(part_of(part), op_of(op), n, k, alpha, a, lda, beta, c, ldc); });
  return CUBLAS_STATUS_SUCCESS;
}

template <class T>
cublasStatus_t trsm(cublasHandle_t h, cublasSideMode_t side, cublasFillMode_t part, cublasOperation_t op,
                    cublasDiagType_t diagonal, int m, int n, const T* alpha, const T* a, int lda, T* b, int ldb) {
  if (fails()) return CUBLAS_STATUS_EXECUTION_FAILED;
  if (!on_device(a) || !on_device(b) || *alpha != T(1)) return CUBLAS_STATUS_INVALID_VALUE;
  add(h->stream, [=] {
    blas::trsm(side == CUBLAS_SIDE_LEFT ? 'L' : 'R', part_of(part), op_of(op), diagonal == CUBLAS_DIAG_UNIT ? 'U' : 'N',
               m, n, a, lda, b, ldb);
  });
  return CUBLAS_STATUS_SUCCESS;
}

template <class T>
cusolverStatus_t potrf(cusolverDnHandle_t h, cublasFillMode_t part, int n, T* a, int lda, T* work, int size,
                       int* info) {
  if (fails()) return CUSOLVER_STATUS_EXECUTION_FAILED;
  if (!on_device(a) || !on_device(work) || !on_device(info) || size < potrf_workspace)
    return CUSOLVER_STATUS_INVALID_VALUE;
  add(h->stream, [=] {
    std::fill_n(work, size, T(0));
    *info = blas::potrf(part_of(part), n, a, lda);
  });
  return CUSOLVER_STATUS_SUCCESS;
}

}  // namespace

aloni::test::EmulatedDevice& aloni::test::emulated_device() {
  static EmulatedDevice device;
  return device;
}

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  *count = emulated_device().devices;
  return *count > 0 ? cudaSuccess : cudaErrorNoDevice;
}
cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaHostRegister(void* data, std::size_t bytes, unsigned) {
  const std::lock_guard lock(device_mutex);
  if (!locked_memory.try_emplace(static_cast<const char*>(data), bytes).second)
    return cudaErrorHostMemoryAlreadyRegistered;
  ++emulated_device().page_locks;
  return cudaSuccess;
}
cudaError_t cudaHostUnregister(void* data) {
  const std::lock_guard lock(device_mutex);
  if (locked_memory.erase(static_cast<const char*>(data)) == 0) return cudaErrorHostMemoryNotRegistered;
  --emulated_device().page_locks;
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new CUevent_st;
  change(emulated_device().events, 1);
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  change(emulated_device().events, -1);
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const std::lock_guard lock(work_mutex);
  event->work = stream->work;
  event->position = stream->work->end();
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  Work::Item item;
  {
    const std::lock_guard lock(work_mutex);
    const bool ignored = stream->work->has_kernels ? emulated_device().ignore_waits_of_kernels
                                                   : emulated_device().ignore_waits_of_copies;
    if (ignored || !event->work) return cudaSuccess;
    item = {.awaited = event->work, .position = event->position};
  }
  add(stream, std::move(item));
  return cudaSuccess;
}
const char* cudaGetErrorName(cudaError_t) { return "an emulated error"; }
const char* cudaGetErrorString(cudaError_t) { return "no emulated device"; }
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) { return device == 0 ? cudaSuccess : cudaErrorInvalidDevice; }

cudaError_t cudaMemGetInfo(std::size_t* free_bytes, std::size_t* all) {
  *free_bytes = *all = emulated_device().free_bytes;
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** data, std::size_t bytes) {
  *data = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  std::memset(*data, 0xFF, bytes);  // NaN: nobody may rely on zeros
  const std::lock_guard lock(device_mutex);
  device_memory[static_cast<const char*>(*data)] = bytes;
  ++emulated_device().allocations;
  emulated_device().bytes += bytes;
  return cudaSuccess;
}
cudaError_t cudaFree(void* data) {
  const std::lock_guard lock(device_mutex);
  const auto found = device_memory.find(static_cast<const char*>(data));
  if (found == device_memory.end()) return cudaErrorInvalidValue;
  emulated_device().bytes -= found->second;
  --emulated_device().allocations;
  device_memory.erase(found);
  std::free(data);
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = new CUstream_st;
  {
    const std::lock_guard lock(work_mutex);
    all_work.insert((*stream)->work);
  }
  change(emulated_device().streams, 1);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  {
    const std::lock_guard lock(work_mutex);
    if (!stream->work->items.empty()) std::abort();  // it could use memory that is freed
    all_work.erase(stream->work);
  }
  delete stream;
  change(emulated_device().streams, -1);
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  const std::lock_guard lock(work_mutex);
  stream->work->run_until(stream->work->end());
  return stream->work->has_failed ? cudaErrorLaunchFailure : cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  const bool to_device = kind == cudaMemcpyHostToDevice;
  if (on_device(to) != to_device || on_device(from) == to_device) return cudaErrorInvalidValue;
  if (is_locked(to_device ? from : to)) {
    if (fails(emulated_device().copies_to_failure)) return cudaErrorLaunchFailure;
    const std::lock_guard lock(device_mutex);
    (to_device ? emulated_device().bytes_in : emulated_device().bytes_out) += bytes;
  }
  if (emulated_device().late_failure && !to_device && is_locked(to)) {
    add(stream, [work = stream->work.get()] { work->has_failed = true; });
    return cudaSuccess;
  }
  add(stream, [=] { std::memcpy(to, from, bytes); });
  return cudaSuccess;
}
cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                              std::size_t width, std::size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
  if (kind != cudaMemcpyDeviceToHost || on_device(to) || !on_device(from)) return cudaErrorInvalidValue;
  if (width > to_pitch || width > from_pitch) return cudaErrorInvalidPitchValue;
  add(stream, [=] {
    for (std::size_t row = 0; row < height; ++row)
      std::memcpy(static_cast<char*>(to) + row * to_pitch, static_cast<const char*>(from) + row * from_pitch, width);
  });
  return cudaSuccess;
}

cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  *handle = new cublasContext;
  change(emulated_device().handles, 1);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
  delete handle;
  change(emulated_device().handles, -1);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  const std::lock_guard lock(work_mutex);
  stream->work->has_kernels = true;
  return CUBLAS_STATUS_SUCCESS;
}
const char* cublasGetStatusString(cublasStatus_t) { return "an emulated status"; }

cublasStatus_t cublasSgemm_v2(cublasHandle_t h, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n, int k,
                              const float* alpha, const float* a, int lda, const float* b, int ldb, const float* beta,
                              float* c, int ldc) {
  return gemm(h, op_a, op_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
cublasStatus_t cublasDgemm_v2(cublasHandle_t h, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n, int k,
                              const double* alpha, const double* a, int lda, const double* b, int ldb,
                              const double* beta, double* c, int ldc) {
  return gemm(h, op_a, op_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
cublasStatus_t cublasSsyrk_v2(cublasHandle_t h, cublasFillMode_t part, cublasOperation_t op, int n, int k,
                              const float* alpha, const float* a, int lda, const float* beta, float* c, int ldc) {
  return syrk(h, part, op, n, k, alpha, a, lda, beta, c, ldc);
}
cublasStatus_t cublasDsyrk_v2(cublasHandle_t h, cublasFillMode_t part, cublasOperation_t op, int n, int k,
                              const double* alpha, const double* a, int lda, const double* beta, double* c, int ldc) {
  return syrk(h, part, op, n, k, alpha, a, lda, beta, c, ldc);
}
cublasStatus_t cublasStrsm_v2(cublasHandle_t h, cublasSideMode_t side, cublasFillMode_t part, cublasOperation_t op,
                              cublasDiagType_t diagonal, int m, int n, const float* alpha, const float* a, int lda,
                              float* b, int ldb) {
  return trsm(h, side, part, op, diagonal, m, n, alpha, a, lda, b, ldb);
}
cublasStatus_t cublasDtrsm_v2(cublasHandle_t h, cublasSideMode_t side, cublasFillMode_t part, cublasOperation_t op,
                              cublasDiagType_t diagonal, int m, int n, const double* alpha, const double* a, int lda,
                              double* b, int ldb) {
  return trsm(h, side, part, op, diagonal, m, n, alpha, a, lda, b, ldb);
}

cusolverStatus_t cusolverDnCreate(cusolverDnHandle_t* handle) {
  *handle = new cusolverDnContext;
  change(emulated_device().handles, 1);
  return CUSOLVER_STATUS_SUCCESS;
}
cusolverStatus_t cusolverDnDestroy(cusolverDnHandle_t handle) {
  delete handle;
  change(emulated_device().handles, -1);
  return CUSOLVER_STATUS_SUCCESS;
}
cusolverStatus_t cusolverDnSetStream(cusolverDnHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  return CUSOLVER_STATUS_SUCCESS;
}
cusolverStatus_t cusolverDnSpotrf_bufferSize(cusolverDnHandle_t, cublasFillMode_t, int, float*, int, int* size) {
  *size = potrf_workspace;
  return CUSOLVER_STATUS_SUCCESS;
}
cusolverStatus_t cusolverDnDpotrf_bufferSize(cusolverDnHandle_t, cublasFillMode_t, int, double*, int, int* size) {
  *size = potrf_workspace;
  return CUSOLVER_STATUS_SUCCESS;
}
cusolverStatus_t cusolverDnSpotrf(cusolverDnHandle_t h, cublasFillMode_t part, int n, float* a, int lda, float* work,
                                  int size, int* info) {
  return potrf(h, part, n, a, lda, work, size, info);
}
cusolverStatus_t cusolverDnDpotrf(cusolverDnHandle_t h, cublasFillMode_t part, int n, double* a, int lda, double* work,
                                  int size, int* info) {
  return potrf(h, part, n, a, lda, work, size, info);
}

}  // extern "C"

// The kernels of tasks on a device of NVIDIA: cuBLAS and cuSOLVER on a stream of each worker. Without Kokkos, so that
// the C++ compiler takes it.
#include <aloni/core/error.hpp>
#include <aloni/tasks/detail/device_kernels.hpp>
#include <aloni/tasks/detail/instantiate.hpp>
#include <aloni/tasks/detail/pivots.hpp>

#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <cusolverDn.h>

#include <algorithm>
#include <vector>

namespace aloni::tasks::detail {

namespace {

constexpr const char* device_expectation = "success; the device and its memory are as nvidia-smi shows them";

void check_device(const char* operation, cudaError_t code, const char* call) {
  if (code == cudaSuccess) return;
  (void)cudaGetLastError();  // later calls do not report this error again
  throw Error(operation, call, std::string(cudaGetErrorName(code)) + ", " + cudaGetErrorString(code),
              device_expectation);
}
void check_blas(const char* operation, cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw Error(operation, call, cublasGetStatusString(status), device_expectation);
}
void check_solver(const char* operation, cusolverStatus_t status, const char* call) {
  if (status == CUSOLVER_STATUS_SUCCESS) return;
  throw Error(operation, call, "status " + std::to_string(static_cast<int>(status)) + " of cuSOLVER",
              device_expectation);
}

cublasOperation_t op_of(char op) { return op == 'N' ? CUBLAS_OP_N : CUBLAS_OP_T; }
cublasFillMode_t triangle_of(char triangle) {
  return triangle == 'L' ? CUBLAS_FILL_MODE_LOWER : CUBLAS_FILL_MODE_UPPER;
}
cublasSideMode_t side_of(char side) { return side == 'L' ? CUBLAS_SIDE_LEFT : CUBLAS_SIDE_RIGHT; }
cublasDiagType_t diagonal_of(char diagonal) { return diagonal == 'U' ? CUBLAS_DIAG_UNIT : CUBLAS_DIAG_NON_UNIT; }

// One name for both types.
constexpr auto device_gemm(float) { return cublasSgemm; }
constexpr auto device_gemm(double) { return cublasDgemm; }
constexpr auto device_syrk(float) { return cublasSsyrk; }
constexpr auto device_syrk(double) { return cublasDsyrk; }
constexpr auto device_trsm(float) { return cublasStrsm; }
constexpr auto device_trsm(double) { return cublasDtrsm; }
constexpr auto device_potrf(float) { return cusolverDnSpotrf; }
constexpr auto device_potrf(double) { return cusolverDnDpotrf; }
constexpr auto device_potrf_workspace(float) { return cusolverDnSpotrf_bufferSize; }
constexpr auto device_potrf_workspace(double) { return cusolverDnDpotrf_bufferSize; }

}  // namespace

std::optional<std::string> device_refusal() {
  int devices = 0;
  const cudaError_t code = cudaGetDeviceCount(&devices);
  if (code == cudaSuccess && devices > 0) return std::nullopt;
  (void)cudaGetLastError();
  return code == cudaSuccess ? "this process sees no device" : std::string(cudaGetErrorString(code));
}

std::size_t free_device_bytes(const char* operation) {
  std::size_t free_bytes = 0, all_bytes = 0;
  check_device(operation, cudaMemGetInfo(&free_bytes, &all_bytes), "cudaMemGetInfo");
  return free_bytes;
}

void FreeDevice::operator()(std::byte* data) const { (void)cudaFree(data); }

DeviceBytes allocate_device(const char* operation, std::size_t bytes) {
  void* data = nullptr;
  check_device(operation, cudaMalloc(&data, bytes), "cudaMalloc");
  return DeviceBytes(static_cast<std::byte*>(data));
}

PageLock::PageLock(const char* operation, void* data, std::size_t bytes) : data_(data) {
  const cudaError_t code = cudaHostRegister(data, bytes, cudaHostRegisterDefault);
  if (code == cudaErrorHostMemoryAlreadyRegistered) {
    (void)cudaGetLastError();
    data_ = nullptr;
    return;
  }
  check_device(operation, code, "cudaHostRegister");
}

PageLock::~PageLock() {
  if (data_) (void)cudaHostUnregister(data_);
}

struct DeviceEvent::Handle {
  explicit Handle(const char* operation) {
    check_device(operation, cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  }
  ~Handle() { (void)cudaEventDestroy(event); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  cudaEvent_t event = nullptr;
};

DeviceEvent::DeviceEvent(const char* operation) : handle_(std::make_unique<Handle>(operation)) {}
DeviceEvent::DeviceEvent(DeviceEvent&&) noexcept = default;
DeviceEvent::~DeviceEvent() = default;

struct DeviceQueue::Handles {
  Handles(const char* name, QueueWork work) : operation(name) {
    check_device(operation, cudaGetDevice(&device), "cudaGetDevice");
    try {
      check_device(operation, cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
      if (work == QueueWork::copies) return;
      check_blas(operation, cublasCreate(&blas), "cublasCreate");
      check_blas(operation, cublasSetStream(blas, stream), "cublasSetStream");
      check_solver(operation, cusolverDnCreate(&solver), "cusolverDnCreate");
      check_solver(operation, cusolverDnSetStream(solver, stream), "cusolverDnSetStream");
      info = allocate_device(operation, sizeof(int));
    } catch (...) {
      release();
      throw;
    }
  }
  ~Handles() { release(); }
  Handles(const Handles&) = delete;
  Handles& operator=(const Handles&) = delete;

  void release() {
    if (stream) (void)cudaStreamSynchronize(stream);  // an error may have left work behind, and memory is freed next
    if (solver) (void)cusolverDnDestroy(solver);
    if (blas) (void)cublasDestroy(blas);
    if (stream) (void)cudaStreamDestroy(stream);
    solver = nullptr;
    blas = nullptr;
    stream = nullptr;
  }

  const char* operation;
  int device = 0;
  cudaStream_t stream = nullptr;
  cublasHandle_t blas = nullptr;
  cusolverDnHandle_t solver = nullptr;
  DeviceBytes info = {}, workspace = {};
  std::size_t workspace_bytes = 0;
};

DeviceQueue::DeviceQueue(const char* operation, QueueWork work)
    : handles_(std::make_unique<Handles>(operation, work)) {}
DeviceQueue::~DeviceQueue() = default;

void DeviceQueue::use_on_this_thread() const {
  check_device(handles_->operation, cudaSetDevice(handles_->device), "cudaSetDevice");
}

void DeviceQueue::copy_to_device(void* device, const void* host, std::size_t bytes) {
  check_device(handles_->operation, cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, handles_->stream),
               "cudaMemcpyAsync");
}

void DeviceQueue::copy_to_host(void* host, const void* device, std::size_t bytes) {
  check_device(handles_->operation, cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, handles_->stream),
               "cudaMemcpyAsync");
}

void DeviceQueue::record(DeviceEvent& event) {
  check_device(handles_->operation, cudaEventRecord(event.handle_->event, handles_->stream), "cudaEventRecord");
}

void DeviceQueue::wait(const DeviceEvent& event) {
  check_device(handles_->operation, cudaStreamWaitEvent(handles_->stream, event.handle_->event, 0),
               "cudaStreamWaitEvent");
}

void DeviceQueue::finish() {
  check_device(handles_->operation, cudaStreamSynchronize(handles_->stream), "cudaStreamSynchronize");
}

template <class T>
int DeviceQueue::potrf_elements(TileBlock<T> a) {
  Handles& h = *handles_;
  int elements = 0;
  check_solver(h.operation,
               device_potrf_workspace(T())(h.solver, CUBLAS_FILL_MODE_LOWER, a.columns, a.data, a.stride, &elements),
               "potrf_bufferSize");
  const std::size_t bytes = static_cast<std::size_t>(std::max(1, elements)) * sizeof(T);
  if (bytes > h.workspace_bytes) {
    finish();  // of the work that uses the present one
    h.workspace = allocate_device(h.operation, bytes);
    h.workspace_bytes = bytes;
  }
  return elements;
}

template <class T>
void DeviceQueue::prepare_potrf(int rows, int stride) {
  // The size depends on the shape only; the library does not read the elements.
  T* const no_elements = reinterpret_cast<T*>(handles_->info.get());
  potrf_elements(TileBlock<T>{no_elements, rows, rows, stride});
}

template <class T>
void DeviceQueue::potrf(TileBlock<T> a, const views::Tile& tile, Index first_column) {
  Handles& h = *handles_;
  const int elements = potrf_elements(a);
  int* const info = reinterpret_cast<int*>(h.info.get());
  check_solver(h.operation,
               device_potrf(T())(h.solver, CUBLAS_FILL_MODE_LOWER, a.columns, a.data, a.stride,
                                 reinterpret_cast<T*>(h.workspace.get()), elements, info),
               "potrf");
  int columns = 0;
  std::vector<T> diagonal(static_cast<std::size_t>(a.columns));
  copy_to_host(&columns, info, sizeof columns);
  // An element of each column: rows of one element, whose distance is a column and one row.
  check_device(
      h.operation,
      cudaMemcpy2DAsync(diagonal.data(), sizeof(T), a.data, (static_cast<std::size_t>(a.stride) + 1) * sizeof(T),
                        sizeof(T), diagonal.size(), cudaMemcpyDeviceToHost, h.stream),
      "cudaMemcpy2DAsync");
  finish();
  if (columns < 0) {
    throw Error(h.operation, "potrf", "argument " + std::to_string(-columns) + " of cuSOLVER is wrong",
                device_expectation);
  }
  check_cholesky_pivots<T>(h.operation, tile, first_column, a.columns, columns,
                           [&](int j) { return diagonal[static_cast<std::size_t>(j)]; });
}

template <class T>
void DeviceQueue::trsm(char side, char triangle, char op, char diagonal, ConstBlock<T> a, TileBlock<T> b) {
  const T one(1);
  check_blas(handles_->operation,
             device_trsm(T())(handles_->blas, side_of(side), triangle_of(triangle), op_of(op), diagonal_of(diagonal),
                              b.rows, b.columns, &one, a.data, a.stride, b.data, b.stride),
             "trsm");
}

template <class T>
void DeviceQueue::subtract_square(ConstBlock<T> a, TileBlock<T> c) {
  const T minus_one(-1), one(1);
  check_blas(handles_->operation,
             device_syrk(T())(handles_->blas, CUBLAS_FILL_MODE_LOWER, CUBLAS_OP_N, c.columns, a.columns, &minus_one,
                              a.data, a.stride, &one, c.data, c.stride),
             "syrk");
}

template <class T>
void DeviceQueue::subtract_product(char op_a, ConstBlock<T> a, char op_b, ConstBlock<T> b, TileBlock<T> c) {
  const T minus_one(-1), one(1);
  check_blas(
      handles_->operation,
      device_gemm(T())(handles_->blas, op_of(op_a), op_of(op_b), c.rows, c.columns, op_a == 'N' ? a.columns : a.rows,
                       &minus_one, a.data, a.stride, b.data, b.stride, &one, c.data, c.stride),
      "gemm");
}

#define INSTANTIATE(T)                                                                     \
  template void DeviceQueue::prepare_potrf<T>(int, int);                                   \
  template void DeviceQueue::potrf(TileBlock<T>, const views::Tile&, Index);               \
  template void DeviceQueue::trsm<T>(char, char, char, char, ConstBlock<T>, TileBlock<T>); \
  template void DeviceQueue::subtract_square<T>(ConstBlock<T>, TileBlock<T>);              \
  template void DeviceQueue::subtract_product<T>(char, ConstBlock<T>, char, ConstBlock<T>, TileBlock<T>);
ALONI_INSTANTIATE_ELEMENTS(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::tasks::detail

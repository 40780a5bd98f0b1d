// Sharing of device memory by CUDA IPC handles. Memory of the stream-ordered allocator has no handles. Kokkos uses that
// allocator only if it is configured to.
#include <aloni/core/comm/device/device_memory.hpp>

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <mpi.h>
#if __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif

#include <cstring>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

namespace aloni::comm::detail {

namespace {

using AddressRange = CUresult (*)(CUdeviceptr*, std::size_t*, CUdeviceptr);

/// The driver function cuMemGetAddressRange, found through the runtime. The program does not link the driver library,
/// which machines without a device lack.
AddressRange address_range() {
  static const AddressRange function = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result{};
#if CUDART_VERSION >= 12050
    const cudaError_t code =
        cudaGetDriverEntryPointByVersion("cuMemGetAddressRange", &found, 12000, cudaEnableDefault, &result);
#else
    const cudaError_t code = cudaGetDriverEntryPoint("cuMemGetAddressRange", &found, cudaEnableDefault, &result);
#endif
    return code == cudaSuccess && result == cudaDriverEntryPointSuccess ? reinterpret_cast<AddressRange>(found)
                                                                        : nullptr;
  }();
  return function;
}

/// Whether a call succeeded. Clears the error state, so that later calls do not report this error.
bool good(cudaError_t code) {
  if (code == cudaSuccess) return true;
  cudaGetLastError();
  return false;
}

class DeviceTrialMemory final : public TrialMemory {
 public:
  ~DeviceTrialMemory() override { good(cudaFree(data_)); }
  bool allocate(int rank, std::size_t bytes) {
    bytes_ = bytes;
    void* data = nullptr;
    if (!good(cudaMalloc(&data, 2 * bytes))) return false;
    data_ = static_cast<std::byte*>(data);
    const std::vector<std::byte> values = values_of(rank);
    return good(cudaMemset(data_ + bytes, 0, bytes)) &&
           good(cudaMemcpy(data_, values.data(), bytes, cudaMemcpyHostToDevice)) && good(cudaDeviceSynchronize());
  }
  const void* sent() const override { return data_; }
  void* received() override { return data_ + bytes_; }
  bool holds_values_of(int rank) const override {
    std::vector<std::byte> found(bytes_);
    return good(cudaMemcpy(found.data(), data_ + bytes_, bytes_, cudaMemcpyDeviceToHost)) && found == values_of(rank);
  }

 private:
  std::vector<std::byte> values_of(int rank) const {
    std::vector<std::byte> values(bytes_);
    for (std::size_t i = 0; i < bytes_; ++i) values[i] = trial_value(rank, i);
    return values;
  }

  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace

std::optional<DeviceMemory> share_device_memory(const void* data) {
  cudaPointerAttributes attributes{};
  if (!good(cudaPointerGetAttributes(&attributes, data)) || attributes.type != cudaMemoryTypeDevice) return {};
  const AddressRange range = address_range();
  CUdeviceptr base = 0;
  std::size_t bytes = 0;
  const auto address = reinterpret_cast<CUdeviceptr>(data);
  if (!range || range(&base, &bytes, address) != CUDA_SUCCESS) return {};
  cudaIpcMemHandle_t handle;
  if (!good(cudaIpcGetMemHandle(&handle, reinterpret_cast<void*>(base)))) return {};
  DeviceMemory memory;
  static_assert(sizeof handle == sizeof memory.handle);
  std::memcpy(memory.handle.data(), &handle, sizeof handle);
  memory.offset = address - base;
  return memory;
}

std::shared_ptr<std::byte> open_device_memory(const DeviceMemory& memory) {
  // An allocation is opened only once, also if it contains several tensors.
  static std::mutex mutex;
  static auto* const opened = new std::map<std::array<std::byte, 64>, std::weak_ptr<std::byte>>;  // outlives CUDA
  const std::lock_guard lock(mutex);
  std::shared_ptr<std::byte> base = (*opened)[memory.handle].lock();
  if (!base) {
    cudaIpcMemHandle_t handle;
    std::memcpy(&handle, memory.handle.data(), sizeof handle);
    void* p = nullptr;
    if (!good(cudaIpcOpenMemHandle(&p, handle, cudaIpcMemLazyEnablePeerAccess))) return nullptr;
    base = std::shared_ptr<std::byte>(static_cast<std::byte*>(p), [](std::byte* q) { good(cudaIpcCloseMemHandle(q)); });
    (*opened)[memory.handle] = base;
  }
  return {base, base.get() + memory.offset};
}

bool build_has_devices() { return true; }

bool mpi_reports_device_memory() {
#if defined(MPIX_CUDA_AWARE_SUPPORT)
  return MPIX_Query_cuda_support() == 1;
#else
  return false;  // this MPI has no way to report it
#endif
}

std::unique_ptr<TrialMemory> make_trial_memory(int rank, std::size_t bytes) {
  auto memory = std::make_unique<DeviceTrialMemory>();
  return memory->allocate(rank, bytes) ? std::move(memory) : nullptr;
}

}  // namespace aloni::comm::detail

#include <aloni/core/comm/device/device_memory.hpp>

#include <cuda_runtime_api.h>
#include <mpi.h>
#if __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif

#include <utility>
#include <vector>

namespace aloni::comm::detail {

namespace {

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

bool build_has_devices() { return true; }

bool mpi_reports_device_memory() {
#if defined(MPIX_CUDA_AWARE_SUPPORT)
  return MPIX_Query_cuda_support() == 1;
#else
  return false;  // this MPI has no way to report it
#endif
}

DeviceFacts device_facts() {
  int device = 0;
  cudaDeviceProp properties{};
  char address[32] = "";
  if (!good(cudaGetDevice(&device)) || !good(cudaGetDeviceProperties(&properties, device)) ||
      !good(cudaDeviceGetPCIBusId(address, sizeof address, device)))
    return {};
  return {properties.name, static_cast<double>(properties.totalGlobalMem), static_cast<double>(properties.l2CacheSize),
          address};
}

std::unique_ptr<TrialMemory> make_trial_memory(int rank, std::size_t bytes) {
  auto memory = std::make_unique<DeviceTrialMemory>();
  return memory->allocate(rank, bytes) ? std::move(memory) : nullptr;
}

}  // namespace aloni::comm::detail

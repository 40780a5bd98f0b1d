// Sharing by the inter-process handles of the CUDA runtime. What each call promises is in cuda_runtime_api.h:
// - Handles are of allocations by cudaMalloc. Memory of the stream-ordered allocator has none.
// - The owner's cudaFree comes after cudaIpcCloseMemHandle everywhere: DeviceHeap sees to it.
// - Events are created with cudaEventInterprocess and cudaEventDisableTiming. A stream may wait for an event of another
//   device. An event is recorded on streams of the device on which it was created.
// - Operations on an opened event after its owner has destroyed it are undefined: nobody destroys events.
// - A process opens only handles of other processes.
#include <aloni/core/comm/device/device_sharing.hpp>

#include <aloni/core/error.hpp>

#include <cuda_runtime_api.h>

#include <cstring>

namespace aloni::comm::detail {

namespace {

/// Whether a call succeeded. Clears the error state, so that later calls do not report this error.
bool succeeds(cudaError_t code) {
  if (code == cudaSuccess) return true;
  cudaGetLastError();
  return false;
}

void check_event(cudaError_t code, const char* call) {
  if (code == cudaSuccess) return;
  cudaGetLastError();
  throw CommunicationError("aloni::comm::SharedEvent", call, cudaGetErrorString(code), "cudaSuccess");
}

class CudaEvent final : public DeviceEvent {
 public:
  CudaEvent(cudaEvent_t event, const DeviceHandle& handle) : event_(event), handle_(handle) {}

  DeviceHandle handle() const override { return handle_; }
  void record(void* stream) override {
    check_event(cudaEventRecord(event_, static_cast<cudaStream_t>(stream)), "cudaEventRecord");
  }
  void await(void* stream) override {
    check_event(cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), event_, cudaEventWaitDefault),
                "cudaStreamWaitEvent");
  }

 private:
  cudaEvent_t event_;
  DeviceHandle handle_;
};

class CudaSharing final : public DeviceSharing {
 public:
  std::byte* allocate(std::size_t bytes) override {
    void* p = nullptr;
    return succeeds(cudaMalloc(&p, bytes)) ? static_cast<std::byte*>(p) : nullptr;
  }
  void free(std::byte* allocation) noexcept override { succeeds(cudaFree(allocation)); }

  std::optional<DeviceHandle> handle_of(std::byte* allocation) override {
    cudaIpcMemHandle_t native;
    if (!succeeds(cudaIpcGetMemHandle(&native, allocation))) return {};
    return bytes_of(native);
  }
  std::byte* open(const DeviceHandle& handle) override {
    const auto native = native_of<cudaIpcMemHandle_t>(handle);
    void* p = nullptr;
    return succeeds(cudaIpcOpenMemHandle(&p, native, cudaIpcMemLazyEnablePeerAccess)) ? static_cast<std::byte*>(p)
                                                                                      : nullptr;
  }
  void close(std::byte* opened) noexcept override { succeeds(cudaIpcCloseMemHandle(opened)); }

  std::string description() override {
    int device = 0;
    cudaDeviceProp properties{};
    char bus[32] = "";
    if (!succeeds(cudaGetDevice(&device)) || !succeeds(cudaGetDeviceProperties(&properties, device))) return "";
    succeeds(cudaDeviceGetPCIBusId(bus, sizeof bus, device));
    return std::string(properties.name) + " (" + bus + ")";
  }
  void synchronise() noexcept override { succeeds(cudaDeviceSynchronize()); }
  bool is_complete(void* stream) override {
    const cudaError_t code = cudaStreamQuery(static_cast<cudaStream_t>(stream));
    if (code == cudaErrorNotReady) {
      cudaGetLastError();
      return false;
    }
    check_event(code, "cudaStreamQuery");
    return true;
  }

 private:
  std::unique_ptr<DeviceEvent> make_event() override {
    cudaEvent_t event = nullptr;
    if (!succeeds(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventInterprocess))) return nullptr;
    cudaIpcEventHandle_t native;
    if (!succeeds(cudaIpcGetEventHandle(&native, event))) {
      succeeds(cudaEventDestroy(event));
      return nullptr;
    }
    return std::make_unique<CudaEvent>(event, bytes_of(native));
  }
  std::unique_ptr<DeviceEvent> open_event(const DeviceHandle& handle) override {
    cudaEvent_t event = nullptr;
    if (!succeeds(cudaIpcOpenEventHandle(&event, native_of<cudaIpcEventHandle_t>(handle)))) return nullptr;
    return std::make_unique<CudaEvent>(event, handle);
  }

  template <class Native>
  static DeviceHandle bytes_of(const Native& native) {
    DeviceHandle handle;
    static_assert(sizeof native == sizeof handle);
    std::memcpy(handle.data(), &native, sizeof native);
    return handle;
  }
  template <class Native>
  static Native native_of(const DeviceHandle& handle) {
    Native native;
    static_assert(sizeof native == sizeof handle);
    std::memcpy(&native, handle.data(), sizeof native);
    return native;
  }
};

}  // namespace

// Never destroyed: memory and events of this process may be open elsewhere until it ends.
std::shared_ptr<DeviceSharing> device_sharing_of_process() {
  static auto* const sharing = new std::shared_ptr<DeviceSharing>(std::make_shared<CudaSharing>());
  return *sharing;
}

}  // namespace aloni::comm::detail

#include <aloni/core/comm/device/device_collectives.hpp>
#include <aloni/core/error.hpp>

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace aloni::comm::detail {

namespace {

constexpr const char* name = "aloni::comm::ViewAllReduce (NCCL)";
constexpr auto patience = std::chrono::seconds(10);  // for the end of a communicator on all ranks

void check(ncclResult_t code, const char* call) {
  if (code != ncclSuccess && code != ncclInProgress)
    throw CommunicationError(name, call, ncclGetErrorString(code), "ncclSuccess");
}

void check(cudaError_t code, const char* call) {
  if (code != cudaSuccess) throw CommunicationError(name, call, cudaGetErrorString(code), "cudaSuccess");
}

ncclDataType_t type_of(ElementType type) {
  switch (type) {
    case ElementType::float32:
      return ncclFloat32;
    case ElementType::float64:
      return ncclFloat64;
    case ElementType::int32:
      return ncclInt32;
    case ElementType::int64:
      return ncclInt64;
    case ElementType::uint64:
      return ncclUint64;
    case ElementType::bfloat16:
      return ncclBfloat16;
    default:
      throw Unsupported(name, "element type", "another type", "float, double, int32, int64, uint64 or bfloat16");
  }
}

ncclRedOp_t operation_of(Reduction op) {
  switch (op) {
    case Reduction::min:
      return ncclMin;
    case Reduction::max:
      return ncclMax;
    case Reduction::product:
      return ncclProd;
    case Reduction::average:
      return ncclAvg;
    case Reduction::sum:
      break;
  }
  return ncclSum;
}

class NcclCollectives final : public DeviceCollectives {
 public:
  explicit NcclCollectives(const Communicator& comm) {
    ncclUniqueId id{};
    collectively(comm, name, [&] {
      if (comm.rank() == 0) check(ncclGetUniqueId(&id), "ncclGetUniqueId");
    });
    comm.run(Broadcast{std::span(&id, 1), 0});
    // Calls return at once, so that waits can check the other ranks.
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    try {
      check(ncclCommInitRankConfig(&nccl_, comm.size(), id, comm.rank(), &config), "ncclCommInitRankConfig");
      wait(comm, [] { return true; });
    } catch (...) {
      if (nccl_) ncclCommAbort(nccl_);  // no destructor runs
      throw;
    }
  }
  ~NcclCollectives() override {
    if (!failed_ && ends_in_time()) {
      ncclCommDestroy(nccl_);
    } else {
      ncclCommAbort(nccl_);
    }
  }

  void start_all_reduce(const Communicator& comm, void* data, std::size_t count, ElementType type, Reduction op,
                        void* stream) override {
    const ncclDataType_t nccl_type = type_of(type);
    const ncclResult_t code =
        ncclAllReduce(data, data, count, nccl_type, operation_of(op), nccl_, static_cast<cudaStream_t>(stream));
    if (code != ncclSuccess && code != ncclInProgress) failed_ = true;
    check(code, "ncclAllReduce");
    wait(comm, [] { return true; });
  }

  void finish(const Communicator& comm, void* stream) override {
    const auto s = static_cast<cudaStream_t>(stream);
    wait(comm, [&] {
      const cudaError_t code = cudaStreamQuery(s);
      if (code == cudaErrorNotReady) return false;
      check(code, "cudaStreamQuery");
      return true;
    });
  }

 private:
  /// ncclCommFinalize returns at once, and a communicator may be destroyed only when its state is ncclSuccess (nccl.h).
  /// The state waits for the other ranks. A rank that has failed never comes, so the wait has an end.
  bool ends_in_time() {
    ncclResult_t state = ncclCommFinalize(nccl_);
    const auto deadline = std::chrono::steady_clock::now() + patience;
    while (state == ncclInProgress && std::chrono::steady_clock::now() < deadline) {
      if (ncclCommGetAsyncError(nccl_, &state) != ncclSuccess) return false;
      std::this_thread::yield();
    }
    return state == ncclSuccess;
  }

  template <class F>
  void wait(const Communicator& comm, F&& done) {
    try {
      for (int looks = 0;; ++looks) {
        ncclResult_t state = ncclSuccess;
        check(ncclCommGetAsyncError(nccl_, &state), "ncclCommGetAsyncError");
        check(state, "an earlier call");
        if (state == ncclSuccess && done()) return;
        if (looks % 64 == 63) {
          comm.check_poison();
          std::this_thread::yield();
        }
      }
    } catch (...) {
      failed_ = true;
      throw;
    }
  }

  ncclComm_t nccl_ = nullptr;
  bool failed_ = false;
};

}  // namespace

std::shared_ptr<DeviceCollectives> make_device_collectives(const Communicator& comm) {
  // NCCL refuses two ranks on one device.
  using Identity = std::array<char, 16>;
  std::vector<Identity> devices(static_cast<std::size_t>(comm.size()));
  collectively(comm, name, [&] {
    int device = 0;
    check(cudaGetDevice(&device), "cudaGetDevice");
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
    std::copy_n(properties.uuid.bytes, sizeof(Identity), devices[static_cast<std::size_t>(comm.rank())].begin());
  });
  comm.run(AllGather{std::span(devices)});
  std::ranges::sort(devices);
  if (std::ranges::adjacent_find(devices) != devices.end()) return nullptr;
  return std::make_shared<NcclCollectives>(comm);
}

}  // namespace aloni::comm::detail

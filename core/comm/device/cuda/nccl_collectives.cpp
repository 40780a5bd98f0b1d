#include <aloni/core/comm/device/device_collectives.hpp>
#include <aloni/core/error.hpp>

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace aloni::comm::detail {

namespace {

constexpr const char* name = "aloni::comm::DeviceCollectives (NCCL)";
constexpr auto patience_with_the_end = std::chrono::seconds(10);  // for the end of a communicator on all ranks

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
    case ElementType::float16:
      return ncclFloat16;
    default:
      throw Unsupported(name, "element type", "another type",
                        "float, double, int32, int64, uint64, bfloat16 or float16");
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

class CudaStreamEvent final : public StreamEvent {
 public:
  CudaStreamEvent() { check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreateWithFlags"); }
  CudaStreamEvent(const CudaStreamEvent&) = delete;
  CudaStreamEvent& operator=(const CudaStreamEvent&) = delete;
  /// Work that waits for the event still does so: the device releases it afterwards.
  ~CudaStreamEvent() override { (void)cudaEventDestroy(event_); }

  void record(void* stream) override {
    check(cudaEventRecord(event_, static_cast<cudaStream_t>(stream)), "cudaEventRecord");
  }
  void await(void* stream) override {
    check(cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), event_, 0), "cudaStreamWaitEvent");
  }

 private:
  cudaEvent_t event_ = nullptr;
};

// Calls return at once (ncclConfig_t::blocking = 0). The state of the communicator says when a call has been posted,
// and whether an operation has failed since. Before that state is ncclSuccess, no other call may follow, and no kernel
// may be submitted to the stream. After a failure the communicator can only be aborted; that also ends its kernels
// (nccl.h: ncclCommAbort). NCCL's calls are not thread-safe, and the progress thread calls look() and end_all(): hence
// the mutex.
class NcclCollectives final : public DeviceCollectives {
 public:
  explicit NcclCollectives(const Communicator& comm) {
    ncclUniqueId id{};
    collectively(comm, name, [&] {
      if (comm.rank() == 0) check(ncclGetUniqueId(&id), "ncclGetUniqueId");
    });
    comm.run(Broadcast{std::span(&id, 1), 0});
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    try {
      check(ncclCommInitRankConfig(&nccl_, comm.size(), id, comm.rank(), &config), "ncclCommInitRankConfig");
      wait_until_posted(comm);
    } catch (...) {
      end_all();  // no destructor runs
      throw;
    }
  }
  ~NcclCollectives() override {
    const std::lock_guard lock(mutex_);
    if (nccl_) {
      if (!failed_ && ends_in_time()) {
        ncclCommDestroy(nccl_);
      } else {
        ncclCommAbort(nccl_);
      }
    }
    if (stream_) (void)cudaStreamDestroy(stream_);  // after its work, which the device completes by itself
  }

  std::string library() const override { return "NCCL"; }

  void start_all_reduce(const Communicator& comm, void* data, std::size_t count, ElementType type, Reduction op,
                        void* stream) override {
    const ncclDataType_t nccl_type = type_of(type);
    call("ncclAllReduce", [&] {
      return ncclAllReduce(data, data, count, nccl_type, operation_of(op), nccl_, static_cast<cudaStream_t>(stream));
    });
    wait_until_posted(comm);
  }

  // The first call makes the stream. It has the highest priority, because peers wait for its kernels. It does not wait
  // for the legacy default stream, to which other libraries may submit.
  void* group_stream() override {
    if (!stream_) {
      int least = 0, greatest = 0;  // both are 0 on devices without priorities; a lower number is a higher priority
      check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
      check(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, greatest), "cudaStreamCreateWithPriority");
    }
    return stream_;
  }

  std::unique_ptr<StreamEvent> make_event() override { return std::make_unique<CudaStreamEvent>(); }

  // A group belongs to its thread (NCCL user guide, "Group Calls"): the mutex keeps the progress thread's calls on this
  // communicator out of it. A group that has been started must be ended, also after an error; otherwise later calls of
  // this thread would join it. Messages are bytes, so that one message may carry several element types.
  void submit_group(const Communicator& comm, std::span<const DeviceMessage> sends,
                    std::span<const DeviceMessage> receives) override {
    const auto stream = static_cast<cudaStream_t>(group_stream());
    call("a group of ncclSend and ncclRecv", [&] {
      ncclResult_t first_error = ncclGroupStart();
      if (first_error != ncclSuccess) return first_error;
      const auto add = [&](ncclResult_t code) {
        if (first_error == ncclSuccess && code != ncclInProgress) first_error = code;
      };
      for (const DeviceMessage& m : receives) add(ncclRecv(m.data, m.bytes, ncclUint8, m.peer, nccl_, stream));
      for (const DeviceMessage& m : sends) add(ncclSend(m.data, m.bytes, ncclUint8, m.peer, nccl_, stream));
      const ncclResult_t end = ncclGroupEnd();
      return first_error == ncclSuccess ? end : first_error;
    });
    wait_until_posted(comm);
  }

  void finish(const Communicator& comm) override {
    comm.check_poison();
    look();
  }

  void look() override { (void)state(); }

  void end_all() noexcept override {
    const std::lock_guard lock(mutex_);
    if (nccl_) ncclCommAbort(nccl_);
    nccl_ = nullptr;
  }

 private:
  /// Throws CommunicationError if the call fails.
  template <class F>
  void call(const char* what, const F& f) {
    const std::lock_guard lock(mutex_);
    if (!nccl_) throw CommunicationError(name, what, "aborted", "ranks that have not failed");
    const ncclResult_t code = f();
    if (code != ncclSuccess && code != ncclInProgress) failed_ = true;
    check(code, what);
  }
  /// ncclSuccess or ncclInProgress. Throws CommunicationError if an operation has failed.
  ncclResult_t state() {
    ncclResult_t state = ncclSuccess;
    call("an operation", [&] {
      const ncclResult_t code = ncclCommGetAsyncError(nccl_, &state);
      return code == ncclSuccess ? state : code;
    });
    return state;
  }
  /// Checks the other ranks meanwhile, outside of the mutex: poison calls end_all().
  void wait_until_posted(const Communicator& comm) {
    for (int looks = 1; state() == ncclInProgress; ++looks) {
      if (looks % 64 == 0) {
        comm.check_poison();
        std::this_thread::yield();
      }
    }
  }
  /// ncclCommFinalize returns at once, and a communicator may be destroyed only when its state is ncclSuccess (nccl.h).
  /// The state waits for the other ranks. A rank that has failed never comes, so the wait has an end.
  bool ends_in_time() {
    ncclResult_t state = ncclCommFinalize(nccl_);
    const auto deadline = std::chrono::steady_clock::now() + patience_with_the_end;
    while (state == ncclInProgress && std::chrono::steady_clock::now() < deadline) {
      if (ncclCommGetAsyncError(nccl_, &state) != ncclSuccess) return false;
      std::this_thread::yield();
    }
    return state == ncclSuccess;
  }

  std::mutex mutex_;
  ncclComm_t nccl_ = nullptr;  // null: aborted
  cudaStream_t stream_ = nullptr;
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

// A library that CUDA loads into a program: it writes when kernels, copies and memsets run on the device.
//
//   CUDA_INJECTION64_PATH=build/cuda/bin/libaloni_device_activity.so ALONI_DEVICE_ACTIVITY=FILE program
//
// FILE.<process> gets a line `kernel START END NAME` or `copy START END` for each, in nanoseconds, in no order.
// scripts/acceptance/device_idle.py computes from it how long the device has nothing to do, and which kernels take the
// time. Needs no profiler.
// Source of the sequence of calls: NVIDIA, CUPTI documentation, "Activity API" and "CUDA injection".
#include <cupti.h>

#include <unistd.h>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

std::FILE* file = nullptr;
constexpr std::size_t buffer_bytes = std::size_t{8} << 20;

bool good(CUptiResult code, const char* call) {
  if (code == CUPTI_SUCCESS) return true;
  const char* words = nullptr;
  cuptiGetResultString(code, &words);
  std::fprintf(stderr, "aloni_device_activity: %s: %s\n", call, words ? words : "unknown error");
  return false;
}

void CUPTIAPI give_buffer(std::uint8_t** buffer, std::size_t* size, std::size_t* most_records) {
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(8, buffer_bytes));
  *size = *buffer ? buffer_bytes : 0;
  *most_records = 0;  // as many as fit
}

/// `name`: mangled, hence without spaces; null: none.
template <class Record>
void write(const char* kind, const Record& r, const char* name = nullptr) {
  // Times are 0 if the device did not give them.
  if (file && r.end > r.start)
    std::fprintf(file, "%s %llu %llu%s%s\n", kind, static_cast<unsigned long long>(r.start),
                 static_cast<unsigned long long>(r.end), name ? " " : "", name ? name : "");
}
template <class Record>
const Record& as(const CUpti_Activity* record) {
  return *reinterpret_cast<const Record*>(record);
}

void CUPTIAPI take_buffer(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t, std::size_t valid) {
  CUpti_Activity* record = nullptr;
  while (valid > 0 && cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) {
    switch (record->kind) {
      case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
        // Later versions of the record only append members.
        write("kernel", as<CUpti_ActivityKernel9>(record), as<CUpti_ActivityKernel9>(record).name);
        break;
      case CUPTI_ACTIVITY_KIND_MEMCPY:
        write("copy", as<CUpti_ActivityMemcpy5>(record));
        break;
      case CUPTI_ACTIVITY_KIND_MEMSET:
        write("copy", as<CUpti_ActivityMemset4>(record));
        break;
      default:
        break;
    }
  }
  std::free(buffer);
}

void finish() {
  good(cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED), "cuptiActivityFlushAll");
  std::size_t dropped = 0;
  cuptiActivityGetNumDroppedRecords(nullptr, 0, &dropped);
  if (dropped > 0) std::fprintf(stderr, "aloni_device_activity: %zu records were dropped\n", dropped);
  if (dropped > 0) std::fprintf(file, "dropped %zu 0\n", dropped);
  if (std::fclose(file) != 0) std::fprintf(stderr, "aloni_device_activity: the file is incomplete\n");
  file = nullptr;
}

}  // namespace

/// CUDA calls it when it starts. Returns 0 if the program goes on without a record.
extern "C" int InitializeInjection() {
  const char* const path = std::getenv("ALONI_DEVICE_ACTIVITY");
  if (!path) return 0;
  file = std::fopen((std::string(path) + "." + std::to_string(getpid())).c_str(), "w");
  if (!file) {
    std::perror("aloni_device_activity");
    return 0;
  }
  bool works = good(cuptiActivityRegisterCallbacks(give_buffer, take_buffer), "cuptiActivityRegisterCallbacks");
  for (const CUpti_ActivityKind kind :
       {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMSET})
    works = works && good(cuptiActivityEnable(kind), "cuptiActivityEnable");
  std::atexit(finish);
  return works ? 1 : 0;
}

// libaloni_fence_guard.so: a Kokkos Tools library that records what a step of aloni must not do.
//
// While armed, each of these is a violation:
//   global fence      a fence of a whole device: Kokkos::fence(), deep_copy without an execution space instance
//   unnamed fence     a fence of an instance with one of the default labels of Kokkos ("… Unnamed …"), or with none
//   foreign fence     a label that begins neither with "aloni::" nor with the name of a Kokkos library
//   empty reason      "aloni::something" without ": reason" after it
//   allocation        any Kokkos allocation (View, scratch)
//   unlabelled kernel a kernel whose label does not begin with "aloni::" or with the name of a Kokkos library
//
// Kokkos fences the instance it was given in a few calls and says why, for example "Kokkos::parallel_reduce: fence due
// to result being value, not view"; such a fence waits for that queue alone and carries its reason, so it is allowed.
// The fence that Kokkos itself inserts around every callback of a tool that has not declined it is not the program's
// and is not counted.
//
// Use, either way:
// 1. In a test: include support/fence_guard.hpp, link aloni_fence_guard. Needs no environment variable.
// 2. With any program: KOKKOS_TOOLS_LIBS=libaloni_fence_guard.so. The program calls aloni_fence_guard_arm(), found by
//    dlsym(RTLD_DEFAULT, …), after its first step; or ALONI_FENCE_GUARD_FAIL=1 arms it from the start and turns the
//    first violation into a message and abort(), which a debugger shows with its call stack.
// Both at once watch once: the dynamic linker gives one copy of the library to a process.
//
// It includes nothing of Kokkos: a tool knows the C interface only and works with any version.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace {

struct Guard {
  std::mutex mutex;
  bool armed = false, fatal = false;
  int kernels = 0, fences = 0;
  std::vector<std::string> violations;
};

Guard& guard() {
  static Guard instance;
  return instance;
}

void record(std::string text) {
  if (guard().fatal) {
    std::fprintf(stderr, "aloni fence guard: %s\n", text.c_str());
    std::abort();
  }
  guard().violations.push_back(std::move(text));
}

bool of_kokkos(std::string_view label) {
  return label.starts_with("Kokkos::") || label.starts_with("KokkosBlas::") || label.starts_with("KokkosKernels::") ||
         label.starts_with("KokkosBatched::") ||
         label.ends_with("Dot Product Based GEMM");  // a kernel of Kokkos Kernels for long sums
}

// The low 24 bits of a device id are 7 bits of device and 17 of instance; Kokkos numbers real instances from 3 on
// (NumReservedDeviceIDs) and reports a fence of the whole device as 0. A deep copy that synchronizes resources sets
// all 24.
bool is_global(std::uint32_t device) {
  const std::uint32_t low = device & 0x00ffffffu;
  return low == 0 || low == 0x00ffffffu;
}

void kernel(const char* name) {
  Guard& g = guard();
  const std::lock_guard lock(g.mutex);
  if (!g.armed) return;
  ++g.kernels;
  const std::string_view label = name ? name : "";
  if (!label.starts_with("aloni::") && !of_kokkos(label)) record("unlabelled kernel: \"" + std::string(label) + "\"");
}

}  // namespace

extern "C" {

struct SpaceHandle {
  char name[64];
};
struct ToolSettings {
  bool requires_global_fencing;
  bool padding[255];
};

void aloni_fence_guard_arm() {
  const std::lock_guard lock(guard().mutex);
  guard().armed = true;
  guard().kernels = guard().fences = 0;
  guard().violations.clear();
}

void aloni_fence_guard_disarm() {
  const std::lock_guard lock(guard().mutex);
  guard().armed = false;
}

int aloni_fence_guard_violations() {
  const std::lock_guard lock(guard().mutex);
  return static_cast<int>(guard().violations.size());
}

const char* aloni_fence_guard_violation(int number) {
  const std::lock_guard lock(guard().mutex);
  if (number < 0 || number >= static_cast<int>(guard().violations.size())) return nullptr;
  return guard().violations[static_cast<std::size_t>(number)].c_str();
}

int aloni_fence_guard_kernels() {
  const std::lock_guard lock(guard().mutex);
  return guard().kernels;
}

int aloni_fence_guard_fences() {
  const std::lock_guard lock(guard().mutex);
  return guard().fences;
}

void kokkosp_init_library(int, std::uint64_t, std::uint32_t, void*) {
  if (!std::getenv("ALONI_FENCE_GUARD_FAIL")) return;
  guard().fatal = true;
  aloni_fence_guard_arm();
}

void kokkosp_request_tool_settings(std::uint32_t, ToolSettings* settings) { settings->requires_global_fencing = false; }

void kokkosp_begin_parallel_for(const char* name, std::uint32_t, std::uint64_t* id) {
  *id = 0;
  kernel(name);
}
void kokkosp_begin_parallel_reduce(const char* name, std::uint32_t, std::uint64_t* id) {
  *id = 0;
  kernel(name);
}
void kokkosp_begin_parallel_scan(const char* name, std::uint32_t, std::uint64_t* id) {
  *id = 0;
  kernel(name);
}

void kokkosp_begin_fence(const char* name, std::uint32_t device, std::uint64_t* id) {
  *id = 0;
  Guard& g = guard();
  const std::lock_guard lock(g.mutex);
  const std::string_view label = name ? name : "";
  if (!g.armed || label.find("Kokkos Profile Tool Fence") != label.npos) return;
  ++g.fences;
  const std::string quoted = "\"" + std::string(label) + "\"";
  if (is_global(device)) {
    record("global fence: " + quoted);
  } else if (label.empty() || label.find("Unnamed") != label.npos) {
    record("unnamed fence: " + quoted);
  } else if (label.starts_with("aloni::")) {
    const auto colon = label.find(": ");
    if (colon == label.npos || colon + 2 == label.size()) record("empty reason: fence " + quoted);
  } else if (!of_kokkos(label)) {
    record("foreign fence: " + quoted);
  }
}

void kokkosp_allocate_data(SpaceHandle space, const char* label, const void*, std::uint64_t bytes) {
  Guard& g = guard();
  const std::lock_guard lock(g.mutex);
  if (!g.armed || bytes == 0) return;  // Kokkos::Cuda's scratch memory of teams that ask for none
  record("allocation: \"" + std::string(label ? label : "") + "\", " + std::to_string(bytes) + " bytes in " +
         space.name);
}

}  // extern "C"

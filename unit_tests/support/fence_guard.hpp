#pragma once
// Watches the rules about fences and allocations while it is armed. See fence_guard.cpp for the rules and for use
// without this header, through KOKKOS_TOOLS_LIBS.
//
//   aloni::testing::FenceGuard guard;        // installs itself unless the library is loaded already
//   trainer.step(batch);                     // the first step may allocate
//   guard.arm();
//   trainer.step(batch);
//   guard.disarm();
//   EXPECT_EQ(guard.report(), "");
//
// CMake: LIBRARIES … aloni_fence_guard
#include <Kokkos_Core.hpp>

#include <cstdint>
#include <string>

extern "C" {
void aloni_fence_guard_arm();
void aloni_fence_guard_disarm();
/// Since the last arm().
int aloni_fence_guard_violations();
/// One line of text, valid until the next arm(); null beyond the last.
const char* aloni_fence_guard_violation(int number);
/// Kernels launched and fences seen while armed: proof that the guard has looked at something.
int aloni_fence_guard_kernels();
int aloni_fence_guard_fences();

void kokkosp_begin_parallel_for(const char* name, std::uint32_t device, std::uint64_t* id);
void kokkosp_begin_parallel_reduce(const char* name, std::uint32_t device, std::uint64_t* id);
void kokkosp_begin_parallel_scan(const char* name, std::uint32_t device, std::uint64_t* id);
void kokkosp_begin_fence(const char* name, std::uint32_t device, std::uint64_t* id);
void kokkosp_allocate_data(Kokkos_Profiling_SpaceHandle space, const char* label, const void* memory,
                           std::uint64_t bytes);
}

namespace aloni::testing {

class FenceGuard {
 public:
  FenceGuard() : before_(Kokkos::Tools::Experimental::get_callbacks()) {
    if (before_.begin_fence == kokkosp_begin_fence) return;
    auto callbacks = before_;
    callbacks.begin_parallel_for = kokkosp_begin_parallel_for;
    callbacks.begin_parallel_reduce = kokkosp_begin_parallel_reduce;
    callbacks.begin_parallel_scan = kokkosp_begin_parallel_scan;
    callbacks.begin_fence = kokkosp_begin_fence;
    callbacks.allocate_data = kokkosp_allocate_data;
    Kokkos::Tools::Experimental::set_callbacks(callbacks);
  }
  FenceGuard(const FenceGuard&) = delete;
  FenceGuard& operator=(const FenceGuard&) = delete;
  ~FenceGuard() {
    disarm();
    Kokkos::Tools::Experimental::set_callbacks(before_);
  }

  void arm() { aloni_fence_guard_arm(); }
  void disarm() { aloni_fence_guard_disarm(); }
  int violations() const { return aloni_fence_guard_violations(); }
  int kernels() const { return aloni_fence_guard_kernels(); }
  int fences() const { return aloni_fence_guard_fences(); }
  /// One violation a line; empty when there is none.
  std::string report() const {
    std::string text;
    for (int i = 0; i < violations(); ++i) text += std::string(aloni_fence_guard_violation(i)) + '\n';
    return text;
  }

 private:
  Kokkos::Tools::Experimental::EventSet before_;
};

}  // namespace aloni::testing

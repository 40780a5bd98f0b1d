// libaloni_call_faults.so: ends or stops a rank in a chosen call, or lets this call fail. For programs as they are:
//
//   LD_PRELOAD=libaloni_call_faults.so ALONI_CALL_FAULT="RANK ACTION CALL NUMBER DELAY" mpirun -n 4 program
//
// RANK    in MPI_COMM_WORLD; -1: all ranks. Processes without a rank, such as the launcher, are left alone.
// ACTION  KILL, STOP, or a number: the call returns -1, with this errno
// CALL    a name below; `any`: all of them; `region`: a region of Kokkos whose label begins with aloni::halo::Transfer
//         (with KOKKOS_TOOLS_LIBS=libaloni_call_faults.so); `farewell`: the MPI_Iallgather of two elements;
//         `file`: open, write, fsync, close, rename, unlink, mkdir or rmdir below the folder ALONI_CALL_FAULT_FOLDER.
//         Files that are opened to be read do not count.
// NUMBER  1: the first call after the return of MPI_Init_thread; with `any` the first call of the process. 0: each call
// DELAY   of KILL and STOP, in microseconds: the call goes on meanwhile; 0: the call does not begin
// ALONI_CALL_FAULT_FILE: gets the time of KILL or STOP in seconds of CLOCK_MONOTONIC.
//
// It links neither MPI nor Kokkos: the dynamic linker loads it into the launcher too.
#include "call_faults.hpp"

#include <fcntl.h>
#include <mpi.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>

namespace aloni::test {

namespace {

struct Fault {
  bool active = false;
  int signal = 0, error = 0, number = 0, delay = 0;
  std::string call, file;

  Fault() {
    const char* const text = std::getenv("ALONI_CALL_FAULT");
    const char* const rank_text = std::getenv("PMIX_RANK");
    if (!text || !rank_text) return;
    int rank = 0;
    char action[16] = "", name[40] = "";
    if (std::sscanf(text, "%d %15s %39s %d %d", &rank, action, name, &number, &delay) != 5) return;
    if (rank >= 0 && std::string(rank_text) != std::to_string(rank)) return;
    const std::string_view what = action;
    signal = what == "KILL" ? SIGKILL : what == "STOP" ? SIGSTOP : 0;
    error = signal ? 0 : std::atoi(action);
    call = name;
    if (const char* const path = std::getenv("ALONI_CALL_FAULT_FILE")) file = path;
    active = true;
  }
};

const Fault& fault() {
  static const Fault* const instance = new Fault;  // threads may call at the end of the process
  return *instance;
}

std::atomic<bool> mpi_has_started{false};
std::atomic<int> calls{0};

void act() {
  if (!fault().file.empty()) {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    if (std::FILE* const out = std::fopen(fault().file.c_str(), "w")) {
      std::fprintf(out, "%.6f\n", std::chrono::duration<double>(now).count());
      std::fclose(out);
    }
  }
  kill(getpid(), fault().signal);
}

}  // namespace

bool fails_at(std::string_view name) {
  if (!fault().active) return false;
  const bool any = fault().call == "any";
  if (!any && (name != fault().call || !mpi_has_started)) return false;
  const int number = ++calls;
  if (fault().number != 0 && number != fault().number) return false;
  if (fault().error != 0) {
    errno = fault().error;
    return true;
  }
  if (fault().delay == 0) {
    act();
  } else {
    std::thread([] {
      std::this_thread::sleep_for(std::chrono::microseconds(fault().delay));
      act();
    }).detach();
  }
  return false;
}

}  // namespace aloni::test

extern "C" {

using aloni::test::fails_at;
using aloni::test::next;

int memfd_create(const char* name, unsigned flags) noexcept {
  static auto* const real = next<int(const char*, unsigned)>("memfd_create");
  return fails_at("memfd_create") ? -1 : real(name, flags);
}

int ftruncate(int descriptor, off_t bytes) noexcept {
  static auto* const real = next<int(int, off_t)>("ftruncate");
  return fails_at("ftruncate") ? -1 : real(descriptor, bytes);
}

void* mmap(void* at, std::size_t bytes, int protection, int flags, int descriptor, off_t offset) noexcept {
  static auto* const real = next<void*(void*, std::size_t, int, int, int, off_t)>("mmap");
  return fails_at("mmap") ? MAP_FAILED : real(at, bytes, protection, flags, descriptor, offset);
}

int open(const char* path, int flags, ...) {
  static auto* const real = next<int(const char*, int, ...)>("open");
  std::va_list rest;
  va_start(rest, flags);
  const mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  const bool only_reads = (flags & (O_ACCMODE | O_DIRECTORY)) == O_RDONLY;
  const bool fails = fails_at("open") || (!only_reads && aloni::test::fails_at_file(path));
  const int descriptor = fails ? -1 : real(path, flags, mode);
  aloni::test::note_open(descriptor, only_reads ? nullptr : path);
  return descriptor;
}

int eventfd(unsigned value, int flags) noexcept {
  static auto* const real = next<int(unsigned, int)>("eventfd");
  return fails_at("eventfd") ? -1 : real(value, flags);
}

int socket(int domain, int type, int protocol) noexcept {
  static auto* const real = next<int(int, int, int)>("socket");
  return fails_at("socket") ? -1 : real(domain, type, protocol);
}

int bind(int descriptor, const sockaddr* address, socklen_t bytes) noexcept {
  static auto* const real = next<int(int, const sockaddr*, socklen_t)>("bind");
  return fails_at("bind") ? -1 : real(descriptor, address, bytes);
}

int listen(int descriptor, int backlog) noexcept {
  static auto* const real = next<int(int, int)>("listen");
  return fails_at("listen") ? -1 : real(descriptor, backlog);
}

int connect(int descriptor, const sockaddr* address, socklen_t bytes) {
  static auto* const real = next<int(int, const sockaddr*, socklen_t)>("connect");
  return fails_at("connect") ? -1 : real(descriptor, address, bytes);
}

/// The name of the call is `pidfd_open`; other numbers are not counted.
long syscall(long number, ...) noexcept {
  static auto* const real = next<long(long, ...)>("syscall");
  long values[6];
  std::va_list rest;
  va_start(rest, number);
  for (long& value : values) value = va_arg(rest, long);
  va_end(rest);
  if (number == SYS_pidfd_open && fails_at("pidfd_open")) return -1;
  return real(number, values[0], values[1], values[2], values[3], values[4], values[5]);
}

int MPI_Init_thread(int* argc, char*** argv, int required, int* provided) {
  static auto* const real = next<int(int*, char***, int, int*)>("MPI_Init_thread");
  const int code = real(argc, argv, required, provided);
  aloni::test::mpi_has_started = true;
  return code;
}

int MPI_Comm_idup(MPI_Comm comm, MPI_Comm* copy, MPI_Request* request) {
  static auto* const real = next<int(MPI_Comm, MPI_Comm*, MPI_Request*)>("MPI_Comm_idup");
  return fails_at("MPI_Comm_idup") ? MPI_ERR_OTHER : real(comm, copy, request);
}

int MPI_Iallgather(const void* sent, int count, MPI_Datatype type, void* received, int counts, MPI_Datatype types,
                   MPI_Comm comm, MPI_Request* request) {
  static auto* const real =
      next<int(const void*, int, MPI_Datatype, void*, int, MPI_Datatype, MPI_Comm, MPI_Request*)>("MPI_Iallgather");
  return fails_at(count == 2 ? "farewell" : "MPI_Iallgather")
             ? MPI_ERR_OTHER
             : real(sent, count, type, received, counts, types, comm, request);
}

int MPI_Finalize() {
  static auto* const real = next<int()>("MPI_Finalize");
  return fails_at("MPI_Finalize") ? MPI_ERR_OTHER : real();
}

// Kokkos Tools.
void kokkosp_push_profile_region(const char* label) {
  if (std::string_view(label).starts_with("aloni::halo::Transfer")) (void)fails_at("region");
}

}  // extern "C"

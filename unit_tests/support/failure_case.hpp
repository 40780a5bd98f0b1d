#pragma once
// The main function of a program in which one rank is killed or stopped while all ranks work. The other ranks must soon
// throw PeerFailed with its number, and leave no files behind. test_failures.py starts the program and checks the lines
// that the ranks print.
//
//   PROGRAM SIGNAL VICTIM OPERATION AFTER_MS LIMIT_MS TRANSPORT
// TRANSPORT: shared, mpi, or a number N: each N ranks count as a node of their own.
#include <aloni/core/comm/mpi.hpp>
#include <aloni/core/error.hpp>

#include <mpi.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <string>
#include <thread>

#include <unistd.h>

namespace aloni::test {

struct FailureCase {
  int signal = SIGKILL, victim = 0;
  std::string operation;
};

/// Calls `operate` again and again until it throws, for at most 60 s.
inline int run_failure_case(int argc, char** argv,
                            const std::function<void(const comm::Communicator&, const FailureCase&)>& operate) {
  using Clock = std::chrono::steady_clock;
  if (argc != 7) return 2;
  const FailureCase c{
      .signal = std::string(argv[1]) == "KILL" ? SIGKILL : SIGSTOP, .victim = std::atoi(argv[2]), .operation = argv[3]};
  const auto after = std::chrono::milliseconds(std::atoi(argv[4]));
  MPI_Init(&argc, &argv);
  {
    const std::string transport = argv[6];
    const comm::Communicator comm =
        comm::from_mpi(MPI_COMM_WORLD, {.shared_memory = transport == "shared",
                                        .ranks_per_node = std::atoi(transport.c_str()),
                                        .stuck_after = std::chrono::milliseconds(std::atoi(argv[5]))});
    comm.barrier();
    const auto start = Clock::now();
    if (comm.rank() == c.victim) {
      std::printf("victim %d\n", getpid());
      std::fflush(stdout);
      std::thread([after, signal = c.signal] {
        std::this_thread::sleep_for(after);
        kill(getpid(), signal);
      }).detach();
    }
    try {
      while (Clock::now() - start < std::chrono::seconds(60)) operate(comm, c);
      std::printf("rank %d: no failure within 60 s\n", comm.rank());
    } catch (const PeerFailed& error) {
      const std::chrono::duration<double> waited = Clock::now() - start - after;
      std::printf("rank %d: blames %d after %.2f s: %s\n", comm.rank(), error.rank(), waited.count(), error.what());
    } catch (const std::exception& error) {
      std::printf("rank %d: %s\n", comm.rank(), error.what());
    }
    std::fflush(stdout);
  }
  _exit(0);  // MPI_Finalize would wait for the failed rank
}

}  // namespace aloni::test

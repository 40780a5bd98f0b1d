// One rank is killed or stopped while all ranks communicate. The other ranks must soon throw PeerFailed with its
// number, and leave no files behind. test_failures.py starts this program and checks the lines that the ranks print.
//
//   failure_cases SIGNAL VICTIM OPERATION AFTER_MS LIMIT_MS TRANSPORT
// TRANSPORT: shared, mpi, or a number N: each N ranks count as a node of their own.
#include <aloni/core/comm/mailbox.hpp>
#include <aloni/core/comm/mpi.hpp>
#include <aloni/core/error.hpp>

#include <mpi.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <unistd.h>

namespace {

using namespace aloni::comm;
using Clock = std::chrono::steady_clock;

/// Mails to random ranks, each with an answer, until this rank learns of a failure.
void exchange_mails(const Communicator& comm, const std::vector<float>& values) {
  Mailbox mailbox(comm, "failure cases");
  std::mt19937 random(static_cast<unsigned>(comm.rank()));
  std::vector<std::byte> room;
  int unanswered = 0;
  mailbox.handle(0, 0, [&](const Mail& mail) {
    mailbox.send(mail.source, 1, {}, std::as_bytes(std::span(values).first(random() % values.size())));
  });
  mailbox.handle(1, 0, [&](const Mail& mail) {
    room.resize(mail.data_bytes);
    if (mail.data_bytes == 0) return (void)--unanswered;
    mailbox.receive(mail, room, [&] { --unanswered; });
  });
  while (true) {
    if (unanswered == 0) {
      ++unanswered;
      mailbox.send(static_cast<int>(random() % static_cast<unsigned>(comm.size())), 0, {});
    }
    if (!mailbox.progress(true)) std::this_thread::yield();
  }
}

void operate(const Communicator& comm, const std::string& operation, std::vector<float>& values) {
  if (operation == "barrier") return comm.barrier();
  if (operation == "broadcast") return comm.run(Broadcast{std::span(values), 0});
  if (operation == "all_gather") return (void)comm.all_gather(comm.rank());
  if (operation == "small") return comm.all_reduce(std::span(values).first(2), Reduction::max);
  if (operation == "large") return comm.all_reduce(std::span(values), Reduction::max);
  if (operation == "mails") return exchange_mails(comm, values);
  if (operation == "messages") {
    const int p = comm.size(), r = comm.rank();
    static std::vector<float> received(values.size());
    std::vector<Request> requests{comm.receive(std::span(received), (r + p - 1) % p, 1),
                                  comm.send(std::span(values), (r + 1) % p, 1)};
    return comm.wait(requests);
  }
  std::fprintf(stderr, "failure_cases: unknown operation %s\n", operation.c_str());
  std::exit(2);
}

/// The victim ends between sending an address in its memory and the first access to it.
void lose_memory(const Communicator& comm, int victim, int signal, std::vector<float>& values) {
  const std::size_t bytes = std::size_t{65} << 20;  // a segment of its own, which no rank has opened
  constexpr std::size_t count = 10'000;
  std::vector<Request> requests;
  if (comm.rank() == victim) {
    // Not on the other ranks: after the failure they copy the shared memory that they use.
    const auto sent = std::span(static_cast<float*>(comm.shared_memory()->allocate(bytes)), count);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // the others have left the barrier
    for (int r = 0; r < comm.size(); ++r)
      if (r != victim) requests.push_back(comm.send(std::span<const float>(sent), r, 1));
    kill(getpid(), signal);
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(150));
  comm.wait(comm.receive(std::span(values).first(count), victim, 1));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 7) return 2;
  const int signal = std::string(argv[1]) == "KILL" ? SIGKILL : SIGSTOP, victim = std::atoi(argv[2]);
  const std::string operation = argv[3];
  const auto after = std::chrono::milliseconds(std::atoi(argv[4]));
  MPI_Init(&argc, &argv);
  {
    const std::string transport = argv[6];
    const Communicator comm = from_mpi(MPI_COMM_WORLD, {.shared_memory = transport == "shared",
                                                        .ranks_per_node = std::atoi(transport.c_str()),
                                                        .stuck_after = std::chrono::milliseconds(std::atoi(argv[5]))});
    std::vector<float> values(300'000, 1.0f);
    comm.barrier();
    const auto start = Clock::now();
    if (comm.rank() == victim) {
      std::printf("victim %d\n", getpid());
      std::fflush(stdout);
      std::thread([after, signal] {
        std::this_thread::sleep_for(after);
        kill(getpid(), signal);
      }).detach();
    }
    try {
      const bool loses = operation == "first_access";
      if (loses) lose_memory(comm, victim, signal, values);
      while (Clock::now() - start < std::chrono::seconds(60)) operate(comm, loses ? "barrier" : operation, values);
      std::printf("rank %d: no failure within 60 s\n", comm.rank());
    } catch (const aloni::PeerFailed& error) {
      const std::chrono::duration<double> waited = Clock::now() - start - after;
      std::printf("rank %d: blames %d after %.2f s: %s\n", comm.rank(), error.rank(), waited.count(), error.what());
    } catch (const std::exception& error) {
      std::printf("rank %d: %s\n", comm.rank(), error.what());
    }
    std::fflush(stdout);
  }
  _exit(0);  // MPI_Finalize would wait for the failed rank
}

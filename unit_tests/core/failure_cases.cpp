// Operations of communicators for test_failures.py: support/failure_case.hpp.
#include "support/failure_case.hpp"

#include <aloni/core/comm/mailbox.hpp>

#include <chrono>
#include <csignal>
#include <cstddef>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <unistd.h>

namespace {

using namespace aloni::comm;

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
  throw std::invalid_argument("unknown operation " + operation);
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
  std::vector<float> values(300'000, 1.0f);
  bool first = true;
  return aloni::test::run_failure_case(argc, argv, [&](const Communicator& comm, const aloni::test::FailureCase& c) {
    const bool loses = c.operation == "first_access";
    if (loses && std::exchange(first, false)) lose_memory(comm, c.victim, c.signal, values);
    operate(comm, loses ? "barrier" : c.operation, values);
  });
}

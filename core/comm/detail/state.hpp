#pragma once
// What a Communicator points to: its MPI communicator, the transports, and the one way to wait.
#include <aloni/core/comm/communicator.hpp>
#include <aloni/core/comm/detail/mpi_transport.hpp>
#include <aloni/core/comm/detail/poison.hpp>
#include <aloni/core/comm/self_transport.hpp>
#include <aloni/core/error.hpp>

#include <mpi.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace aloni::comm {

struct Communicator::State {
  /// Takes `comm`, made for this state. `board` is that of the parent, or a new one.
  State(MPI_Comm comm, std::shared_ptr<detail::PoisonBoard> board);
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State();

  /// Makes progress on one request; now and then looks for poison. A CommunicationError poisons before it is thrown:
  /// the peers cannot see it.
  bool test(Request& request, std::string_view operation);
  void wait(std::span<Request> requests, std::string_view operation);
  /// Throws PeerFailed when poison is known; looks for it first if told so.
  void check_poison(std::string_view operation, bool look);
  /// Runs `f`; a CommunicationError in it poisons the communicator.
  template <class F>
  decltype(auto) poisoning(F&& f) {
    try {
      return f();
    } catch (const CommunicationError& error) {
      board->poison(error.what());
      throw;
    }
  }

  MPI_Comm mpi;
  int rank = 0, size = 0;
  std::shared_ptr<detail::PoisonBoard> board;
  std::vector<int> root_ranks;  // of this communicator's ranks in the root communicator
  SelfTransport self;
  // Two transports on one MPI communicator with different tags, so that the traffic of collectives is counted by
  // itself.
  detail::MpiTransport messages, collectives;

  // For the collectives; kept, so that they allocate nothing after the first time.
  std::uint32_t collective_number = 0;
  std::vector<std::byte> scratch;
  std::vector<Request> requests;

 private:
  unsigned idle_tests_ = 0;
};

}  // namespace aloni::comm

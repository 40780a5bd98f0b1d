#include <aloni/core/comm/detail/state.hpp>

#include <aloni/core/comm/mpi.hpp>
#include <aloni/core/error.hpp>

#include <algorithm>
#include <numeric>
#include <string>
#include <thread>
#include <utility>

namespace aloni::comm {

namespace {

// In a wait, the first tests follow each other closely (some 50 to 100 µs, longer than a step of a transfer takes);
// after them each test gives the core away, and every so often one looks for poison.
constexpr int close_tests = 1000;
constexpr int tests_per_look = 32;

std::vector<int> ranks_in_root(MPI_Comm comm, int size, MPI_Comm root) {
  std::vector<int> own(static_cast<std::size_t>(size)), result(own.size());
  std::iota(own.begin(), own.end(), 0);
  MPI_Group group = MPI_GROUP_NULL, root_group = MPI_GROUP_NULL;
  check_mpi(MPI_Comm_group(comm, &group), "MPI_Comm_group");
  check_mpi(MPI_Comm_group(root, &root_group), "MPI_Comm_group");
  check_mpi(MPI_Group_translate_ranks(group, size, own.data(), root_group, result.data()), "MPI_Group_translate_ranks");
  check_mpi(MPI_Group_free(&group), "MPI_Group_free");
  check_mpi(MPI_Group_free(&root_group), "MPI_Group_free");
  return result;
}

int checked_rank(MPI_Comm comm) {
  int rank = 0;
  check_mpi(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
  return rank;
}

int checked_size(MPI_Comm comm) {
  int size = 0;
  check_mpi(MPI_Comm_size(comm, &size), "MPI_Comm_size");
  return size;
}

}  // namespace

Communicator::State::State(MPI_Comm comm, std::shared_ptr<detail::PoisonBoard> poison_board)
    : mpi(comm),
      rank(checked_rank(comm)),
      size(checked_size(comm)),
      board(std::move(poison_board)),
      root_ranks(ranks_in_root(comm, size, board->comm())),
      messages(mpi, "mpi", root_ranks),
      collectives(mpi, "mpi collectives", root_ranks) {
  board->add(&messages);
  board->add(&collectives);
}

Communicator::State::~State() {
  board->remove(&messages);
  board->remove(&collectives);
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized || board->poisoned()) return;
  messages.cancel_receives();
  collectives.cancel_receives();
  MPI_Comm_free(&mpi);
}

void Communicator::State::check_poison(std::string_view operation, bool look) {
  if (look) poisoning([&] { board->look(); });
  if (!board->poisoned()) return;
  const auto found = std::ranges::find(root_ranks, board->failed_rank());
  const int failed = found == root_ranks.end() ? -1 : static_cast<int>(found - root_ranks.begin());
  throw PeerFailed(std::string(operation), failed, board->message(), board->failed_rank());
}

bool Communicator::State::test(Request& request, std::string_view operation) {
  if (!request.transport) return true;
  check_poison(operation, false);
  if (poisoning([&] { return request.transport->test(request); })) return true;
  if (++idle_tests_ % tests_per_look == 0) check_poison(operation, true);
  return false;
}

void Communicator::State::wait(std::span<Request> pending, std::string_view operation) {
  check_poison(operation, false);
  const auto complete = [&](Request& request) {
    return !request.transport || poisoning([&] { return request.transport->test(request); });
  };
  // In order: a test of any request makes progress on all. After a while all are tested in turn, so that an error in a
  // late one is seen although an early one never completes.
  int idle = 0;
  for (Request& request : pending) {
    while (!complete(request)) {
      if (++idle <= close_tests) continue;
      if (idle % tests_per_look == 0) {
        check_poison(operation, true);
        for (Request& other : pending) complete(other);
        if (!request.transport) break;
      }
      std::this_thread::yield();
    }
  }
}

}  // namespace aloni::comm

#include <aloni/core/comm/mpi.hpp>

#include <aloni/core/comm/engine/communicator_state.hpp>
#include <aloni/core/comm/engine/start_up.hpp>
#include <aloni/core/config.hpp>
#include <aloni/core/error.hpp>

#include <unistd.h>

#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace aloni::comm {

namespace {

void check_faults(const Faults& faults, int ranks) {
  for (const auto& [name, probability] : {std::pair<const char*, double>{"delay", faults.delay},
                                          {"no_room", faults.no_room},
                                          {"truncate", faults.truncate},
                                          {"corrupt", faults.corrupt},
                                          {"lose", faults.lose}}) {
    if (probability >= 0 && probability < 1) continue;
    throw InvalidArgument("aloni::comm::from_mpi", std::string("options.faults.") + name, std::to_string(probability),
                          "a probability of at least 0 and below 1");
  }
  if (faults.longest_delay < 1) {
    throw InvalidArgument("aloni::comm::from_mpi", "options.faults.longest_delay", std::to_string(faults.longest_delay),
                          "1 or more");
  }
  if (faults.slow_rank < -1 || faults.slow_rank >= ranks) {
    throw InvalidArgument("aloni::comm::from_mpi", "options.faults.slow_rank", std::to_string(faults.slow_rank),
                          "a rank of the " + std::to_string(ranks) + ", or -1: none");
  }
  if (faults.slow_by.count() < 0) {
    throw InvalidArgument("aloni::comm::from_mpi", "options.faults.slow_by",
                          std::to_string(faults.slow_by.count()) + " us", "0 or more");
  }
}

void check(const TransportOptions& options, int ranks) {
  if (options.ranks_per_node < 0) {
    throw InvalidArgument("aloni::comm::from_mpi", "options.ranks_per_node", std::to_string(options.ranks_per_node),
                          "0 (a node is a machine) or more");
  }
  check_faults(options.faults, ranks);
  if (options.messages == MessageTransport::ucx && !config::has_ucx) {
    throw Unsupported("aloni::comm::from_mpi", "options.messages", "ucx", "mpi, or a build with aloni_ENABLE_UCX=ON");
  }
}

}  // namespace

void check_mpi(int code, const char* operation) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw CommunicationError(operation, "return code", std::string(text, static_cast<std::size_t>(length)),
                           "MPI_SUCCESS");
}

Communicator from_mpi(MPI_Comm comm, const TransportOptions& options) {
  int initialized = 0, finalized = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  if (!initialized || finalized) {
    throw InvalidArgument("aloni::comm::from_mpi", "MPI", finalized ? "finalized" : "not initialized",
                          "MPI initialized and not finalized");
  }
  if (comm == MPI_COMM_NULL) {
    throw InvalidArgument("aloni::comm::from_mpi", "comm", "MPI_COMM_NULL", "a communicator that this rank belongs to");
  }
  int is_inter = 0;
  check_mpi(MPI_Comm_test_inter(comm, &is_inter), "MPI_Comm_test_inter");
  if (is_inter)
    throw InvalidArgument("aloni::comm::from_mpi", "comm", "an inter-communicator", "an intra-communicator");

  detail::StartUp start_up(comm, options.stuck_after, options.longest_wait);
  const MPI_Comm messages = start_up.duplicate(), poison = start_up.duplicate();
  std::shared_ptr<detail::CommunicatorRuntime> runtime;
  try {
    check(options, start_up.size());
    // A child of this process (fork) is no rank: it leaves connections and shared memory as they are.
    const auto end = [process = getpid()](detail::CommunicatorRuntime* r) {
      if (getpid() == process) delete r;
    };
    runtime.reset(new detail::CommunicatorRuntime(start_up, messages, poison, options), end);
  } catch (const std::exception& e) {
    start_up.use(nullptr);  // the watch was a part of the runtime
    start_up.fail(e.what());
    throw;
  }
  std::vector<int> all(static_cast<std::size_t>(runtime->size()));
  std::iota(all.begin(), all.end(), 0);
  return Communicator(std::make_shared<Communicator::State>(std::move(runtime), 0, std::move(all)));
}

}  // namespace aloni::comm

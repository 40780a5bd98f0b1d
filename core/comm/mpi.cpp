#include <aloni/core/comm/mpi.hpp>

#include <aloni/core/comm/detail/state.hpp>
#include <aloni/core/error.hpp>

#include <memory>
#include <string>

namespace aloni::comm {

void check_mpi(int code, const char* operation) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw CommunicationError(operation, "return code", std::string(text, static_cast<std::size_t>(length)),
                           "MPI_SUCCESS");
}

Communicator from_mpi(MPI_Comm comm) {
  int initialized = 0, finalized = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  if (!initialized || finalized) {
    throw InvalidArgument("aloni::comm::from_mpi", "MPI", finalized ? "finalized" : "not initialized",
                          "MPI up and running");
  }
  if (comm == MPI_COMM_NULL) {
    throw InvalidArgument("aloni::comm::from_mpi", "comm", "MPI_COMM_NULL", "a communicator that this rank belongs to");
  }
  int is_inter = 0;
  check_mpi(MPI_Comm_test_inter(comm, &is_inter), "MPI_Comm_test_inter");
  if (is_inter)
    throw InvalidArgument("aloni::comm::from_mpi", "comm", "an inter-communicator", "an intra-communicator");

  const auto duplicate = [&] {
    MPI_Comm result = MPI_COMM_NULL;
    check_mpi(MPI_Comm_dup(comm, &result), "MPI_Comm_dup");
    check_mpi(MPI_Comm_set_errhandler(result, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    return result;
  };
  auto board = std::make_shared<detail::PoisonBoard>(duplicate());
  return Communicator(std::make_shared<Communicator::State>(duplicate(), std::move(board)));
}

}  // namespace aloni::comm

#pragma once
// The door between MPI and aloni: the only public header that includes mpi.h.
#include <aloni/core/comm/communicator.hpp>

#include <mpi.h>

namespace aloni::comm {

/// Collective over `comm`. The result owns duplicates of `comm` (with MPI_ERRORS_RETURN), freed with its last copy and the last
/// one split from it; it must be gone before MPI_Finalize. @pre MPI is initialized and not finalized. Throws
/// InvalidArgument, CommunicationError; Unsupported for a transport that this build lacks.
Communicator from_mpi(MPI_Comm comm, const TransportOptions& options = {});

/// Throws CommunicationError with MPI's own text when `code` is not MPI_SUCCESS.
void check_mpi(int code, const char* operation);

}  // namespace aloni::comm

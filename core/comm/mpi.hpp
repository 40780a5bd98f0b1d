#pragma once
// Makes communicators from MPI communicators. The only public header that includes mpi.h.
#include <aloni/core/comm/communicator.hpp>

#include <mpi.h>

namespace aloni::comm {

/// Returns a communicator of the ranks of `comm`. It owns duplicates of `comm` (with MPI_ERRORS_RETURN). They are freed
/// with the last copy of the communicator and of all communicators split from it; destroy all before MPI_Finalize.
/// Collective over `comm`. @pre MPI is initialized and not finalized. Throws InvalidArgument, CommunicationError;
/// Unsupported for a transport that this build lacks.
Communicator from_mpi(MPI_Comm comm, const TransportOptions& options = {});

/// Throws CommunicationError with MPI's error text if `code` is not MPI_SUCCESS.
void check_mpi(int code, const char* operation);

}  // namespace aloni::comm

#pragma once
// A barrier of MPI for ranks that may come seconds apart. A rank that waits in MPI_Barrier would use its core
// meanwhile, which other tests need.
#include <mpi.h>

#include <chrono>
#include <functional>
#include <thread>

namespace aloni::test {

/// Collective over `comm`. Calls `look` between naps of a millisecond.
inline void sleeping_barrier(MPI_Comm comm, const std::function<void()>& look = {}) {
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Ibarrier(comm, &request);
  for (int done = 0; MPI_Test(&request, &done, MPI_STATUS_IGNORE), !done;) {
    if (look) look();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace aloni::test

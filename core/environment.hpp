#pragma once
// Starts and stops MPI and Kokkos, for programs that do not do so themselves. Nothing else in the library starts or
// stops them.
//
//   int main(int argc, char** argv) {
//     aloni::Environment environment(argc, argv);            // starts MPI, then Kokkos; removes --kokkos-* from argv
//     auto comm = aloni::comm::from_mpi(MPI_COMM_WORLD);     // destroyed before `environment`
//   }
//
// If the program has already called MPI_Init or Kokkos::initialize, Environment neither starts nor stops that library.
// Before it starts Kokkos it lets OpenBLAS use kernels for the processor (core/blas_library.hpp).
// It ignores SIGXFSZ unless the program handles it: a file beyond `ulimit -f` is then an error of the call that writes.

namespace aloni {

/// Largest number of threads for which a process may ask: 64, or four for each core if that is more. OpenMP ends a
/// process without a word when it cannot make a thread, and far more threads than cores have no use.
int most_threads();

class Environment {
 public:
  /// Starts MPI with MPI_THREAD_FUNNELED. Chooses the device by node-local rank, unless the user chose one. Collective
  /// over all ranks of the job. Throws CommunicationError if MPI provides less thread support, and InvalidArgument if
  /// OMP_NUM_THREADS is above most_threads(), before it starts anything.
  Environment(int& argc, char**& argv);
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;
  /// Stops Kokkos, then MPI. After a failure MPI is stopped only if all ranks come within a second: MPI_Finalize would
  /// wait for ever for a dead rank. Otherwise the launcher ends the job when this process ends.
  ~Environment();

 private:
  bool owns_mpi_ = false, owns_kokkos_ = false;
};

}  // namespace aloni

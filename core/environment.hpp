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

namespace aloni {

class Environment {
 public:
  /// Starts MPI with MPI_THREAD_FUNNELED. Chooses the device by node-local rank, unless the user chose one. Collective
  /// over all ranks of the job. Throws CommunicationError if MPI provides less thread support.
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

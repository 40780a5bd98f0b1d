#pragma once
// Optional start-up and shut-down for programs that don't do it themselves. The library itself never starts or stops
// MPI or Kokkos.
//
//   int main(int argc, char** argv) {
//     aloni::Environment environment(argc, argv);          // MPI first, then Kokkos; --kokkos-* flags are taken out of
//     argv auto comm = aloni::comm::from_mpi(MPI_COMM_WORLD);   // gone before `environment`
//   }
//
// What is already running is left alone: in a program that has called MPI_Init or Kokkos::initialize, the environment
// neither starts nor stops that one.

namespace aloni {

class Environment {
 public:
  /// Collective over all ranks of the job. MPI is started with MPI_THREAD_FUNNELED; the device is chosen by node-local
  /// rank. Throws CommunicationError when MPI gives less thread support than needed.
  Environment(int& argc, char**& argv);
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;
  /// Kokkos down first, then MPI.
  ~Environment();

 private:
  bool owns_mpi_ = false, owns_kokkos_ = false;
};

}  // namespace aloni

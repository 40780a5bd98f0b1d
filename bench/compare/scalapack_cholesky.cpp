// Times pdpotrf of ScaLAPACK under MPI, with one thread of BLAS per rank.
//   mpirun -n 2 scalapack_cholesky N BLOCK ROWS COLUMNS L|U REPEAT      ROWS × COLUMNS: the grid of ranks
// Prints one line of JSON: seconds of the slowest rank in the fastest run, and the largest error of the solution of
// A x = b whose x is 1. bench/compare/cholesky.py builds and runs it.
#define OMPI_SKIP_MPICXX  // the C++ bindings of MPI, which nobody links
#include <mpi.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

extern "C" {
void Cblacs_pinfo(int* rank, int* size);
void Cblacs_get(int context, int what, int* value);
void Cblacs_gridinit(int* context, const char* order, int rows, int columns);
void Cblacs_gridinfo(int context, int* rows, int* columns, int* row, int* column);
void Cblacs_gridexit(int context);
int numroc_(const int* n, const int* block, const int* position, const int* first, const int* count);
void descinit_(int* descriptor, const int* m, const int* n, const int* mb, const int* nb, const int* row,
               const int* column, const int* context, const int* stride, int* info);
void pdpotrf_(const char* part, const int* n, double* a, const int* ia, const int* ja, const int* descriptor,
              int* info);
void pdpotrs_(const char* part, const int* n, const int* columns, const double* a, const int* ia, const int* ja,
              const int* descriptor, double* b, const int* ib, const int* jb, const int* descriptor_b, int* info);
}

namespace {

[[noreturn]] void fail(const char* what, int info) {
  std::fprintf(stderr, "scalapack_cholesky: %s: %d\n", what, info);
  MPI_Abort(MPI_COMM_WORLD, 1);
  std::exit(1);
}

/// Symmetric and positive definite: uniform in [0, 1), n more on the diagonal.
double element(int i, int j, int n) {
  std::uint64_t h = static_cast<std::uint64_t>(std::max(i, j)) << 32 | static_cast<std::uint64_t>(std::min(i, j));
  h = (h ^ h >> 30) * 0xBF58476D1CE4E5B9u;
  h = (h ^ h >> 27) * 0x94D049BB133111EBu;
  return static_cast<double>((h ^ h >> 31) >> 11) * 0x1p-53 + (i == j ? n : 0);
}

/// The index in the whole matrix of local index i.
int whole_index(int i, int block, int position, int count) {
  return (i / block * count + position) * block + i % block;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const auto number = [&](int i) { return i < argc ? std::atoi(argv[i]) : 0; };
  const int n = number(1), block = number(2), repeat = number(6);
  int rows = number(3), columns = number(4), rank = 0, size = 0, context = 0, row = 0, column = 0, info = 0;
  Cblacs_pinfo(&rank, &size);
  const char part = argc > 5 ? argv[5][0] : ' ';
  if (n < 1 || block < 1 || repeat < 1 || rows * columns != size || (part != 'L' && part != 'U'))
    fail("usage: scalapack_cholesky N BLOCK ROWS COLUMNS L|U REPEAT, with ROWS times COLUMNS ranks", size);
  Cblacs_get(-1, 0, &context);
  Cblacs_gridinit(&context, "Row", rows, columns);
  Cblacs_gridinfo(context, &rows, &columns, &row, &column);

  const int zero = 0, one = 1;
  const int local_rows = numroc_(&n, &block, &row, &zero, &rows);
  const int local_columns = numroc_(&n, &block, &column, &zero, &columns);
  const int stride = std::max(1, local_rows);
  int a_of[9], b_of[9];
  descinit_(a_of, &n, &n, &block, &block, &zero, &zero, &context, &stride, &info);
  if (info != 0) fail("descinit of the matrix", info);
  descinit_(b_of, &n, &one, &block, &block, &zero, &zero, &context, &stride, &info);
  if (info != 0) fail("descinit of the right side", info);
  const auto local = static_cast<std::size_t>(stride);
  std::vector<double> matrix(local * static_cast<std::size_t>(std::max(1, local_columns))), factor, b(local);
  for (int j = 0; j < local_columns; ++j)
    for (int i = 0; i < local_rows; ++i)
      matrix[static_cast<std::size_t>(j) * local + static_cast<std::size_t>(i)] =
          element(whole_index(i, block, row, rows), whole_index(j, block, column, columns), n);

  double best = 1e30;
  for (int r = 0; r < repeat; ++r) {
    factor = matrix;
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = MPI_Wtime();
    pdpotrf_(&part, &n, factor.data(), &one, &one, a_of, &info);
    double seconds = MPI_Wtime() - start;
    if (info != 0) fail("pdpotrf", info);
    MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    best = std::min(best, seconds);
  }

  if (column == 0)
    for (int i = 0; i < local_rows; ++i) {
      const int whole = whole_index(i, block, row, rows);
      for (int j = 0; j < n; ++j) b[static_cast<std::size_t>(i)] += element(whole, j, n);
    }
  pdpotrs_(&part, &n, &one, factor.data(), &one, &one, a_of, b.data(), &one, &one, b_of, &info);
  if (info != 0) fail("pdpotrs", info);
  double error = 0;
  if (column == 0)
    for (int i = 0; i < local_rows; ++i) error = std::max(error, std::abs(b[static_cast<std::size_t>(i)] - 1));
  MPI_Allreduce(MPI_IN_PLACE, &error, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  if (!(error < 1e-10)) fail("the solution is wrong", 0);
  if (rank == 0)
    std::printf(
        "{\"n\": %d, \"block\": %d, \"rows\": %d, \"columns\": %d, \"part\": \"%c\", \"seconds\": %.9g, "
        "\"error\": %.3g}\n",
        n, block, rows, columns, part, best, error);
  Cblacs_gridexit(context);
  MPI_Finalize();
}

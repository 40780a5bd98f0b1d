// Factorisations for test_failures.py: support/failure_case.hpp. All have the same matrix and another order of tasks.
#include "support/failure_case.hpp"
#include "tasks/rank_matrices.hpp"

#include <aloni/tasks/cholesky.hpp>
#include <aloni/tasks/lu.hpp>

#include <cstdint>
#include <stdexcept>

namespace {

using namespace aloni::tasks;
using aloni::comm::Communicator;

void factorise(const Communicator& comm, const std::string& operation, std::uint64_t seed) {
  constexpr aloni::Index n = 400, tile = 40;
  const aloni::views::TileDistribution d(n, n, tile, aloni::views::squarest_grid(comm.size()));
  const RuntimeOptions options{.workers = 2, .schedule_seed = seed};
  if (operation == "cholesky") {
    auto a = aloni::test::make_matrix<double>(d, TilePart::lower, comm.rank(), aloni::test::symmetric_element);
    cholesky(comm, a, options);
  } else if (operation == "lu") {
    auto a = aloni::test::make_matrix<double>(d, TilePart::whole, comm.rank(), aloni::test::dominant_element);
    lu(comm, a, options);
  } else {
    throw std::invalid_argument("unknown operation " + operation);
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::uint64_t seed = 0;
  return aloni::test::run_failure_case(argc, argv, [&](const Communicator& comm, const aloni::test::FailureCase& c) {
    factorise(comm, c.operation, seed++);
  });
}

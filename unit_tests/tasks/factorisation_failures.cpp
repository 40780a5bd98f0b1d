// Factorisations for test_failures.py: support/failure_case.hpp. All have the same matrix and another order of tasks.
// Of "indefinite", each has another bad pivot, so ranks also die while an error ends a run.
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
  const auto make = [&](TilePart part, const auto& element) {
    const bool is_shared = seed % 2 != 0;  // then ranks of a node read tiles in place
    return is_shared ? aloni::test::make_shared_matrix<double>(comm, d, part, element)
                     : aloni::test::make_matrix<double>(d, part, comm.rank(), element);
  };
  if (operation == "cholesky") {
    auto a = make(TilePart::lower, aloni::test::symmetric_element);
    cholesky(comm, a, options);
  } else if (operation == "indefinite") {
    TileMatrix<double> a(d, TilePart::lower, comm.rank());
    const auto bad = static_cast<aloni::Index>(seed * 37 % n);
    a.fill([&](aloni::Index i, aloni::Index j) {
      return i == j && i == bad ? -1e6 : aloni::test::symmetric_element(i, j, n);
    });
    try {
      cholesky(comm, a, options);
      throw std::logic_error("an indefinite matrix was factorised");
    } catch (const aloni::FactorisationError&) {  // on all ranks; the communicator stays usable
    }
  } else if (operation == "lu") {
    auto a = make(TilePart::whole, aloni::test::dominant_element);
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

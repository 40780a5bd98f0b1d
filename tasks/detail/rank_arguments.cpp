#include <aloni/tasks/detail/rank_arguments.hpp>

#include <aloni/core/comm/communicator.hpp>
#include <aloni/core/error.hpp>
#include <aloni/tasks/detail/run_on_tiles.hpp>

namespace aloni::tasks::detail {

void check_ranks(const char* operation, const comm::Communicator& comm, const OwnedTiles& a,
                 const RuntimeOptions& options) {
  check_options(operation, options);
  const views::TileDistribution& d = a.distribution();
  check_square(operation, d);
  if (d.ranks() != comm.size())
    throw InvalidArgument(operation, "a", to_string(d), "a matrix on " + std::to_string(comm.size()) + " ranks");
  if (a.rank() != comm.rank()) {
    throw InvalidArgument(operation, "a.rank()", std::to_string(a.rank()),
                          std::to_string(comm.rank()) + ", the rank of the communicator");
  }
}

void add_matrix(comm::ReplicatedValues& values, const std::string& name, const OwnedTiles& a,
                const std::string& elements) {
  values.add(name, to_string(a.distribution())).add("elements of " + name, elements);
}

}  // namespace aloni::tasks::detail

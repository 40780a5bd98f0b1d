#pragma once
// The arguments of calls that all ranks make together: checked on each rank, then compared between the ranks.
#include <aloni/core/comm/agreement.hpp>
#include <aloni/tasks/runtime.hpp>
#include <aloni/tasks/tile_matrix.hpp>
#include <aloni/tasks/tile_store.hpp>

#include <string>

namespace aloni::comm {
class Communicator;
}

namespace aloni::tasks::detail {

/// Throws InvalidArgument unless the matrix is square and lies on the ranks of `comm`, and for options as
/// check_options(); Unsupported without kernels. Not collective.
void check_ranks(const char* operation, const comm::Communicator& comm, const OwnedTiles& a,
                 const RuntimeOptions& options);

/// Adds what all ranks must agree on: the shape, the tiles and their owners, the type of the elements, and whether a
/// store has them.
void add_matrix(comm::ReplicatedValues& values, const std::string& name, const OwnedTiles& a,
                const std::string& elements);
template <class T>
void add_matrix(comm::ReplicatedValues& values, const std::string& name, const TileMatrix<T>& a) {
  add_matrix(values, name, a, sizeof(T) == sizeof(float) ? "float" : "double");
}
template <class T>
void add_matrix(comm::ReplicatedValues& values, const std::string& name, const StoredMatrix<T>& a) {
  add_matrix(values, name, a, sizeof(T) == sizeof(float) ? "float in a store" : "double in a store");
}

/// Throws InvalidArgument on all ranks unless all of them call `operation` with the same matrix. Collective.
template <class Matrix>
void check_same_matrix(const char* operation, const comm::Communicator& comm, const Matrix& a) {
  comm::ReplicatedValues values;
  add_matrix(values, "a", a);
  comm::check_equal(comm, operation, values);
}

}  // namespace aloni::tasks::detail

#pragma once
// Matrices for tests of factorisations on ranks: their elements, and the comparison with the factor of one rank.
#include <aloni/core/comm/communicator.hpp>
#include <aloni/core/host_random.hpp>
#include <aloni/tasks/tile_matrix.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory_resource>
#include <string>
#include <vector>

namespace aloni::test {

inline double random_element(Index i, Index j) {
  const auto number = static_cast<std::uint64_t>(i) << 32 | static_cast<std::uint64_t>(j);
  return 2 * random::host_uniform(7, 0, number) - 1;
}

/// Of a symmetric and positive definite matrix of n rows.
inline double symmetric_element(Index i, Index j, Index n) {
  return random_element(std::max(i, j), std::min(i, j)) + (i == j ? static_cast<double>(n) : 0);
}

/// Of a matrix of n rows that has an LU factorisation without pivoting.
inline double dominant_element(Index i, Index j, Index n) {
  return random_element(i, j) + (i == j ? (i % 2 ? -1.0 : 1.0) * static_cast<double>(n) : 0);
}

template <class T, class F>
tasks::TileMatrix<T> make_matrix(const views::TileDistribution& d, tasks::TilePart part, int rank, const F& element) {
  tasks::TileMatrix<T> a(d, part, rank);
  a.fill([&](Index i, Index j) { return element(i, j, d.rows()); });
  return a;
}

/// The same in the shared memory of the node.
template <class T, class F>
tasks::TileMatrix<T> make_shared_matrix(const comm::Communicator& comm, const views::TileDistribution& d,
                                        tasks::TilePart part, const F& element) {
  tasks::TileMatrix<T> a(comm, d, part);
  a.fill([&](Index i, Index j) { return element(i, j, d.rows()); });
  return a;
}

/// Whether this rank shares memory with all others.
inline bool shares_memory_with_all(const comm::Communicator& comm) {
  const std::pmr::vector<std::byte> memory(1, comm.shared_memory().get());
  for (int r = 0; r < comm.size(); ++r)
    if (r != comm.rank() && !comm.expose(memory.data(), 1, r).reachable()) return false;
  return true;
}

/// The first tile of `a` that has other bits than that tile of `whole`, a matrix on one rank; empty if there is none.
template <class T>
std::string different_tile(const tasks::TileMatrix<T>& a, const tasks::TileMatrix<T>& whole) {
  const views::TileDistribution& d = a.distribution();
  for (const views::Tile& t : d.tiles_of(a.rank())) {
    if (!a.has(t)) continue;
    const auto bytes = static_cast<std::size_t>(d.elements(t)) * sizeof(T);
    if (std::memcmp(a.tile(t), whole.tile(t), bytes) != 0) return "tile " + to_string(t) + " of " + to_string(d);
  }
  return {};
}

}  // namespace aloni::test

#pragma once
// A task by its name: the kernel, and the tiles that it works on. Two ranks that know the rules of a factorisation name
// the same task in the same way, without a list of tasks.
#include <aloni/views/tile_distribution.hpp>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace aloni::tasks {

/// The kernel of a task. The names are those of BLAS and LAPACK.
enum class Kernel : std::uint8_t {
  other,         ///< a task of the caller
  potrf,         ///< A(k,k) = L Lᵀ
  getrf,         ///< A(k,k) = L U, without pivoting
  trsm,          ///< A(i,k) = A(i,k) L(k,k)⁻ᵀ (Cholesky), A(i,k) U(k,k)⁻¹ (LU)
  trsm_row,      ///< A(k,j) = L(k,k)⁻¹ A(k,j) (LU)
  syrk,          ///< A(j,j) = A(j,j) - A(j,k) A(j,k)ᵀ
  gemm,          ///< A(i,j) = A(i,j) - A(i,k) A(j,k)ᵀ (Cholesky), A(i,k) A(k,j) (LU)
  solve_lower,   ///< B(k,j) = L(k,k)⁻¹ B(k,j)
  update_lower,  ///< B(i,j) = B(i,j) - L(i,k) B(k,j), i > k
  solve_upper,   ///< B(k,j) = U(k,k)⁻¹ B(k,j), where U = Lᵀ for Cholesky
  update_upper,  ///< B(i,j) = B(i,j) - U(i,k) B(k,j), i < k
  provide        ///< nothing: A(i,j) has its contents before the run, and other ranks read it
};

const char* name(Kernel kernel);

/// Bound of the coordinates of a task, so that a task has a key of 64 bits.
inline constexpr std::int32_t max_task_coordinate = (1 << 20) - 1;

/// Row and column are those of the tile that the task writes. Step: the k of the formulas above.
struct Task {
  Kernel kernel = Kernel::other;
  std::int32_t row = 0, column = 0, step = 0;

  /// Different for different tasks. @pre 0 ≤ row, column, step ≤ max_task_coordinate
  constexpr std::uint64_t key() const {
    return std::uint64_t(kernel) << 60 | std::uint64_t(row) << 40 | std::uint64_t(column) << 20 | std::uint64_t(step);
  }
  /// The task with this key.
  static constexpr Task from(std::uint64_t key) {
    constexpr std::uint64_t mask = max_task_coordinate;
    return {Kernel(key >> 60), std::int32_t(key >> 40 & mask), std::int32_t(key >> 20 & mask),
            std::int32_t(key & mask)};
  }
  friend constexpr auto operator<=>(const Task&, const Task&) = default;
};

/// "gemm (3, 2) 1": kernel, row and column, step.
std::string to_string(const Task& task);

/// A tile of one of the matrices of a graph.
struct TileId {
  std::int32_t matrix = 0;  ///< number that the graph gives to the matrix
  std::int32_t row = 0, column = 0;

  constexpr views::Tile tile() const { return {row, column}; }
  friend constexpr auto operator<=>(const TileId&, const TileId&) = default;
};

std::string to_string(const TileId& id);

/// The contents of a tile after `version` tasks have written it; 0: as it was before the first task.
struct TileVersion {
  TileId tile;
  std::int32_t version = 0;

  friend constexpr auto operator<=>(const TileVersion&, const TileVersion&) = default;
};

enum class Access : std::uint8_t { read, write, read_write };

struct TileAccess {
  TileId tile;
  Access access = Access::read;

  friend constexpr bool operator==(const TileAccess&, const TileAccess&) = default;
};

}  // namespace aloni::tasks

template <>
struct std::hash<aloni::tasks::TileId> {
  std::size_t operator()(const aloni::tasks::TileId& id) const noexcept {
    std::uint64_t h = std::uint64_t(std::uint32_t(id.row)) << 32 | std::uint32_t(id.column);
    h = (h ^ std::uint64_t(std::uint32_t(id.matrix)) << 56) * 0x9E3779B97F4A7C15u;  // Fibonacci hashing
    return static_cast<std::size_t>(h ^ h >> 29);
  }
};

#pragma once
// The equations: a compressible, magnetised gas in a periodic box, as in codes for the interior of stars and for the
// interstellar medium. There are eight quantities per cell. Derivatives are of sixth order: three cells to each side,
// and along the diagonals. Time steps are by Runge-Kutta of third order with the low storage of Williamson (1980).
//
//   ∂ρ/∂t = −u·∇ρ − ρ ∇·u + κ ∇²ρ                  ρ density
//   ∂u/∂t = −u·∇u + (j × B − ∇p) / ρ + κ ∇²u        u velocity
//   ∂p/∂t = −u·∇p − γ p ∇·u + κ ∇²p                 p pressure
//   ∂A/∂t = u × B − κ j                             A vector potential, B = ∇ × A, j = ∇(∇·A) − ∇²A
//
// Pressure instead of the more common entropy: the inner loop then has no exponential, which the compiler could not
// vectorise. One diffusivity for all quantities, a multiple of the mesh width: enough for smooth pictures.
// The start is the vortex of Orszag and Tang (1979) with some motion along the third axis.
#include <aloni/core/index.hpp>

#include <Kokkos_Core.hpp>

#include <type_traits>

namespace stencil {

using aloni::Index;

constexpr int radius = 3, quantities = 8;
/// The first axis of the Views; velocity and potential have three components each.
enum Quantity : int { density = 0, velocity = 1, pressure = 4, potential = 5 };

/// The View of the application: x is the fastest index and the quantity the slowest. Rows of a quantity are contiguous,
/// so that the loop over x has vector loads and stores. With the quantity as fastest index it would need gathers.
template <class T>
using Cells = Kokkos::View<T****, Kokkos::LayoutRight, Kokkos::DefaultExecutionSpace::memory_space,
                           Kokkos::MemoryTraits<Kokkos::Unmanaged>>;

template <class T>
struct Model {
  T per_cell;  ///< 1 / mesh width
  T diffusivity;
  T time_step;

  /// @pre width > 0: of a cell
  static Model with_cells_of(double width) {
    // Stable by experiment for the fastest waves of this start; diffusion would allow three times as much.
    return {static_cast<T>(1 / width), static_cast<T>(0.4 * width), static_cast<T>(0.1 * width)};
  }
};

/// Derivatives of one quantity at one cell; `x`, `y`, `z` are the strides in memory from a cell to the next.
template <class T>
struct At {
  const T* f;
  Index y, z;
  T per_cell;
  static constexpr Index x = 1;

  KOKKOS_FORCEINLINE_FUNCTION T first(Index s) const {
    return per_cell *
           (T(45. / 60) * (f[s] - f[-s]) - T(9. / 60) * (f[2 * s] - f[-2 * s]) + T(1. / 60) * (f[3 * s] - f[-3 * s]));
  }
  KOKKOS_FORCEINLINE_FUNCTION T second(Index s) const {
    return per_cell * per_cell *
           (T(-490. / 180) * f[0] + T(270. / 180) * (f[s] + f[-s]) - T(27. / 180) * (f[2 * s] + f[-2 * s]) +
            T(2. / 180) * (f[3 * s] + f[-3 * s]));
  }
  /// ∂²/∂s∂t from the two diagonals.
  KOKKOS_FORCEINLINE_FUNCTION T mixed(Index s, Index t) const {
    const Index p = s + t, m = s - t;
    return per_cell * per_cell *
           (T(270. / 720) * ((f[p] + f[-p]) - (f[m] + f[-m])) -
            T(27. / 720) * ((f[2 * p] + f[-2 * p]) - (f[2 * m] + f[-2 * m])) +
            T(2. / 720) * ((f[3 * p] + f[-3 * p]) - (f[3 * m] + f[-3 * m])));
  }
  KOKKOS_FORCEINLINE_FUNCTION T laplacian() const { return second(x) + second(y) + second(z); }
};

/// One substep for a box of cells: next = u + β change, where change = α change + Δt ∂u/∂t. The Views have the same
/// shape. Interior and border use the same cell(), so the bits do not depend on the split.
template <class T>
struct Substep {
  Cells<T> u, change, next;
  Kokkos::Array<Index, 3> first, extent;  ///< of the box, ghosts counted: z, y, x
  Model<T> model;
  T alpha, beta;
  static constexpr Index strip_rows = 8;  ///< whole planes took a quarter to a third longer (192³ on two ranks)

  /// A row, on hosts.
  KOKKOS_FUNCTION void operator()(Index row) const {
    // The rows of a strip, plane by plane: seven planes of a strip stay in the second-level cache.
    const Index strip = row / (strip_rows * extent[0]), y = strip * strip_rows, in_strip = row - y * extent[0];
    const Index rows = extent[1] - y < strip_rows ? extent[1] - y : strip_rows;
    const Index begin = cell_index(in_strip / rows, y + in_strip % rows, 0), end = begin + extent[2];
    // The Views do not overlap.
#pragma GCC ivdep
    for (Index at = begin; at < end; ++at) cell(at);
  }
  /// A cell, on devices.
  KOKKOS_FUNCTION void operator()(Index x, Index y, Index z) const { cell(cell_index(z, y, x)); }

  KOKKOS_FORCEINLINE_FUNCTION Index cell_index(Index z, Index y, Index x) const {
    const auto stride = [&](int axis) { return static_cast<Index>(u.stride(axis)); };
    return (first[0] + z) * stride(1) + (first[1] + y) * stride(2) + first[2] + x;
  }

  KOKKOS_FORCEINLINE_FUNCTION void cell(Index at) const {
    const Index quantity = static_cast<Index>(u.stride(0));
    const Index y = static_cast<Index>(u.stride(2)), z = static_cast<Index>(u.stride(1));
    constexpr Index x = 1;
    const T* cells = u.data() + at;
    const auto of = [&](int q) { return At<T>{cells + q * quantity, y, z, model.per_cell}; };
    const At<T> rho = of(density), p = of(pressure);
    const At<T> ux = of(velocity), uy = of(velocity + 1), uz = of(velocity + 2);
    const At<T> ax = of(potential), ay = of(potential + 1), az = of(potential + 2);
    const T vx = *ux.f, vy = *uy.f, vz = *uz.f;

    const T bx = az.first(y) - ay.first(z), by = ax.first(z) - az.first(x), bz = ay.first(x) - ax.first(y);
    const T jx = ay.mixed(x, y) + az.mixed(x, z) - ax.second(y) - ax.second(z);
    const T jy = ax.mixed(x, y) + az.mixed(y, z) - ay.second(x) - ay.second(z);
    const T jz = ax.mixed(x, z) + ay.mixed(y, z) - az.second(x) - az.second(y);
    const T kappa = model.diffusivity, volume = T(1) / *rho.f;
    advance(at + (potential + 0) * quantity, vy * bz - vz * by - kappa * jx);
    advance(at + (potential + 1) * quantity, vz * bx - vx * bz - kappa * jy);
    advance(at + (potential + 2) * quantity, vx * by - vy * bx - kappa * jz);

    const T px = p.first(x), py = p.first(y), pz = p.first(z);
    const T xx = ux.first(x), yy = uy.first(y), zz = uz.first(z), divergence = xx + yy + zz;
    advance(at + (velocity + 0) * quantity, volume * (jy * bz - jz * by - px) + kappa * ux.laplacian() -
                                                (vx * xx + vy * ux.first(y) + vz * ux.first(z)));
    advance(at + (velocity + 1) * quantity, volume * (jz * bx - jx * bz - py) + kappa * uy.laplacian() -
                                                (vx * uy.first(x) + vy * yy + vz * uy.first(z)));
    advance(at + (velocity + 2) * quantity, volume * (jx * by - jy * bx - pz) + kappa * uz.laplacian() -
                                                (vx * uz.first(x) + vy * uz.first(y) + vz * zz));
    constexpr T gamma = T(5. / 3);
    advance(at + pressure * quantity,
            kappa * p.laplacian() - gamma * *p.f * divergence - (vx * px + vy * py + vz * pz));
    advance(at + density * quantity, kappa * rho.laplacian() - *rho.f * divergence -
                                         (vx * rho.first(x) + vy * rho.first(y) + vz * rho.first(z)));
  }

  KOKKOS_FORCEINLINE_FUNCTION void advance(Index at, T rate) const {
    const T d = alpha * change.data()[at] + model.time_step * rate;
    change.data()[at] = d;
    next.data()[at] = u.data()[at] + beta * d;
  }
};

/// Submits a substep; does nothing for an empty box.
template <class T, class Exec>
void run(const Exec& exec, const Substep<T>& substep) {
  const auto [z, y, x] = substep.extent;
  if (z == 0 || y == 0 || x == 0) return;
  constexpr const char* label = "stencil: substep";
  if constexpr (std::is_same_v<typename Exec::memory_space, Kokkos::HostSpace>) {
    Kokkos::parallel_for(label, Kokkos::RangePolicy<Exec, Kokkos::IndexType<Index>>(exec, 0, z * y), substep);
  } else {
    using Cube =
        Kokkos::Rank<3, Kokkos::Iterate::Left, Kokkos::Iterate::Left>;  // neighbouring threads, neighbours in x
    Kokkos::parallel_for(label, Kokkos::MDRangePolicy<Exec, Cube, Kokkos::IndexType<Index>>(exec, {0, 0, 0}, {x, y, z}),
                         substep);
  }
}

/// The start values at a position. Each is a function of few terms, with equal bits on every rank.
template <class T>
KOKKOS_FUNCTION Kokkos::Array<T, quantities> start_at(double x, double y, double z) {
  constexpr double gamma = 5. / 3;
  return {static_cast<T>(gamma * gamma),
          static_cast<T>(-Kokkos::sin(y) * (1 + 0.2 * Kokkos::sin(z))),
          static_cast<T>(Kokkos::sin(x) * (1 + 0.2 * Kokkos::sin(z))),
          static_cast<T>(0.2 * Kokkos::sin(x + y)),
          static_cast<T>(gamma),
          T(0),
          T(0),
          static_cast<T>(Kokkos::cos(y) + 0.5 * Kokkos::cos(2 * x))};
}

}  // namespace stencil

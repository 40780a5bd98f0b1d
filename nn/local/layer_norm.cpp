#include <aloni/nn/local/layer_norm.hpp>

#include <aloni/nn/local/detail/check_views.hpp>
#include <aloni/nn/local/detail/execution.hpp>
#include <aloni/nn/local/detail/normalisation.hpp>

#include <string>

namespace aloni::nn::local {

namespace detail {

/// The channels of one cell that this rank has. m: the mean. inverse: 1 / deviation.
struct Cell {
  Index channels = 0, n = 0, d = 0, h = 0, w = 0;

  template <class In>
  KOKKOS_FUNCTION double sum(const In& x) const {
    double sum = 0;
    for (Index c = 0; c < channels; ++c) sum += static_cast<double>(x(n, d, h, w, c));
    return sum;
  }
  template <class In>
  KOKKOS_FUNCTION double squares(const In& x, double m) const {
    double sum = 0;
    for (Index c = 0; c < channels; ++c) {
      const double distance = static_cast<double>(x(n, d, h, w, c)) - m;
      sum += distance * distance;
    }
    return sum;
  }
  template <class In, class Parameters, class Out>
  KOKKOS_FUNCTION void normalise(const In& x, double m, double inverse, const Parameters& gamma, const Parameters& beta,
                                 const Out& y) const {
    using T = typename Out::value_type;
    for (Index c = 0; c < channels; ++c) {
      const double normal = (static_cast<double>(x(n, d, h, w, c)) - m) * inverse;
      y(n, d, h, w, c) = static_cast<T>(normal * static_cast<double>(gamma(c)) + static_cast<double>(beta(c)));
    }
  }
  /// Adds g and g·x̂ to the sums, with g = gamma·dy.
  template <class In, class Parameters>
  KOKKOS_FUNCTION void add_gradients(const In& x, const In& dy, double m, double inverse, const Parameters& gamma,
                                     double& first, double& second) const {
    for (Index c = 0; c < channels; ++c) {
      const double g = static_cast<double>(gamma(c)) * static_cast<double>(dy(n, d, h, w, c));
      first += g;
      second += g * ((static_cast<double>(x(n, d, h, w, c)) - m) * inverse);
    }
  }
  /// `first`, `second`: the means of g and g·x̂ over all channels of the cell.
  template <class In, class Parameters, class Out>
  KOKKOS_FUNCTION void gradient(const In& x, const In& dy, double m, double inverse, const Parameters& gamma,
                                double first, double second, const Out& dx) const {
    using T = typename Out::value_type;
    for (Index c = 0; c < channels; ++c) {
      const double g = static_cast<double>(gamma(c)) * static_cast<double>(dy(n, d, h, w, c));
      const double normal = (static_cast<double>(x(n, d, h, w, c)) - m) * inverse;
      dx(n, d, h, w, c) = static_cast<T>(inverse * (g - (first + normal * second)));
    }
  }
};

template <class T, class Exec>
struct NormaliseCell {
  Rows rows;
  double epsilon;
  Tensor<const T, Exec> x;
  Array<const parameter_type_t<T>, Exec> gamma, beta;
  Array<double, Exec> mean, inv_std;
  Tensor<T, Exec> y;
  KOKKOS_FUNCTION void cell(Index i, const Cell& cell) const {
    const double channels = static_cast<double>(cell.channels), m = cell.sum(x) / channels;
    const double inverse = 1.0 / Kokkos::sqrt(cell.squares(x, m) / channels + epsilon);
    mean(i) = m;
    inv_std(i) = inverse;
    cell.normalise(x, m, inverse, gamma, beta, y);
  }
};

template <class T, class Exec>
struct CellGradient {
  Rows rows;
  Tensor<const T, Exec> x, dy;
  Array<const parameter_type_t<T>, Exec> gamma;
  Array<const double, Exec> mean, inv_std;
  Tensor<T, Exec> dx;
  KOKKOS_FUNCTION void cell(Index i, const Cell& cell) const {
    const double channels = static_cast<double>(cell.channels), m = mean(i), inverse = inv_std(i);
    double first = 0, second = 0;
    cell.add_gradients(x, dy, m, inverse, gamma, first, second);
    cell.gradient(x, dy, m, inverse, gamma, first / channels, second / channels, dx);
  }
};

// Cells whose channels are split over ranks: each sum is over the channels of this tensor, and becomes one over all.

template <class T, class Exec>
struct CellSum {
  Rows rows;
  Tensor<const T, Exec> x;
  Array<double, Exec> sums;
  KOKKOS_FUNCTION void cell(Index i, const Cell& cell) const { sums(i) = cell.sum(x); }
};

template <class T, class Exec>
struct CellSquares {
  Rows rows;
  double channels;
  Tensor<const T, Exec> x;
  Array<const double, Exec> sums;
  Array<double, Exec> mean, squares;
  KOKKOS_FUNCTION void cell(Index i, const Cell& cell) const {
    mean(i) = sums(i) / channels;
    squares(i) = cell.squares(x, mean(i));
  }
};

template <class T, class Exec>
struct NormalisePartOfCell {
  Rows rows;
  double channels, epsilon;
  Tensor<const T, Exec> x;
  Array<const parameter_type_t<T>, Exec> gamma, beta;
  Array<const double, Exec> mean, squares;
  Array<double, Exec> inv_std;
  Tensor<T, Exec> y;
  KOKKOS_FUNCTION void cell(Index i, const Cell& cell) const {
    inv_std(i) = 1.0 / Kokkos::sqrt(squares(i) / channels + epsilon);
    cell.normalise(x, mean(i), inv_std(i), gamma, beta, y);
  }
};

template <class T, class Exec>
struct CellGradientSums {
  Rows rows;
  Tensor<const T, Exec> x, dy;
  Array<const parameter_type_t<T>, Exec> gamma;
  Array<const double, Exec> mean, inv_std;
  Array<double, Exec> sums;
  KOKKOS_FUNCTION void cell(Index i, const Cell& cell) const {
    double first = 0, second = 0;
    cell.add_gradients(x, dy, mean(i), inv_std(i), gamma, first, second);
    sums(i) = first;
    sums(rows.rows() * rows.width + i) = second;
  }
};

template <class T, class Exec>
struct PartOfCellGradient {
  Rows rows;
  double channels;
  Tensor<const T, Exec> x, dy;
  Array<const parameter_type_t<T>, Exec> gamma;
  Array<const double, Exec> mean, inv_std, sums;
  Tensor<T, Exec> dx;
  KOKKOS_FUNCTION void cell(Index i, const Cell& cell) const {
    const double first = sums(i) / channels, second = sums(rows.rows() * rows.width + i) / channels;
    cell.gradient(x, dy, mean(i), inv_std(i), gamma, first, second, dx);
  }
};

/// One index is a row on a host, a cell on a device.
template <class Exec, class Kernel>
struct EachCell {
  Kernel kernel;
  KOKKOS_FUNCTION void operator()(const Index i) const {
    const Index width = kernel.rows.width;
    Cell cell{.channels = kernel.rows.channels};
    if constexpr (runs_on_host<Exec>) {
      kernel.rows.row(i, cell.n, cell.d, cell.h);
      for (cell.w = 0; cell.w < width; ++cell.w) kernel.cell(i * width + cell.w, cell);
    } else {
      kernel.rows.row(i / width, cell.n, cell.d, cell.h);
      cell.w = i % width;
      kernel.cell(i, cell);
    }
  }
};

template <class Exec, class Kernel>
void for_each_cell(const Exec& exec, const char* label, const Kernel& kernel) {
  const Index rows = kernel.rows.rows();
  if (rows * kernel.rows.width == 0) return;  // a cell without channels has sums, too
  Kokkos::parallel_for(label, Range<Exec>(exec, 0, runs_on_host<Exec> ? rows : rows * kernel.rows.width),
                       EachCell<Exec, Kernel>{kernel});
}

}  // namespace detail

template <class T, class Exec>
LocalLayerNorm<T, Exec>::LocalLayerNorm(const Exec& exec, const std::array<Index, 5>& extents, double epsilon)
    : extents_(extents), epsilon_(epsilon) {
  const Index rows = extents[0] * extents[1] * extents[2], cells = rows * extents[3], channels = extents[4];
  const auto doubles = [&](const std::string& label, Index size) {
    return Doubles(Kokkos::view_alloc(exec, Kokkos::WithoutInitializing, label), static_cast<std::size_t>(size));
  };
  partial_ = doubles("aloni::nn::layer_norm_partial_sums", detail::shares_of(1, rows).total() * 2 * channels);
  sums_ = doubles("aloni::nn::layer_norm_sums", 2 * channels);
  mean_ = doubles("aloni::nn::layer_norm_mean", cells);
  inv_std_ = doubles("aloni::nn::layer_norm_inv_std", cells);
}

template <class T, class Exec>
void LocalLayerNorm<T, Exec>::forward(const Exec& exec, InTensor<T, Exec> x, InArray<parameter_type_t<T>, Exec> gamma,
                                      InArray<parameter_type_t<T>, Exec> beta, OutTensor<T, Exec> y) {
  constexpr auto operation = "aloni::nn::local::LocalLayerNorm::forward";
  detail::check_extents(operation, "x", x, extents_);
  detail::check_extent(operation, "gamma", gamma, extents_[4]);
  detail::check_extent(operation, "beta", beta, extents_[4]);
  detail::check_extents(operation, "y", y, extents_);
  detail::for_each_cell(
      exec, "aloni::nn::layer_norm_forward",
      detail::NormaliseCell<T, Exec>{detail::rows_of(y), epsilon_, x, gamma, beta, mean_, inv_std_, y});
}

template <class T, class Exec>
void LocalLayerNorm<T, Exec>::backward(const Exec& exec, InTensor<T, Exec> x, InTensor<T, Exec> dy,
                                       InArray<parameter_type_t<T>, Exec> gamma, OutTensor<T, Exec> dx) const {
  constexpr auto operation = "aloni::nn::local::LocalLayerNorm::backward";
  detail::check_extents(operation, "x", x, extents_);
  detail::check_extents(operation, "dy", dy, extents_);
  detail::check_extent(operation, "gamma", gamma, extents_[4]);
  detail::check_extents(operation, "dx", dx, extents_);
  detail::for_each_cell(exec, "aloni::nn::layer_norm_backward",
                        detail::CellGradient<T, Exec>{detail::rows_of(dx), x, dy, gamma, mean_, inv_std_, dx});
}

template <class T, class Exec>
void LocalLayerNorm<T, Exec>::parameter_gradients(const Exec& exec, InTensor<T, Exec> x, InTensor<T, Exec> dy,
                                                  OutArray<parameter_type_t<T>, Exec> dgamma,
                                                  OutArray<parameter_type_t<T>, Exec> dbeta) {
  constexpr auto operation = "aloni::nn::local::LocalLayerNorm::parameter_gradients";
  detail::check_extents(operation, "x", x, extents_);
  detail::check_extents(operation, "dy", dy, extents_);
  detail::check_extent(operation, "dgamma", dgamma, extents_[4]);
  detail::check_extent(operation, "dbeta", dbeta, extents_[4]);
  const detail::Rows rows = detail::rows_of(x);
  detail::reduce_channels<T, Exec, true>(exec, "aloni::nn::layer_norm_gradients", rows,
                                         detail::shares_of(1, rows.rows()), detail::PerCell{}, x, dy, mean_, inv_std_,
                                         partial_, sums_);
  Kokkos::parallel_for("aloni::nn::layer_norm_parameter_gradients", detail::Range<Exec>(exec, 0, rows.channels),
                       detail::ParameterGradients<parameter_type_t<T>, Exec>{1, rows.channels, sums_, dgamma, dbeta});
}

// --- channels split over ranks ---

template <class T, class Exec>
void LocalLayerNorm<T, Exec>::sums(const Exec& exec, InTensor<T, Exec> x, OutArray<double, Exec> sums) const {
  constexpr auto operation = "aloni::nn::local::LocalLayerNorm::sums";
  detail::check_extents(operation, "x", x, extents_);
  detail::check_extent(operation, "sums", sums, cells());
  detail::for_each_cell(exec, "aloni::nn::layer_norm_cell_sums", detail::CellSum<T, Exec>{detail::rows_of(x), x, sums});
}

template <class T, class Exec>
void LocalLayerNorm<T, Exec>::squares(const Exec& exec, Index channels, InTensor<T, Exec> x, InArray<double, Exec> sums,
                                      OutArray<double, Exec> squares) {
  constexpr auto operation = "aloni::nn::local::LocalLayerNorm::squares";
  detail::check(channels > 0, operation, "channels", std::to_string(channels), "at least one channel per cell");
  detail::check_extents(operation, "x", x, extents_);
  detail::check_extent(operation, "sums", sums, cells());
  detail::check_extent(operation, "squares", squares, cells());
  detail::for_each_cell(
      exec, "aloni::nn::layer_norm_cell_squares",
      detail::CellSquares<T, Exec>{detail::rows_of(x), static_cast<double>(channels), x, sums, mean_, squares});
}

template <class T, class Exec>
void LocalLayerNorm<T, Exec>::forward(const Exec& exec, Index channels, InTensor<T, Exec> x,
                                      InArray<parameter_type_t<T>, Exec> gamma, InArray<parameter_type_t<T>, Exec> beta,
                                      InArray<double, Exec> squares, OutTensor<T, Exec> y) {
  constexpr auto operation = "aloni::nn::local::LocalLayerNorm::forward";
  detail::check(channels > 0, operation, "channels", std::to_string(channels), "at least one channel per cell");
  detail::check_extents(operation, "x", x, extents_);
  detail::check_extent(operation, "gamma", gamma, extents_[4]);
  detail::check_extent(operation, "beta", beta, extents_[4]);
  detail::check_extent(operation, "squares", squares, cells());
  detail::check_extents(operation, "y", y, extents_);
  detail::for_each_cell(exec, "aloni::nn::layer_norm_forward",
                        detail::NormalisePartOfCell<T, Exec>{detail::rows_of(y), static_cast<double>(channels),
                                                             epsilon_, x, gamma, beta, mean_, squares, inv_std_, y});
}

template <class T, class Exec>
void LocalLayerNorm<T, Exec>::gradient_sums(const Exec& exec, InTensor<T, Exec> x, InTensor<T, Exec> dy,
                                            InArray<parameter_type_t<T>, Exec> gamma,
                                            OutArray<double, Exec> sums) const {
  constexpr auto operation = "aloni::nn::local::LocalLayerNorm::gradient_sums";
  detail::check_extents(operation, "x", x, extents_);
  detail::check_extents(operation, "dy", dy, extents_);
  detail::check_extent(operation, "gamma", gamma, extents_[4]);
  detail::check_extent(operation, "sums", sums, 2 * cells());
  detail::for_each_cell(exec, "aloni::nn::layer_norm_gradient_sums",
                        detail::CellGradientSums<T, Exec>{detail::rows_of(x), x, dy, gamma, mean_, inv_std_, sums});
}

template <class T, class Exec>
void LocalLayerNorm<T, Exec>::backward(const Exec& exec, Index channels, InTensor<T, Exec> x, InTensor<T, Exec> dy,
                                       InArray<parameter_type_t<T>, Exec> gamma, InArray<double, Exec> sums,
                                       OutTensor<T, Exec> dx) const {
  constexpr auto operation = "aloni::nn::local::LocalLayerNorm::backward";
  detail::check(channels > 0, operation, "channels", std::to_string(channels), "at least one channel per cell");
  detail::check_extents(operation, "x", x, extents_);
  detail::check_extents(operation, "dy", dy, extents_);
  detail::check_extent(operation, "gamma", gamma, extents_[4]);
  detail::check_extent(operation, "sums", sums, 2 * cells());
  detail::check_extents(operation, "dx", dx, extents_);
  detail::for_each_cell(exec, "aloni::nn::layer_norm_backward",
                        detail::PartOfCellGradient<T, Exec>{detail::rows_of(dx), static_cast<double>(channels), x, dy,
                                                            gamma, mean_, inv_std_, sums, dx});
}

#define INSTANTIATE(T, Exec) template class LocalLayerNorm<T, Exec>;
ALONI_INSTANTIATE_LAYERS(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::nn::local

#include <aloni/nn/local/dense.hpp>

#include <aloni/nn/local/detail/check_views.hpp>
#include <aloni/nn/local/detail/elementwise.hpp>
#include <aloni/nn/local/gemm.hpp>

namespace aloni::nn::local {

namespace detail {

/// Features of samples as a matrix. Throws unless the tensor is (N,1,1,1,C) with channel stride 1.
template <class View>
auto feature_matrix(const char* operation, const char* argument, const View& v) {
  check(v.extent(1) == 1 && v.extent(2) == 1 && v.extent(3) == 1, operation, argument, extents_text(v),
        "features without spatial extent, Nx1x1x1xC");
  check(has_contiguous_channels(v), operation, argument, "channel stride " + std::to_string(v.stride(4)),
        "channel stride 1");
  const Index rows = static_cast<Index>(v.extent(0)), columns = static_cast<Index>(v.extent(4));
  const Index stride = rows > 1 ? static_cast<Index>(v.stride(0)) : columns;
  return MatrixRef<typename View::value_type>{v.data(), rows, columns, stride};
}

template <class T>
struct BroadcastRow {
  const T* row;
  MatrixRef<T> to;
  KOKKOS_FUNCTION void operator()(const Index i) const {
    for (Index j = 0; j < to.columns; ++j) to.data[i * to.stride + j] = row[j];
  }
};

template <class T>
struct ColumnSum {
  MatrixRef<const T> from;
  T* sum;
  KOKKOS_FUNCTION void operator()(const Index j) const {
    double s = 0;
    for (Index i = 0; i < from.rows; ++i) s += static_cast<double>(from.data[i * from.stride + j]);
    sum[j] = static_cast<T>(s);
  }
};

}  // namespace detail

template <class T, class Exec>
void dense_forward(const Exec& exec, InTensor<T, Exec> x, InArray<T, Exec> weights, InArray<T, Exec> bias,
                   Tensor<T, Exec> y) {
  constexpr auto operation = "aloni::nn::local::dense_forward";
  const auto in = detail::feature_matrix(operation, "x", x);
  const auto out = detail::feature_matrix(operation, "y", y);
  detail::check_extent(operation, "x (samples)", x, out.rows);
  detail::check_extent(operation, "weights", weights, out.columns * in.columns);
  detail::check_extent_or_none(operation, "bias", bias, out.columns);
  const bool has_bias = bias.extent(0) > 0;
  if (has_bias) {
    Kokkos::parallel_for("aloni::nn::dense_bias", detail::Range<Exec>(exec, 0, out.rows),
                         detail::BroadcastRow<T>{bias.data(), out});
  }
  gemm<T>(exec, Transpose::no, Transpose::yes, T(1), in, {weights.data(), out.columns, in.columns, in.columns},
          has_bias ? T(1) : T(0), out);
}

template <class T, class Exec>
void dense_backward_data(const Exec& exec, InTensor<T, Exec> dy, InArray<T, Exec> weights, Tensor<T, Exec> dx) {
  constexpr auto operation = "aloni::nn::local::dense_backward_data";
  const auto in = detail::feature_matrix(operation, "dy", dy);
  const auto out = detail::feature_matrix(operation, "dx", dx);
  detail::check_extent(operation, "dy (samples)", dy, out.rows);
  detail::check_extent(operation, "weights", weights, out.columns * in.columns);
  gemm<T>(exec, Transpose::no, Transpose::no, T(1), in, {weights.data(), in.columns, out.columns, out.columns}, T(0),
          out);
}

template <class T, class Exec>
void dense_backward_parameters(const Exec& exec, InTensor<T, Exec> x, InTensor<T, Exec> dy, Array<T, Exec> dweights,
                               OutArray<T, Exec> dbias) {
  constexpr auto operation = "aloni::nn::local::dense_backward_parameters";
  const auto in = detail::feature_matrix(operation, "x", x);
  const auto out = detail::feature_matrix(operation, "dy", dy);
  detail::check_extent(operation, "x (samples)", x, out.rows);
  detail::check_extent(operation, "dweights", dweights, out.columns * in.columns);
  detail::check_extent_or_none(operation, "dbias", dbias, out.columns);
  gemm<T>(exec, Transpose::yes, Transpose::no, T(1), out, in, T(0),
          MatrixRef<T>{dweights.data(), out.columns, in.columns, in.columns});
  if (dbias.extent(0) > 0) {
    Kokkos::parallel_for("aloni::nn::dense_backward_bias", detail::Range<Exec>(exec, 0, out.columns),
                         detail::ColumnSum<T>{out, dbias.data()});
  }
}

#define INSTANTIATE(T, Exec)                                                                                          \
  template void dense_forward<T, Exec>(const Exec&, InTensor<T, Exec>, InArray<T, Exec>, InArray<T, Exec>,            \
                                       Tensor<T, Exec>);                                                              \
  template void dense_backward_data<T, Exec>(const Exec&, InTensor<T, Exec>, InArray<T, Exec>, Tensor<T, Exec>);      \
  template void dense_backward_parameters<T, Exec>(const Exec&, InTensor<T, Exec>, InTensor<T, Exec>, Array<T, Exec>, \
                                                   OutArray<T, Exec>);
ALONI_INSTANTIATE_PARAMETERS(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::nn::local

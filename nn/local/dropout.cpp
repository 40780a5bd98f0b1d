#include <aloni/nn/local/dropout.hpp>

#include <aloni/core/random.hpp>
#include <aloni/nn/local/detail/check_views.hpp>
#include <aloni/nn/local/detail/execution.hpp>

namespace aloni::nn::local {

namespace detail {

template <class T, class Exec>
struct Dropout {
  Rows rows;
  std::uint64_t seed, stream;
  float rate;
  parameter_type_t<T> scale;
  Index first, sample, depth, height, width;  ///< global index of the first element; distances in each dimension
  Tensor<const T, Exec> x;
  Tensor<T, Exec> y;

  KOKKOS_FUNCTION void element(Index n, Index d, Index h, Index w, Index c) const {
    const Index global = first + n * sample + d * depth + h * height + w * width + c;
    const bool dropped = random::uniform<float>(seed, stream, static_cast<std::uint64_t>(global)) < rate;
    y(n, d, h, w, c) = dropped ? T(0) : static_cast<T>(scale * static_cast<parameter_type_t<T>>(x(n, d, h, w, c)));
  }
};

}  // namespace detail

template <class T, class Exec>
void dropout(const Exec& exec, const DropoutMask& mask, InTensor<T, Exec> x, Tensor<T, Exec> y) {
  constexpr auto operation = "aloni::nn::local::dropout";
  detail::check_same_extents(operation, "x", x, y);
  if (!(mask.rate >= 0 && mask.rate < 1))
    throw InvalidArgument(operation, "rate", std::to_string(mask.rate), "at least 0 and less than 1");
  const auto& e = mask.extents;
  const Index width = e[4], height = e[3] * width, depth = e[2] * height, sample = e[1] * depth;
  const auto& f = mask.first;
  detail::for_each_element(
      exec, "aloni::nn::dropout",
      detail::Dropout<T, Exec>{detail::rows_of(y), mask.seed, mask.stream, static_cast<float>(mask.rate),
                               static_cast<parameter_type_t<T>>(1 / (1 - mask.rate)),
                               f[0] * sample + f[1] * depth + f[2] * height + f[3] * width + f[4], sample, depth,
                               height, width, x, y});
}

#define INSTANTIATE(T, Exec) \
  template void dropout<T, Exec>(const Exec&, const DropoutMask&, InTensor<T, Exec>, Tensor<T, Exec>);
ALONI_INSTANTIATE_LAYERS(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::nn::local

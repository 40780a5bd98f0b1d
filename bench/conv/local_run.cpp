#include "conv/local_run.hpp"

#include "conv/check.hpp"

#include <type_traits>

namespace aloni::bench {

using namespace nn::local;

template <class T>
Field<T>::Field(const Exec& exec, std::array<Index, 5> e, unsigned seed)
    : extents(e),
      data(Kokkos::view_alloc(exec, "aloni::bench: tensor"),
           static_cast<std::size_t>(e[0] * e[1] * e[2] * e[3] * e[4])),
      host(data.size()) {
  const auto values = Kokkos::create_mirror(data);
  for (std::size_t i = 0; i < host.size(); ++i) {
    host[i] = static_cast<float>(small_integer(seed, static_cast<Index>(i)));
    values(i) = static_cast<T>(host[i]);
  }
  Kokkos::deep_copy(exec, data, values);
  exec.fence("aloni::bench: data is in place");
}

template <class T>
Tensor<T, Exec> Field<T>::view() const {
  return dense_tensor<T, Exec>(data.data(), extents[0], extents[1], extents[2], extents[3], extents[4]);
}

template <class T>
void Field<T>::bring_down(const Exec& exec) {
  const auto values = Kokkos::create_mirror(data);
  Kokkos::deep_copy(exec, values, data);
  exec.fence("aloni::bench: before checking");
  for (std::size_t i = 0; i < host.size(); ++i) host[i] = static_cast<float>(values(i));
}

template <class T>
LocalRun<T>::LocalRun(const ConvolutionProblem& problem, ConvolutionPass pass, ConvolutionBackend backend,
                      Filters filters)
    : pass_(pass),
      x_(queue_.space(), input_extents(problem), 1),
      y_(queue_.space(), output_extents(problem), 2),
      w_(queue_.space(), filter_extents(problem), 3),
      convolution_(make_local_convolution<T>(backend, problem, queue_.space(),
                                             {.forward = pass == ConvolutionPass::forward,
                                              .backward_data = pass == ConvolutionPass::backward_data,
                                              .backward_filter = pass == ConvolutionPass::backward_filter})) {
  if (filters == Filters::stay) convolution_->set_filter_version(1);
  run();
  x_.bring_down(queue_.space());
  y_.bring_down(queue_.space());
  w_.bring_down(queue_.space());
  constexpr bool narrow = !std::is_same_v<T, float>;
  check(problem, pass, {x_.host.data(), x_.extents, narrow}, {y_.host.data(), y_.extents, narrow},
        {w_.host.data(), w_.extents}, convolution_->implementation(pass));
}

template <class T>
void LocalRun<T>::run() {
  const Exec& exec = queue_.space();
  switch (pass_) {
    case ConvolutionPass::forward:
      convolution_->forward(exec, x_.view(), w_.view(), {}, y_.view());
      break;
    case ConvolutionPass::backward_data:
      convolution_->backward_data(exec, y_.view(), w_.view(), x_.view());
      break;
    case ConvolutionPass::backward_filter:
      convolution_->backward_filter(exec, x_.view(), y_.view(), w_.view(), {});
      break;
  }
  queue_.fence("aloni::bench: end of repetition");
}

template struct Field<float>;
template class LocalRun<float>;
#if !defined(KOKKOS_ENABLE_CUDA) && !defined(KOKKOS_ENABLE_HIP) && !defined(KOKKOS_ENABLE_SYCL)
template struct Field<comm::bfloat16>;
template class LocalRun<comm::bfloat16>;
#endif

}  // namespace aloni::bench

#include "conv/local_run.hpp"

#include "conv/check.hpp"

namespace aloni::bench {

using namespace nn::local;

Field::Field(const Exec& exec, std::array<Index, 5> e, unsigned seed)
    : extents(e),
      data(Kokkos::view_alloc(exec, "aloni::bench: tensor"),
           static_cast<std::size_t>(e[0] * e[1] * e[2] * e[3] * e[4])),
      host(Kokkos::create_mirror_view(Kokkos::view_alloc(Kokkos::HostSpace{}), data)) {
  for (std::size_t i = 0; i < host.size(); ++i)
    host(i) = static_cast<float>(small_integer(seed, static_cast<Index>(i)));
  Kokkos::deep_copy(exec, data, host);
  exec.fence("aloni::bench: data is in place");
}

Tensor<float, Exec> Field::view() const {
  return dense_tensor<float, Exec>(data.data(), extents[0], extents[1], extents[2], extents[3], extents[4]);
}

void Field::bring_down(const Exec& exec) {
  Kokkos::deep_copy(exec, host, data);
  exec.fence("aloni::bench: before checking");
}

LocalRun::LocalRun(const ConvolutionProblem& problem, ConvolutionPass pass, ConvolutionBackend backend, Filters filters)
    : pass_(pass),
      x_(queue_.space(), input_extents(problem), 1),
      y_(queue_.space(), output_extents(problem), 2),
      w_(queue_.space(), filter_extents(problem), 3),
      convolution_(make_local_convolution<float>(backend, problem, queue_.space(),
                                                 {.forward = pass == ConvolutionPass::forward,
                                                  .backward_data = pass == ConvolutionPass::backward_data,
                                                  .backward_filter = pass == ConvolutionPass::backward_filter})) {
  if (filters == Filters::stay) convolution_->filters_are(1);
  run();
  for (Field* f : {&x_, &y_, &w_}) f->bring_down(queue_.space());
  auto host = [](const Field& f) { return HostTensor{f.host.data(), f.extents}; };
  check(problem, pass, host(x_), host(y_), host(w_), convolution_->implementation(pass));
}

void LocalRun::run() {
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

}  // namespace aloni::bench

// thread_cases: prints digests of the bits that an evaluation and training steps give, one line each. test_threads.py
// runs it with 1, 2 and 3 threads and compares the lines.
#include <aloni/core/comm/mpi.hpp>
#include <aloni/core/environment.hpp>
#include <aloni/core/error.hpp>
#include <aloni/core/random.hpp>
#include <aloni/nn/data/batch.hpp>
#include <aloni/nn/local/convolution.hpp>
#include <aloni/nn/network.hpp>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

namespace {

using namespace aloni;
using namespace aloni::nn;

NetworkDescription all_layers() {
  NetworkDescription net;
  net.spatial_rank = 2;
  net.input = views::make_extents(1, {19, 23}, 3);
  net.layers = {{"conv", Convolution{12, square_window(2, 5, 2, 2), true}, {"input"}},
                {"norm", BatchNorm{StatisticsScope::all, 0.1, 1e-5}, {"conv"}},
                {"relu1", Relu{}, {"norm"}},
                {"grouped", Convolution{12, square_window(2, 3, 1, 1), true, 3}, {"relu1"}},
                {"group_norm", GroupNorm{2}, {"grouped"}},
                {"depthwise", Convolution{12, square_window(2, 3, 1, 1), true, 12}, {"group_norm"}},
                {"layer_norm", LayerNorm{}, {"depthwise"}},
                {"pool", Pooling{PoolingKind::average, square_window(2, 3, 1, 1), false}, {"layer_norm"}},
                {"sum", Add{}, {"pool", "relu1"}},
                {"max", Pooling{PoolingKind::max, square_window(2, 2, 2, 0), false}, {"sum"}},
                {"up", Upsampling{UpsamplingMode::linear, square_extents(2, 2)}, {"max"}},
                {"gelu", Gelu{}, {"up"}},
                {"dropout", Dropout{0.25}, {"gelu"}},
                {"relu2", Relu{}, {"dropout"}},
                {"last", Convolution{10, square_window(2, 3, 1, 1), true}, {"relu2"}},
                {"mean", GlobalAveragePooling{}, {"last"}}};
  return net;
}

template <class View>
std::uint64_t digest(const View& view) {  // FNV-1a over all elements
  std::uint64_t h = 1469598103934665603u;
  const auto add = [&](auto value) {
    unsigned char bytes[sizeof value];
    std::memcpy(bytes, &value, sizeof value);
    for (const unsigned char byte : bytes) h = (h ^ byte) * 1099511628211u;
  };
  if constexpr (View::rank() == 1) {
    for (std::size_t i = 0; i < view.extent(0); ++i) add(view(i));
  } else {
    for (std::size_t n = 0; n < view.extent(0); ++n)
      for (std::size_t d = 0; d < view.extent(1); ++d)
        for (std::size_t y = 0; y < view.extent(2); ++y)
          for (std::size_t x = 0; x < view.extent(3); ++x)
            for (std::size_t c = 0; c < view.extent(4); ++c) add(view(n, d, y, x, c));
  }
  return h;
}

template <class T>
void print_digests(const char* type, local::ConvolutionBackend backend) {
  constexpr Index samples = 7;
  const auto comm = comm::from_mpi(MPI_COMM_SELF);
  const Queue<Kokkos::DefaultHostExecutionSpace> queue;
  const NetworkDescription net = all_layers();
  Parameters<T, Kokkos::DefaultHostExecutionSpace> parameters(queue, net, 1);
  NetworkOptions options;
  options.backend = backend;
  options.input_gradient = true;
  Network<T, Kokkos::DefaultHostExecutionSpace> network(
      comm, queue, net, Strategy::uniform(views::ProcessGrid::parse("1")), samples, parameters, options);
  LabelledImages images;
  images.image = net.input;
  for (Index i = 0; i < samples * net.input.size(); ++i)
    images.pixels.push_back(static_cast<std::uint8_t>(random::integer(4, 5, i)));
  for (Index i = 0; i < samples; ++i) images.labels.push_back(static_cast<std::uint8_t>(i % 10));
  std::vector<Index> order(samples);
  std::iota(order.begin(), order.end(), 0);
  const auto print = [&](const char* what, std::uint64_t value) {
    std::printf("%s %s %s %016llx\n", std::string(name(backend)).c_str(), type, what,
                static_cast<unsigned long long>(value));
  };
  fill_batch(queue, images, order, network);
  queue.fence("thread_cases");
  print("input", digest(network.input()));
  network.evaluate(queue);
  queue.fence("thread_cases");
  print("evaluation", digest(network.output()));
  network.forward(queue, Mode::training);
  queue.fence("thread_cases");
  print("training", digest(network.output()));
  for (int i = 0; i < 3; ++i) {
    network.train_step(queue);
    parameters.sgd(queue, {});
  }
  queue.fence("thread_cases");
  print("input_gradient", digest(network.input_gradient()));
  print("parameters", digest(parameters.values()));
}

}  // namespace

int main(int argc, char** argv) {
  using enum local::ConvolutionBackend;
  Environment environment(argc, argv);
  for (const auto backend : {automatic, reference, direct, onednn, kokkos_kernels}) {
    try {
      print_digests<float>("float", backend);
      print_digests<double>("double", backend);
    } catch (const Unsupported&) {  // this build or this type has no such backend
    }
  }
}

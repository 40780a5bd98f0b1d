// The local convolution kernels of every backend, beside a matrix product of about as many operations on the same cores.
//
//   conv/LAYER/forward|backward_data|backward_filter/BACKEND
//   gemm/LAYER      a square product with the flops of one pass of that layer: what the cores can do
//
// Each rank runs the whole layer on its own data, all at the same time; flops are those of all ranks. Before the clock starts, elements
// of each result at random places are compared with the definition on small integers, where all must agree to the bit.
#include "support/benchmark.hpp"

#include <aloni/core/queue.hpp>
#include <aloni/nn/local/convolution.hpp>
#include <aloni/nn/local/gemm.hpp>

#include <array>
#include <cmath>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

namespace aloni::bench {

namespace {

using namespace nn::local;
using Exec = Kokkos::DefaultExecutionSpace;
using T = float;

struct Layer {
  std::string name;
  ConvolutionProblem problem;
};

ConvolutionProblem plane(Index samples, Index channels, Index filters, Index size, Index kernel, Index padding,
                         Index groups = 1) {
  const Index output = size + 2 * padding - kernel + 1;
  return {.samples = samples,
          .channels = channels,
          .filters = filters,
          .groups = groups,
          .input = {1, size, size},
          .output = {1, output, output},
          .kernel = {1, kernel, kernel},
          .offset = {0, -padding, -padding}};
}

std::vector<Layer> layers() {
  return {
      {"lenet-conv1-n32", plane(32, 1, 6, 28, 5, 2)},
      {"lenet-conv2-n32", plane(32, 6, 16, 14, 5, 0)},
      {"lenet-conv1-n512", plane(512, 1, 6, 28, 5, 2)},
      {"lenet-conv2-n512", plane(512, 6, 16, 14, 5, 0)},
      {"image64-c3-f16", plane(8, 3, 16, 64, 3, 1)},
      {"image64-c16-f16", plane(8, 16, 16, 64, 3, 1)},
      {"image64-c32-f32", plane(4, 32, 32, 64, 3, 1)},
      {"image64-c64-f64", plane(2, 64, 64, 64, 3, 1)},
      {"image32-c128-f128", plane(2, 128, 128, 32, 3, 1)},
      {"depthwise128-c128", plane(1, 128, 128, 128, 3, 1, 128)},
      {"image64-c64-f64-g4", plane(2, 64, 64, 64, 3, 1, 4)},
      {"volume24-c16-f16",
       {.samples = 1,
        .channels = 16,
        .filters = 16,
        .input = {24, 24, 24},
        .output = {24, 24, 24},
        .kernel = {3, 3, 3},
        .offset = {-1, -1, -1}}},
  };
}

/// A dense tensor with small integers, and the same on the host.
struct Field {
  std::array<Index, 5> extents;
  Kokkos::View<T*, Exec::memory_space> data;
  Kokkos::View<T*, Exec::memory_space>::HostMirror host;

  Field(const Exec& exec, std::array<Index, 5> e, unsigned seed)
      : extents(e),
        data(Kokkos::view_alloc(exec, "aloni::bench: tensor"),
             static_cast<std::size_t>(e[0] * e[1] * e[2] * e[3] * e[4])),
        host(Kokkos::create_mirror_view(Kokkos::view_alloc(Kokkos::HostSpace{}), data)) {
    std::mt19937 random(seed);
    for (std::size_t i = 0; i < host.size(); ++i) host(i) = static_cast<T>(static_cast<int>(random() % 7) - 3);
    Kokkos::deep_copy(exec, data, host);
    exec.fence("aloni::bench: data is in place");
  }
  Tensor<T, Exec> view() const {
    return dense_tensor<T, Exec>(data.data(), extents[0], extents[1], extents[2], extents[3], extents[4]);
  }
  void bring_down(const Exec& exec) {
    Kokkos::deep_copy(exec, host, data);
    exec.fence("aloni::bench: before checking");
  }
  double at(Index n, const std::array<Index, 3>& s, Index c) const {
    return static_cast<double>(
        host((((n * extents[1] + s[0]) * extents[2] + s[1]) * extents[3] + s[2]) * extents[4] + c));
  }
};

/// One layer and pass with a backend.
struct State {
  Queue<Exec> queue;
  ConvolutionProblem p;
  ConvolutionPass pass;
  Field x, y, w;
  Kokkos::View<T*, Exec::memory_space> bias;  // zero, or the bias gradient
  std::unique_ptr<LocalConvolution<T>> convolution;

  State(const ConvolutionProblem& problem, ConvolutionPass which, ConvolutionBackend backend)
      : p(problem),
        pass(which),
        x(queue.space(), {p.samples, p.input[0], p.input[1], p.input[2], p.channels}, 1),
        y(queue.space(), {p.samples, p.output[0], p.output[1], p.output[2], p.filters}, 2),
        w(queue.space(), {p.filters, p.kernel[0], p.kernel[1], p.kernel[2], p.channels_per_group()}, 3),
        bias(Kokkos::view_alloc(queue.space(), "aloni::bench: bias"), static_cast<std::size_t>(p.filters)),
        convolution(make_local_convolution<T>(backend, p, queue.space(),
                                              {.forward = pass == ConvolutionPass::forward,
                                               .backward_data = pass == ConvolutionPass::backward_data,
                                               .backward_filter = pass == ConvolutionPass::backward_filter})) {
    run();
    check();
  }

  void run() {
    const Exec& exec = queue.space();
    switch (pass) {
      case ConvolutionPass::forward:
        convolution->forward(exec, x.view(), w.view(), bias, y.view());
        break;
      case ConvolutionPass::backward_data:
        convolution->backward_data(exec, y.view(), w.view(), x.view());
        break;
      case ConvolutionPass::backward_filter:
        convolution->backward_filter(exec, x.view(), y.view(), w.view(), bias);
        break;
    }
    queue.fence("aloni::bench: end of repetition");
  }

  /// f(output, kernel, input) for each pair of an output pixel and a kernel element that meets an input pixel.
  template <class F>
  static void for_each_index(const std::array<Index, 3>& extents, const F& f) {
    for (Index d = 0; d < extents[0]; ++d)
      for (Index h = 0; h < extents[1]; ++h)
        for (Index v = 0; v < extents[2]; ++v) f(std::array<Index, 3>{d, h, v});
  }
  bool input_of(const std::array<Index, 3>& o, const std::array<Index, 3>& k, std::array<Index, 3>& i) const {
    bool inside = true;
    for (int s = 0; s < 3; ++s) {
      i[s] = o[s] * p.stride[s] + k[s] * p.dilation[s] + p.offset[s];
      inside = inside && i[s] >= 0 && i[s] < p.input[s];
    }
    return inside;
  }

  void check() {
    for (Field* f : {&x, &y, &w}) f->bring_down(queue.space());
    std::mt19937 random(4);
    auto below = [&](Index n) { return static_cast<Index>(random() % static_cast<unsigned long>(n)); };
    auto any = [&](const std::array<Index, 3>& e) {
      return std::array<Index, 3>{below(e[0]), below(e[1]), below(e[2])};
    };
    for (int i = 0; i < 40; ++i) {
      double expected = 0, result = 0;
      const Index n = below(p.samples), c = below(p.channels), f = below(p.filters);
      const Index channels = p.channels_per_group(), filters = p.filters_per_group();
      const Index first_channel = f / filters * channels, first_filter = c / channels * filters;  // of their groups
      std::array<Index, 3> in{};
      if (pass == ConvolutionPass::forward) {
        const auto o = any(p.output);
        for_each_index(p.kernel, [&](const auto& k) {
          if (!input_of(o, k, in)) return;
          for (Index j = 0; j < channels; ++j) expected += x.at(n, in, first_channel + j) * w.at(f, k, j);
        });
        result = y.at(n, o, f);
      } else if (pass == ConvolutionPass::backward_data) {
        const auto target = any(p.input);
        for_each_index(p.kernel, [&](const auto& k) {
          std::array<Index, 3> o{};
          for (int s = 0; s < 3; ++s) {
            const Index scaled = target[s] - k[s] * p.dilation[s] - p.offset[s];
            if (scaled < 0 || scaled % p.stride[s] != 0 || scaled / p.stride[s] >= p.output[s]) return;
            o[s] = scaled / p.stride[s];
          }
          for (Index j = first_filter; j < first_filter + filters; ++j)
            expected += y.at(n, o, j) * w.at(j, k, c % channels);
        });
        result = x.at(n, target, c);
      } else {
        const auto k = any(p.kernel);
        for (Index m = 0; m < p.samples; ++m)
          for_each_index(p.output, [&](const auto& o) {
            if (input_of(o, k, in)) expected += x.at(m, in, first_channel + c % channels) * y.at(m, o, f);
          });
        result = w.at(f, k, c % channels);
      }
      if (result != expected) {
        throw std::runtime_error("bench_conv: " + convolution->implementation(pass) + " gives " +
                                 std::to_string(result) + " instead of " + std::to_string(expected) + " in " +
                                 std::string(name(pass)) + " of " + to_string(p));
      }
    }
  }
};

void add_convolution(const comm::Communicator& world, const Layer& layer, ConvolutionPass pass,
                     ConvolutionBackend backend) {
  if (unsupported_reason<T>(backend, layer.problem, pass)) return;
  const double all_flops = flops(layer.problem) * world.size();
  add_timed(world, "conv/" + layer.name + "/" + std::string(name(pass)) + "/" + std::string(name(backend)),
            [problem = layer.problem, pass, backend, all_flops]() -> Case {
              const auto state = std::make_shared<State>(problem, pass, backend);
              return {.run = [state] { state->run(); },
                      .flops = all_flops,
                      .counters = {{"workspace_bytes", static_cast<double>(state->convolution->workspace_bytes())}}};
            });
}

void add_gemm(const comm::Communicator& world, const Layer& layer) {
  const auto side = static_cast<Index>(std::cbrt(flops(layer.problem) / 2) / 8 + 1) * 8;
  const double all_flops =
      2.0 * static_cast<double>(side) * static_cast<double>(side) * static_cast<double>(side) * world.size();
  add_timed(world, "gemm/" + layer.name, [side, all_flops]() -> Case {
    struct Matrices {
      Queue<Exec> queue;
      Field a, b, c;
      explicit Matrices(Index n)
          : a(queue.space(), {1, 1, 1, n, n}, 1),
            b(queue.space(), {1, 1, 1, n, n}, 2),
            c(queue.space(), {1, 1, 1, n, n}, 3) {}
    };
    const auto m = std::make_shared<Matrices>(side);
    auto run = [m, side] {
      gemm<T>(m->queue.space(), Transpose::no, Transpose::no, 1, {m->a.data.data(), side, side, side},
              {m->b.data.data(), side, side, side}, 0, MatrixRef<T>{m->c.data.data(), side, side, side});
      m->queue.fence("aloni::bench: end of repetition");
    };
    run();
    m->c.bring_down(m->queue.space());
    for (Index i = 0; i < side; i += 7) {
      double expected = 0;
      for (Index k = 0; k < side; ++k) expected += m->a.at(0, {0, 0, i}, k) * m->b.at(0, {0, 0, k}, side - 1 - i);
      if (m->c.at(0, {0, 0, i}, side - 1 - i) != expected) throw std::runtime_error("bench_conv: wrong matrix product");
    }
    return {.run = run, .flops = all_flops};
  });
}

}  // namespace

void register_benchmarks(const comm::Communicator& world) {
  for (const Layer& layer : layers()) {
    add_gemm(world, layer);
    for (auto pass : {ConvolutionPass::forward, ConvolutionPass::backward_data, ConvolutionPass::backward_filter}) {
      for (auto backend : {ConvolutionBackend::automatic, ConvolutionBackend::direct, ConvolutionBackend::onednn,
                           ConvolutionBackend::kokkos_kernels}) {
        add_convolution(world, layer, pass, backend);
      }
    }
  }
}

}  // namespace aloni::bench

// Times the local convolution of every backend, and a matrix product with about as many operations on the same cores.
//
//   local_conv/LAYER/forward|backward_data|backward_filter/BACKEND
//   local_conv/LAYER/forward|backward_data|backward_filter/bfloat16      bfloat16 activations; hosts whose oneDNN has
//                                                                        kernels for them
//   limit/LAYER/forward|backward_data|backward_filter/cudnn
//                   the fastest plan of cuDNN, called directly; CUDA builds with cuDNN, where there are layers of
//                   ResNet-50 and of a mesh network too
//   training/STEP/forward|backward_data|backward_filter
//                   all convolutions that two ranks compute in one phase of a training step, one after another
//   gemm/LAYER      product of square matrices with the flops of one pass of the layer: the speed the cores can reach
//
// Each rank runs the whole layer on its own data, all ranks at once; flops are those of all ranks. Before the clock
// starts, random elements of each result are compared with the definition of convolution. The data are small integers,
// so the results must agree to the bit.
#include "conv/local_run.hpp"
#include "conv/step_convolutions.hpp"
#include "support/benchmark.hpp"

#ifdef ALONI_BENCH_CUDNN
#include "conv/cudnn_limit.hpp"
#include "conv/layers.hpp"
#endif

#include <aloni/core/queue.hpp>
#include <aloni/nn/local/convolution.hpp>
#include <aloni/nn/local/gemm.hpp>

#include <array>
#include <cmath>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace aloni::bench {

namespace {

using namespace nn::local;
using T = float;

struct LocalLayer {
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

std::vector<LocalLayer> local_layers() {
  return {
      {"lenet-conv1-n32", plane(32, 1, 6, 28, 5, 2)},
      {"lenet-conv2-n32", plane(32, 6, 16, 14, 5, 0)},
      {"lenet-conv1-n512", plane(512, 1, 6, 28, 5, 2)},
      {"lenet-conv2-n512", plane(512, 6, 16, 14, 5, 0)},
      {"image64-c3-f16", plane(8, 3, 16, 64, 3, 1)},
      {"image64-c16-f16", plane(8, 16, 16, 64, 3, 1)},
      {"image64-c32-f32", plane(4, 32, 32, 64, 3, 1)},
      {"image64-c64-f64", plane(2, 64, 64, 64, 3, 1)},
      {"image256-c64-f64", plane(1, 64, 64, 256, 3, 1)},
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

void add_convolution(const comm::Communicator& world, const LocalLayer& layer, ConvolutionPass pass,
                     ConvolutionBackend backend) {
  if (unsupported_reason<T>(backend, layer.problem, pass)) return;
  const double all_flops = flops(layer.problem) * world.size();
  add_timed(world, "local_conv/" + layer.name + "/" + std::string(name(pass)) + "/" + std::string(name(backend)),
            [problem = layer.problem, pass, backend, all_flops]() -> Case {
              const auto state = std::make_shared<LocalRun<>>(problem, pass, backend);
              return {.run = [state] { state->run(); },
                      .flops = all_flops,
                      .counters = {{"workspace_bytes", static_cast<double>(state->convolution().workspace_bytes())}}};
            });
}

#if !defined(KOKKOS_ENABLE_CUDA) && !defined(KOKKOS_ENABLE_HIP) && !defined(KOKKOS_ENABLE_SYCL)
void add_bfloat16(const comm::Communicator& world, const LocalLayer& layer, ConvolutionPass pass) {
  if (unsupported_reason<comm::bfloat16>(ConvolutionBackend::automatic, layer.problem, pass)) return;
  const double all_flops = flops(layer.problem) * world.size();
  add_timed(
      world, "local_conv/" + layer.name + "/" + std::string(name(pass)) + "/bfloat16",
      [problem = layer.problem, pass, all_flops]() -> Case {
        const auto state = std::make_shared<LocalRun<comm::bfloat16>>(problem, pass, ConvolutionBackend::automatic);
        return {
            .run = [state] { state->run(); }, .flops = all_flops, .label = state->convolution().implementation(pass)};
      });
}
#else
void add_bfloat16(const comm::Communicator&, const LocalLayer&, ConvolutionPass) {}
#endif

#ifdef ALONI_BENCH_CUDNN
void add_limit(const comm::Communicator& world, const LocalLayer& layer, ConvolutionPass pass) {
  const double all_flops = flops(layer.problem) * world.size();
  add_timed(world, "limit/" + layer.name + "/" + std::string(name(pass)) + "/cudnn",
            [problem = layer.problem, pass, all_flops]() -> Case {
              const auto limit = std::make_shared<CudnnLimit>(problem, pass);
              return {.run = [limit] { limit->run(); }, .flops = all_flops, .label = limit->implementation()};
            });
}

/// Layers that keep a device busy; a host would take minutes.
std::vector<LocalLayer> device_layers() {
  std::vector<LocalLayer> all;
  for (Layer& layer : layers()) {
    if (layer.transposed) continue;
    layer.problem.samples = layer.problem.input[1] < 512 ? 16 : 1;
    all.push_back({layer.name + "-n" + std::to_string(layer.problem.samples), layer.problem});
  }
  return all;
}
#else
void add_limit(const comm::Communicator&, const LocalLayer&, ConvolutionPass) {}  // build without cuDNN
std::vector<LocalLayer> device_layers() { return {}; }
#endif

void add_training(const comm::Communicator& world, const TrainingStep& step, ConvolutionPass phase) {
  add_timed(world, "training/" + step.name + "/" + std::string(name(phase)), [&world, step, phase]() -> Case {
    const auto state = std::make_shared<StepConvolutions>(world, step, phase);
    return {.run = [state] { state->run(); }, .flops = world.all_reduce(state->flops(), comm::Reduction::sum)};
  });
}

void add_gemm(const comm::Communicator& world, const LocalLayer& layer) {
  const auto side = static_cast<Index>(std::cbrt(flops(layer.problem) / 2) / 8 + 1) * 8;
  const double all_flops =
      2.0 * static_cast<double>(side) * static_cast<double>(side) * static_cast<double>(side) * world.size();
  add_timed(world, "gemm/" + layer.name, [side, all_flops]() -> Case {
    struct Matrices {
      Queue<Exec> queue;
      Field<T> a, b, c;
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
    auto at = [side](const Field<T>& f, Index row, Index column) {
      return static_cast<double>(f.host[static_cast<std::size_t>(row * side + column)]);
    };
    for (Index i = 0; i < side; i += 7) {
      double expected = 0;
      for (Index k = 0; k < side; ++k) expected += at(m->a, i, k) * at(m->b, k, side - 1 - i);
      if (at(m->c, i, side - 1 - i) != expected)
        throw std::runtime_error("bench_local_conv: gemm gives a wrong product");
    }
    return {.run = run, .flops = all_flops};
  });
}

}  // namespace

void register_benchmarks(const comm::Communicator& world) {
  std::vector<LocalLayer> all = local_layers();
  for (LocalLayer& layer : device_layers()) all.push_back(std::move(layer));
  for (const LocalLayer& layer : all) {
    add_gemm(world, layer);
    for (auto pass : {ConvolutionPass::forward, ConvolutionPass::backward_data, ConvolutionPass::backward_filter}) {
      for (auto backend : {ConvolutionBackend::automatic, ConvolutionBackend::direct, ConvolutionBackend::onednn,
                           ConvolutionBackend::kokkos_kernels}) {
        add_convolution(world, layer, pass, backend);
      }
      add_bfloat16(world, layer, pass);
      add_limit(world, layer, pass);
    }
  }
  if (world.size() != 2) return;
  for (const TrainingStep& step : training_steps())
    for (auto phase : {ConvolutionPass::forward, ConvolutionPass::backward_data, ConvolutionPass::backward_filter})
      add_training(world, step, phase);
}

}  // namespace aloni::bench

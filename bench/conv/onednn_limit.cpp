#include "conv/onednn_limit.hpp"

#include "conv/check.hpp"

#include <oneapi/dnnl/dnnl.hpp>

#include <array>
#include <unordered_map>
#include <vector>

#if defined(_OPENMP)
#include <omp.h>
#endif

namespace aloni::bench {

using dnnl::memory;
using nn::local::ConvolutionPass;
using nn::local::ConvolutionProblem;

namespace {

/// Sets the number of oneDNN's threads during its lifetime.
class Threads {
 public:
#if defined(_OPENMP)
  explicit Threads(int count) : before_(omp_get_max_threads()) { omp_set_num_threads(count); }
  ~Threads() { omp_set_num_threads(before_); }

 private:
  int before_;
#else
  explicit Threads(int) {}
#endif
};

}  // namespace

struct OnednnLimit::Primitive {
  int threads;
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  dnnl::primitive primitive;
  std::unordered_map<int, memory> arguments;
  std::string implementation;
  // x, y and w of Layer::problem. For a transposed layer x is the output of the layer.
  std::array<std::vector<float>, 3> values;

  const Layer layer;
  const bool flat;
  memory::desc x, y, w, plain_w;
  memory::dims stride, dilation, before, after;

  Primitive(const Layer& of, ConvolutionPass pass, int count)
      : threads(count), layer(of), flat(of.problem.input[0] == 1 && of.problem.kernel[0] == 1) {
    const ConvolutionProblem& p = layer.problem;
    const auto tag = flat ? memory::format_tag::nhwc : memory::format_tag::ndhwc;
    x = {dims({p.samples, p.channels}, p.input), memory::data_type::f32, tag};
    y = {dims({p.samples, p.filters}, p.output), memory::data_type::f32, tag};
    for (int s = flat ? 1 : 0; s < 3; ++s) {
      stride.push_back(p.stride[s]);
      dilation.push_back(p.dilation[s] - 1);
      before.push_back(-p.offset[s]);
      after.push_back((p.output[s] - 1) * p.stride[s] + (p.kernel[s] - 1) * p.dilation[s] + p.offset[s] + 1 -
                      p.input[s]);
    }
    // A transposed layer's filters are the problem's channels. Both have the order of the problem in memory: filters,
    // kernel, channels.
    if (layer.transposed) {
      w = {dims({p.channels, p.filters}, p.kernel), memory::data_type::f32, memory::format_tag::any};
      plain_w = {w.dims(), memory::data_type::f32, memory::format_tag::ihwo};
    } else if (p.groups > 1) {
      w = {dims({p.groups, p.filters_per_group(), p.channels_per_group()}, p.kernel), memory::data_type::f32,
           memory::format_tag::any};
      plain_w = {w.dims(), memory::data_type::f32, flat ? memory::format_tag::gohwi : memory::format_tag::godhwi};
    } else {
      w = {dims({p.filters, p.channels}, p.kernel), memory::data_type::f32, memory::format_tag::any};
      plain_w = {w.dims(), memory::data_type::f32, flat ? memory::format_tag::ohwi : memory::format_tag::odhwi};
    }
    const std::array<std::array<Index, 5>, 3> extents{input_extents(p), output_extents(p), filter_extents(p)};
    for (unsigned i = 0; i < 3; ++i) {
      const auto& e = extents[i];
      values[i].resize(static_cast<std::size_t>(e[0] * e[1] * e[2] * e[3] * e[4]));
      for (std::size_t j = 0; j < values[i].size(); ++j)
        values[i][j] = static_cast<float>(small_integer(i + 1, static_cast<Index>(j)));
    }

    const Threads scope(threads);
    layer.transposed ? describe_deconvolution(pass) : describe_convolution(pass);
    memory plain(plain_w, engine, values[2].data());
    memory& own = arguments.at(pass == ConvolutionPass::backward_filter ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS);
    if (pass != ConvolutionPass::backward_filter) dnnl::reorder(plain, own).execute(stream, plain, own);
    run();
    if (pass == ConvolutionPass::backward_filter) dnnl::reorder(own, plain).execute(stream, own, plain);
    stream.wait();
    auto host = [&](int i) { return HostTensor{values[i].data(), extents[i]}; };
    check(p, pass_of_problem(layer, pass), host(0), host(1), host(2), "oneDNN " + implementation);
  }

  void run() {
    const Threads scope(threads);
    primitive.execute(stream, arguments);
    stream.wait();
  }

 private:
  memory::dims dims(memory::dims outer, const std::array<Index, 3>& spatial) const {
    for (int s = flat ? 1 : 0; s < 3; ++s) outer.push_back(spatial[s]);
    return outer;
  }

  template <class Primitive_, class Description>
  void take(const Description& description, int source, int weights, int destination) {
    primitive = Primitive_(description);
    implementation = description.impl_info_str();
    const bool gradient = weights == DNNL_ARG_DIFF_WEIGHTS;
    // For a transposed layer the source is the problem's y and the destination is its x.
    const int from = layer.transposed ? 1 : 0;
    arguments = {
        {source, memory(layer.transposed ? y : x, engine, values[from].data())},
        {destination, memory(layer.transposed ? x : y, engine, values[1 - from].data())},
        {weights,
         memory(description.query_md(gradient ? dnnl::query::diff_weights_md : dnnl::query::weights_md), engine)}};
  }

  void describe_convolution(ConvolutionPass pass) {
    constexpr auto direct = dnnl::algorithm::convolution_direct;
    const dnnl::convolution_forward::primitive_desc forward(
        {dnnl::prop_kind::forward_training, direct, x, w, y, stride, dilation, before, after}, engine);
    if (pass == ConvolutionPass::forward) {
      take<dnnl::convolution_forward>(forward, DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST);
    } else if (pass == ConvolutionPass::backward_data) {
      const dnnl::convolution_backward_data::primitive_desc description(
          {direct, x, w, y, stride, dilation, before, after}, engine, forward);
      take<dnnl::convolution_backward_data>(description, DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_DST);
    } else {
      const dnnl::convolution_backward_weights::primitive_desc description(
          {direct, x, w, y, stride, dilation, before, after}, engine, forward);
      take<dnnl::convolution_backward_weights>(description, DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST);
    }
  }

  void describe_deconvolution(ConvolutionPass pass) {
    constexpr auto direct = dnnl::algorithm::deconvolution_direct;
    const dnnl::deconvolution_forward::primitive_desc forward(
        {dnnl::prop_kind::forward_training, direct, y, w, x, stride, dilation, before, after}, engine);
    if (pass == ConvolutionPass::forward) {
      take<dnnl::deconvolution_forward>(forward, DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST);
    } else if (pass == ConvolutionPass::backward_data) {
      const dnnl::deconvolution_backward_data::primitive_desc description(
          {direct, y, w, x, stride, dilation, before, after}, engine, forward);
      take<dnnl::deconvolution_backward_data>(description, DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_DST);
    } else {
      const dnnl::deconvolution_backward_weights::primitive_desc description(
          {direct, y, w, x, stride, dilation, before, after}, engine, forward);
      take<dnnl::deconvolution_backward_weights>(description, DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST);
    }
  }
};

OnednnLimit::OnednnLimit(const Layer& layer, ConvolutionPass pass, int threads)
    : primitive_(std::make_unique<Primitive>(layer, pass, threads)) {}
OnednnLimit::~OnednnLimit() = default;
void OnednnLimit::run() { primitive_->run(); }
std::string OnednnLimit::implementation() const { return primitive_->implementation; }

}  // namespace aloni::bench

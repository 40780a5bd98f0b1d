#include "conv/split_run.hpp"

#include "conv/check.hpp"

#include <aloni/halo/transfer_plan.hpp>
#include <aloni/nn/strategy.hpp>

#include <array>
#include <span>
#include <vector>

namespace aloni::bench {

using nn::local::ConvolutionPass;
using views::Box;
using views::Dim;
using views::Extents;

namespace {

constexpr unsigned seed_of_input = 1, seed_of_output = 2, seed_of_filters = 3;

}  // namespace

nn::NetworkDescription network_of(const Layer& layer) {
  const auto& p = layer.problem;
  const auto& in = layer.transposed ? p.output : p.input;
  const auto& out = layer.transposed ? p.input : p.output;
  nn::NetworkDescription net;
  net.spatial_rank = p.input[0] > 1 ? 3 : 2;
  net.loss = nn::Loss::binary_cross_entropy;
  net.input = Extents{{1, in[0], in[1], in[2], layer.transposed ? p.filters : p.channels}};
  nn::Window window;
  for (std::size_t i = 0; i < 3; ++i) {
    window.kernel[i] = p.kernel[i];
    window.stride[i] = p.stride[i];
    window.dilation[i] = p.dilation[i];
    window.pad_low[i] = -p.offset[i];
    const Index from = layer.transposed ? out[i] : in[i], to = layer.transposed ? in[i] : out[i];
    // Padding at the high side: cells of the last window beyond the input.
    window.pad_high[i] =
        std::max<Index>(0, (to - 1) * p.stride[i] + (p.kernel[i] - 1) * p.dilation[i] + 1 - from - window.pad_low[i]);
  }
  nn::Operation op;
  if (layer.transposed) {
    op = nn::TransposedConvolution{.filters = p.channels, .window = window, .bias = false, .groups = p.groups};
  } else {
    op = nn::Convolution{.filters = p.filters, .window = window, .bias = false, .groups = p.groups};
  }
  net.layers = {{layer.name, op, {"input"}}};
  return net;
}

namespace {

/// The whole tensor of small integers, equal to the blocks that SplitRun::make fills.
std::vector<float> whole_tensor(const Extents& extents, unsigned seed) {
  std::vector<float> all(static_cast<std::size_t>(extents.size()));
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<float>(small_integer(seed, static_cast<Index>(i)));
  return all;
}

/// Calls f(offset in a dense box, indices, offset in the whole tensor) for every element of the box.
template <class F>
void for_each_place(const Box& box, const Extents& whole, const F& f) {
  std::array<Index, 5> i{};
  for (std::size_t place = 0; place < static_cast<std::size_t>(box.size()); ++place) {
    Index rest = static_cast<Index>(place), position = 0;
    for (int d = 4; d >= 0; --d) {
      const auto k = static_cast<std::size_t>(d);
      const Index extent = box.hi[k] - box.lo[k];
      i[k] = box.lo[k] + rest % extent;
      rest /= extent;
    }
    for (std::size_t d = 0; d < 5; ++d) position = position * whole.values[d] + i[d];
    f(place, i, position);
  }
}

}  // namespace

SplitRun::SplitRun(const comm::Communicator& world, const Layer& layer, SplitWork work, const nn::LayerSplit& split)
    : world_(world), layer_(layer) {
  layer_.problem.samples = split.grid[Dim::sample];
  const nn::NetworkDescription net = network_of(layer);
  plan_ = nn::plan_network(net, resolve(nn::Strategy::uniform(split), net, world.size()), world.size(),
                           layer_.problem.samples)
              .layers[0];
  const int rank = world.rank();
  const Extents in = plan_.input.extents(), out = plan_.output.extents();
  const Box x = plan_.input.owned(rank), y = plan_.output.owned(rank);
  tensors_.x = make("x", x, hull(x, plan_.input_needed(rank)), seed_of_input, in);
  tensors_.y = make("y", y, y, seed_of_output, out);
  if (work != SplitWork::forward) tensors_.dy = make("dy", y, plan_.output_gradient_box(rank), seed_of_output, out);
  if (work != SplitWork::forward && work != SplitWork::backward_filter)
    tensors_.dx = make("dx", x, x, seed_of_input, in);
  const Box weights = plan_.weights_needed(rank);
  w_ = make("filters", weights, weights, seed_of_filters, plan_.weights());
  dw_ = make("gradient of the filters", Box{}, weights, seed_of_filters, plan_.weights());
  tensors_.weights = weights;
  tensors_.w = w_.whole();
  tensors_.dw = dw_.whole();

  convolution_ = std::make_unique<nn::DistributedConvolution<float>>(world, queue_, plan_, tensors_,
                                                                     nn::DistributedConvolutionOptions{});
  convolution_->set_filter_version(1);
  const bool exchanges = work != SplitWork::computation, computes = work != SplitWork::communication;
  const bool is_step = work == SplitWork::step || work == SplitWork::computation || work == SplitWork::communication;
  const bool forward = is_step || work == SplitWork::forward;
  const bool filters = is_step || work == SplitWork::backward_filter;
  const bool data = is_step || work == SplitWork::backward_data;
  // backward_filter reuses the ghosts of x from the forward pass. It needs dy of other ranks only if channels are
  // split: these ranks own the other filters.
  const bool exchanges_gradient = data || (filters && split.grid[Dim::channel] > 1);
  exchange_input();
  step_.set_scope("aloni::bench::" + layer.name);
  if (forward && exchanges) convolution_->add_input_exchange(step_);
  if (forward && computes) convolution_->add_forward(step_);
  // In a network dy depends on y, so forward and backward must not overlap. The empty kernel has this dependence.
  if (is_step) step_.kernel("loss", {nn::reads(tensors_.y), nn::writes(tensors_.dy)}, [](const Exec&) {});
  if (exchanges_gradient && exchanges) convolution_->add_gradient_exchange(step_);
  if (filters && computes) convolution_->add_backward_filter(step_);
  if (data && computes) convolution_->add_backward_data(step_);
  step_.prepare();
  const auto sent = [&] {
    std::uint64_t bytes = 0;
    for (const auto& peer : world_.traffic_by_peer()) bytes += peer.messages.bytes_sent;
    return bytes;
  };
  const std::uint64_t before = sent();
  run();
  sent_bytes_ = sent() - before;
  if (!exchanges || !computes) return;
  if (forward) check(ConvolutionPass::forward, tensors_.y, plan_.output);
  if (filters) check(ConvolutionPass::backward_filter, {}, plan_.input);
  if (data) check(ConvolutionPass::backward_data, tensors_.dx, plan_.input);
}

void SplitRun::exchange_input() {
  nn::Step<Exec> before;
  convolution_->add_input_exchange(before);
  before.prepare();
  before.execute(queue_, world_, stopwatch_);
}

void SplitRun::run() {
  step_.execute(queue_, world_, stopwatch_);
  queue_.fence("aloni::bench: end of repetition");
}

SplitRun::Tensor SplitRun::make(const std::string& label, const Box& owned, const Box& box, unsigned seed,
                                const Extents& whole) const {
  const Exec& exec = queue_.space();
  Tensor t = nn::allocate_tensor<float>(world_, exec, "aloni::bench: " + label, owned, box);
  const auto host = Kokkos::create_mirror_view(t.storage);
  for_each_place(box, whole, [&](std::size_t place, const std::array<Index, 5>& i, Index position) {
    bool mine = true;
    for (std::size_t d = 0; d < 5; ++d) mine = mine && i[d] >= owned.lo[d] && i[d] < owned.hi[d];
    host(place) = mine ? static_cast<float>(small_integer(seed, position)) : 0;
  });
  Kokkos::deep_copy(exec, t.storage, host);
  queue_.fence("aloni::bench: data is in place");
  return t;
}

void SplitRun::check(ConvolutionPass pass, const Tensor& result, const views::Distribution& distribution) const {
  const Exec& exec = queue_.space();
  const Extents in = plan_.input.extents(), out = plan_.output.extents();
  std::vector<float> x = whole_tensor(in, seed_of_input), y = whole_tensor(out, seed_of_output),
                     w = whole_tensor(Extents{filter_extents(layer_.problem)}, seed_of_filters);
  if (pass == ConvolutionPass::backward_filter) {
    const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, dw_.storage);
    std::ranges::fill(w, 0.0F);
    for_each_place(dw_.box, plan_.weights(), [&](std::size_t place, const auto&, Index position) {
      w[static_cast<std::size_t>(position)] = host(place);
    });
    world_.all_reduce(std::span<float>(w), comm::Reduction::sum);
  } else {
    // Gathers the blocks of all ranks on every rank.
    std::vector<float>& all = pass == ConvolutionPass::forward ? y : x;
    const Box whole = views::whole(distribution.extents());
    const Tensor gathered = nn::allocate_tensor<float>(exec, "aloni::bench: whole result", whole, whole);
    const auto everywhere = [&](int) { return whole; };
    halo::Transfer<Exec>(world_, queue_,
                         {halo::TransferItem<float, Exec::memory_space>::between(
                             result.ref(), gathered.ref(),
                             halo::plan_redistribution(distribution, distribution, everywhere,
                                                       halo::BoundaryConditions{}, world_.rank()))})
        .run(queue_);
    queue_.fence("aloni::bench: before checking");
    const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, gathered.storage);
    std::copy_n(host.data(), all.size(), all.data());
  }
  const HostTensor input{x.data(), in.values}, output{y.data(), out.values},
      filters{w.data(), filter_extents(layer_.problem)};
  bench::check(layer_.problem, pass_of_problem(layer_, pass), layer_.transposed ? output : input,
               layer_.transposed ? input : output, filters, "split " + layer_.name);
}

}  // namespace aloni::bench

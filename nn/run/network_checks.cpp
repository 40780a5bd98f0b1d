#include <aloni/nn/run/network_checks.hpp>

#include <aloni/core/comm/agreement.hpp>
#include <aloni/core/error.hpp>
#include <aloni/nn/detail/instantiate.hpp>
#include <aloni/nn/detail/replicated.hpp>
#include <aloni/nn/local/convolution.hpp>
#include <aloni/nn/step_recorder.hpp>
#include <aloni/nn/stream_plan.hpp>

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace aloni::nn::detail {

using views::Box;
using views::Dim;
using views::Distribution;

namespace {

/// The distribution as text, with borders of uneven blocks.
std::string text_of(const Distribution& d) {
  std::string text = to_string(d);
  for (const Dim dim : views::all_dims) {
    text += d.replicated(dim) ? ", replicated" : ",";
    for (const Index border : d.borders(dim)) text += ' ' + std::to_string(border);
  }
  return text;
}

}  // namespace

template <class T, class Exec>
void check_support(const NetworkOptions& options) {
  if (options.record && !make_step_recorder<Exec>()) {
    throw Unsupported("aloni::nn::Network", "options.record", "true",
                      "false: this build has no graphs of a device on which networks of this type run");
  }
  if constexpr (is_16_bit(element_type<T>)) {
    const auto reason = local::unsupported_reason<T, Exec>(options.backend, {}, local::ConvolutionPass::forward);
    if (reason) {
      throw Unsupported("aloni::nn::Network", "backend", std::string(local::name(options.backend)),
                        "another backend or type: " + *reason);
    }
  }
  if (!options.tf32) return;
  const auto refuse = [](const std::string& expectation) {
    throw Unsupported("aloni::nn::Network", "options.tf32", "true", "false: " + expectation);
  };
  using local::ConvolutionBackend;
  if (!std::is_same_v<T, float>) refuse("activations are not float, and TF32 is for products of float");
  if (options.backend != ConvolutionBackend::automatic && options.backend != ConvolutionBackend::cudnn)
    refuse("of the backends only cudnn multiplies in TF32; take it, or automatic");
  if (const auto reason =
          local::unsupported_reason<T, Exec>(ConvolutionBackend::cudnn, {}, local::ConvolutionPass::forward))
    refuse("TF32 needs cuDNN: " + *reason);
}

MachineDescription costs_of(const NetworkOptions& options, bool on_host) {
  MachineDescription costs = local::machine_of_this_build(on_host);
  if (options.direct_bytes) costs.direct_bytes = *options.direct_bytes;
  if (costs.direct_bytes < 0) {
    throw InvalidArgument("aloni::nn::Network", "options.direct_bytes", std::to_string(costs.direct_bytes),
                          "at least 0");
  }
  if (options.consolidate_below) costs.consolidate_below = *options.consolidate_below;
  if (costs.consolidate_below < 0) {
    throw InvalidArgument("aloni::nn::Network", "options.consolidate_below", std::to_string(costs.consolidate_below),
                          "at least 0");
  }
  if (options.bucket_bytes) costs.bucket_bytes = *options.bucket_bytes;
  if (costs.bucket_bytes < 1) {
    throw InvalidArgument("aloni::nn::Network", "options.bucket_bytes", std::to_string(costs.bucket_bytes),
                          "at least 1");
  }
  if (options.chunk_bytes) costs.chunk_bytes = static_cast<double>(*options.chunk_bytes);
  if (costs.chunk_bytes < 1) {
    throw InvalidArgument("aloni::nn::Network", "options.chunk_bytes", std::to_string(costs.chunk_bytes), "at least 1");
  }
  if (options.multiplications_per_slab) costs.multiplications_per_slab = *options.multiplications_per_slab;
  if (!(costs.multiplications_per_slab >= 1)) {
    throw InvalidArgument("aloni::nn::Network", "options.multiplications_per_slab",
                          std::to_string(costs.multiplications_per_slab), "at least 1");
  }
  costs.convolutions = options.convolutions;
  if (options.work_per_copied_byte) {
    check_work_per_copied_byte(*options.work_per_copied_byte, "aloni::nn::Network", "options.work_per_copied_byte");
    costs.work_per_copied_byte = *options.work_per_copied_byte;
  }
  return costs;
}

template <class T>
const comm::Communicator& agreed(const comm::Communicator& comm, const NetworkDescription& description,
                                 const Strategy& strategy, Index samples, const NetworkOptions& o,
                                 OptimiserKind optimiser, const UpdateOptions& update, const Distribution* input) {
  comm::ReplicatedValues values;
  values.add("element type", element_name<T>());
  values.add("samples", samples);
  add_to(values, description);
  add_to(values, strategy);
  values.add("backend", std::string(local::name(o.backend)));
  values.add("options.tf32", o.tf32);
  values.add("options.inference", o.inference);
  values.add("options.update", o.update);
  values.add("optimiser of the parameters", std::string(name(optimiser)));
  add_to(values, update);
  values.add("options.input_gradient", o.input_gradient);
  values.add("options.fuse_inference", o.fuse_inference);
  values.add("options.fuse_batch_norm", o.fuse_batch_norm);
  values.add("options.fuse_pooling", o.fuse_pooling);
  values.add("options.schedule_seed", o.schedule_seed);
  values.add("options.direct_bytes", o.direct_bytes ? std::to_string(*o.direct_bytes) : std::string("default"));
  values.add("options.consolidate_below",
             o.consolidate_below ? std::to_string(*o.consolidate_below) : std::string("default"));
  values.add("options.bucket_bytes", o.bucket_bytes ? std::to_string(*o.bucket_bytes) : std::string("default"));
  values.add("options.chunk_bytes", o.chunk_bytes ? std::to_string(*o.chunk_bytes) : std::string("default"));
  values.add("options.sums_beside_backward", o.sums_beside_backward);
  values.add("options.largest_overhead", o.largest_overhead.value_or(-1));
  values.add("options.multiplications_per_slab", o.multiplications_per_slab.value_or(-1));
  add_to(values, "options.convolutions", o.convolutions);
  values.add("options.dropout_seed", o.dropout_seed);
  if (o.streams) check_streams(*o.streams, "aloni::nn::Network");
  values.add("options.record", o.record);
  values.add("options.streams", o.streams.value_or(0));
  check(o.recompute, static_cast<int>(description.layers.size()), "aloni::nn::Network");
  values.add("options.recompute", to_string(o.recompute, description));
  check_offloading(o.offload, static_cast<int>(description.layers.size()), "aloni::nn::Network");
  add_to(values, "options.work_per_copied_byte", o.work_per_copied_byte);
  values.add("options.offload", offloading_text(o.offload, description));
  values.add("adopted input", input ? text_of(*input) : "none");
  comm::check_equal(comm, "aloni::nn::Network", values);
  return comm;
}

template <class T, class Mem>
std::optional<AdoptedInputPlan> plan_of(const comm::Communicator& comm,
                                        const std::optional<AdoptedInput<T, Mem>>& input) {
  if (!input) return std::nullopt;
  const Distribution& d = input->distribution;
  bool wrong = d.ranks() != comm.size() || input->rank != comm.rank();
  if (!wrong) {
    const Box box = d.owned(comm.rank());
    for (const Dim dim : views::all_dims)
      wrong = wrong || static_cast<Index>(input->owned.extent(views::position(dim))) != box.extent(dim);
    wrong = wrong || (!box.empty() && input->owned.data() == nullptr);
  }
  const bool strided = input->owned.size() > 0 && !views::is_dense(input->owned);
  std::array<int, 2> found{wrong ? 1 : 0, strided ? 1 : 0};
  comm.all_reduce(std::span<int>(found), comm::Reduction::sum);
  if (found[0] > 0) {
    throw InvalidArgument("aloni::nn::Network", "input",
                          "on " + std::to_string(found[0]) + " of " + std::to_string(comm.size()) +
                              " ranks made for other ranks or for another box",
                          "a View of the box that this rank owns, distributed over all ranks of the network");
  }
  return AdoptedInputPlan{d, found[1] == 0};
}

template <class T, class Exec>
void check_parameters(const comm::Communicator& comm, const NetworkDescription& description, const NetworkPlan& plan,
                      const Parameters<T, Exec>& parameters, const NetworkOptions& options) {
  const auto refuse = [](const std::string& argument, const std::string& value, const std::string& expectation) {
    throw InvalidArgument("aloni::nn::Network", argument, value, expectation);
  };
  const auto& tensors = parameters.descriptions();
  const std::vector<ParameterDescription> wanted = parameters_of(description);
  if (!std::ranges::equal(tensors, wanted, [](const auto& a, const auto& b) {
        return a.name == b.name && a.layer == b.layer && a.extents == b.extents;
      })) {
    refuse("parameters", "made for another description", "parameters made for this description");
  }
  if (parameters.is_split() && parameters.ranks() != comm.size()) {
    refuse("ranks of the parameters", std::to_string(parameters.ranks()),
           "the " + std::to_string(comm.size()) + " ranks of the network, or parameters that are whole on every rank");
  }
  if (!parameters.trains() && !options.inference) {
    refuse("parameters", "made for inference, without gradients",
           "parameters made for training, or options.inference = true");
  }
  if (options.update && options.inference)
    refuse("options.update", "true", "false with options.inference, as there are no gradients");
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const WeightBlocks& blocks = parameters.blocks(static_cast<int>(i));
    if (blocks.count() == 1) continue;
    const ConvolutionPlan& conv = *plan.layers[static_cast<std::size_t>(tensors[i].layer)].convolution;
    if (blocks == WeightBlocks{conv.channel_blocks, conv.filter_blocks}) continue;
    const auto text = [](int channels, int filters) {
      return std::to_string(channels) + " blocks of channels, " + std::to_string(filters) + " of filters";
    };
    refuse("parameters' " + tensors[i].name, text(blocks.channels, blocks.filters),
           text(conv.channel_blocks, conv.filter_blocks) +
               " as in the strategy, or parameters that are whole on every rank");
  }
}

#define INSTANTIATE(T, Exec)                                                                                          \
  template void check_support<T, Exec>(const NetworkOptions&);                                                        \
  template const comm::Communicator& agreed<T>(const comm::Communicator&, const NetworkDescription&, const Strategy&, \
                                               Index, const NetworkOptions&, OptimiserKind, const UpdateOptions&,     \
                                               const Distribution*);                                                  \
  template std::optional<AdoptedInputPlan> plan_of<T, Exec::memory_space>(                                            \
      const comm::Communicator&, const std::optional<AdoptedInput<T, Exec::memory_space>>&);
ALONI_INSTANTIATE_ACTIVATIONS(INSTANTIATE)
#undef INSTANTIATE

#define INSTANTIATE(T, Exec)                                                                                        \
  template void check_parameters<T, Exec>(const comm::Communicator&, const NetworkDescription&, const NetworkPlan&, \
                                          const Parameters<T, Exec>&, const NetworkOptions&);
ALONI_INSTANTIATE_PARAMETERS(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::nn::detail

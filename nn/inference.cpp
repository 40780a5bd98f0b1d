#include <aloni/nn/inference.hpp>

#include <aloni/core/comm/agreement.hpp>
#include <aloni/core/error.hpp>
#include <aloni/core/io/file_system.hpp>
#include <aloni/core/queue.hpp>
#include <aloni/nn/data/host_batch.hpp>
#include <aloni/nn/data/load_batch.hpp>
#include <aloni/nn/data/npy_file.hpp>
#include <aloni/nn/detail/download.hpp>
#include <aloni/nn/detail/instantiate.hpp>
#include <aloni/nn/detail/replicated.hpp>
#include <aloni/nn/network.hpp>
#include <aloni/nn/read_trained_weights.hpp>
#include <aloni/nn/train/batch_reader.hpp>
#include <aloni/nn/train/networks.hpp>
#include <aloni/nn/train/test_set.hpp>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

namespace aloni::nn {

namespace {

constexpr const char* evaluate_operation = "aloni::nn::evaluate";
constexpr const char* predict_operation = "aloni::nn::predict";

/// Throws InvalidArgument on all ranks if one has passed another argument, or if the options are wrong.
/// Collective.
template <class T>
void check_inference(const comm::Communicator& comm, const char* operation, const NetworkDescription& network,
                     const Strategy& strategy, const TrainedWeights& weights, const Dataset& set,
                     const std::string& output, const InferenceOptions& options) {
  const auto values = comm::collectively(comm, operation, [&] {
    check(set, operation);
    comm::ReplicatedValues all;
    all.add("element type", detail::element_name<T>()).add("batch", options.batch);
    all.add("backend", std::string(local::name(options.backend)));
    all.add("weights", weights.file).add("checkpoints", weights.checkpoints).add("output", output);
    detail::add_to(all, "samples", set);
    detail::add_to(all, network);
    detail::add_to(all, strategy);
    return all;
  });
  comm::check_equal(comm, operation, values);
  if (options.batch < 1) throw InvalidArgument(operation, "batch", std::to_string(options.batch), "at least 1 sample");
}

/// Parameters without gradients, with the trained values. Collective.
template <class T>
auto trained_parameters(const comm::Communicator& comm, const Queue<execution_space_t<T>>& queue,
                        const NetworkDescription& network, const Strategy& strategy, const TrainedWeights& weights) {
  constexpr std::uint64_t seed = 1;  // of values that the trained ones replace
  Parameters<parameter_type_t<T>, execution_space_t<T>> parameters(
      comm, queue, network, resolve(strategy, network, comm.size()), seed, ParameterUse::inference);
  parameters.set_writes(ParameterWrites::announced);
  read_trained_weights(comm, queue, network, parameters, weights);
  return parameters;
}

}  // namespace

template <class T>
TestResult evaluate(const comm::Communicator& comm, const NetworkDescription& network, const Strategy& strategy,
                    const TrainedWeights& weights, const Dataset& test_set, const InferenceOptions& options) {
  check_inference<T>(comm, evaluate_operation, network, strategy, weights, test_set, "", options);
  check_fits(test_set, "test set", network, {}, evaluate_operation);
  const Queue<execution_space_t<T>> queue;
  auto parameters = trained_parameters<T>(comm, queue, network, strategy, weights);
  Networks<T> networks(comm, queue, network, strategy, parameters, {.backend = options.backend, .inference = true}, 1);
  const Index batch = std::min(options.batch, test_set.size());
  return TestSet<T>(comm, network, test_set, batch).test(networks, queue, batch, 0, [](double) {});
}

template <class T>
void predict(const comm::Communicator& comm, const NetworkDescription& network, const Strategy& strategy,
             const TrainedWeights& weights, const Dataset& inputs, const std::string& output,
             const InferenceOptions& options) {
  using Exec = execution_space_t<T>;
  const Dataset set{.inputs = inputs.inputs, .normalisation = inputs.normalisation};
  check_inference<T>(comm, predict_operation, network, strategy, weights, set, output, options);
  if (set.inputs->extents() != network.input || set.size() < 1) {
    throw InvalidArgument(predict_operation, "inputs",
                          std::to_string(set.size()) + " samples of " + to_string(set.inputs->extents()),
                          "at least 1 sample with the extents of the network's input, " + to_string(network.input));
  }
  const Queue<Exec> queue;
  auto parameters = trained_parameters<T>(comm, queue, network, strategy, weights);
  views::Extents all = infer_extents(network, 1).back();
  all[views::Dim::sample] = set.size();
  NpyFile file(comm, io::real_file_system(), output, all, network.spatial_rank);

  const Index batch = std::min(options.batch, set.size());
  BatchReader<T> reader(set, {.batch = batch, .shuffles = false});
  std::optional<Network<T, Exec>> made;  // for mini-batches of one size; the last one may be smaller
  std::vector<T> values;
  std::vector<float> written;
  for (Index first = 0, size = 0; first < set.size(); first += batch) {
    const Index samples = std::min(batch, set.size() - first);
    if (samples != size) {
      made.reset();
      made.emplace(comm, queue, network, strategy, samples, parameters,
                   NetworkOptions{.backend = options.backend, .inference = true});
      size = samples;
    }
    comm::collectively(comm, predict_operation, [&] {
      load_input(queue, reader.read(0, first, BatchPart{.input = made->input_box(), .output = {}}), *made);
    });
    made->forward(queue, Mode::evaluation);
    comm::collectively(comm, predict_operation, [&] {
      if (!made->output_distribution().is_first_copy(comm.rank())) return;
      views::Box box = made->output_box();
      if (box.empty()) return;
      detail::download<T, Exec>(queue, made->output(), values);
      written.resize(values.size());
      std::ranges::transform(values, written.begin(), [](T value) { return static_cast<float>(value); });
      box.set(views::Dim::sample, box.lower(views::Dim::sample) + first, box.upper(views::Dim::sample) + first);
      file.write(box, written);
    });
  }
  file.finish();
}

#define INSTANTIATE(T, Exec)                                                                             \
  template TestResult evaluate<T>(const comm::Communicator&, const NetworkDescription&, const Strategy&, \
                                  const TrainedWeights&, const Dataset&, const InferenceOptions&);       \
  template void predict<T>(const comm::Communicator&, const NetworkDescription&, const Strategy&,        \
                           const TrainedWeights&, const Dataset&, const std::string&, const InferenceOptions&);
ALONI_INSTANTIATE_ACTIVATIONS(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::nn

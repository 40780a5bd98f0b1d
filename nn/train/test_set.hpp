#pragma once
// A data set with which a network is tested: mini-batches in the order of the set, read ahead.
#include <aloni/core/comm/communicator.hpp>
#include <aloni/nn/data/load_batch.hpp>
#include <aloni/nn/detail/download.hpp>
#include <aloni/nn/metrics.hpp>
#include <aloni/nn/sample_pictures.hpp>
#include <aloni/nn/train/batch_reader.hpp>
#include <aloni/nn/train/networks.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <vector>

namespace aloni::nn {

/// Fills `network` with the mini-batch of an epoch that starts at sample `first`, and returns it; it is valid until the
/// reader is asked for another one. Not collective. Only this rank sees an error of a file, so it poisons the
/// communicator: the others must not wait for it in the step.
template <class T, class Exec>
const HostBatch<T>& load_mini_batch(const comm::Communicator& comm, const Queue<Exec>& queue,
                                    const NetworkDescription& description, BatchReader<T>& reader,
                                    std::optional<BatchLoader<T, Exec>>& loader, std::uint64_t epoch, Index first,
                                    Network<T, Exec>& network) {
  try {
    const HostBatch<T>* batch = nullptr;
    {
      const auto timing = network.stopwatch().measure(Stopwatch::Phase::input);
      batch = &reader.read(epoch, first, part_of_batch(network, description));
    }
    if (!loader) loader.emplace(queue);
    loader->load(*batch, network);
    return *batch;
  } catch (const std::exception& e) {
    comm.poison(e.what());
    throw;
  }
}

template <class T>
class TestSet {
 public:
  using Exec = execution_space_t<T>;

  /// @pre the arguments outlive this object; the set has passed check_fits()
  TestSet(const comm::Communicator& comm, const NetworkDescription& network, const Dataset& set, Index batch)
      : comm_(comm), network_(network), set_(set), reader_(set, {.batch = batch, .shuffles = false}) {}

  Index size() const { return set_.size(); }

  /// Evaluates the set in mini-batches of `batch` samples, that of the constructor. `epoch`: of a training, which tests
  /// once in each. `check_loss` gets each loss. Collective.
  TestResult test(Networks<T>& networks, const Queue<Exec>& queue, Index batch, std::uint64_t epoch,
                  const std::function<void(double)>& check_loss) {
    double loss = 0, correct = 0;
    Index all = 0, channels = 0;
    std::vector<double> sums;
    for (Index first = 0; first < set_.size(); first += batch) {
      const Index samples = std::min(batch, set_.size() - first);
      auto& network = networks.of(samples);
      load_mini_batch(comm_, queue, network_, reader_, loader_, epoch, first, network);
      const StepResult result = network.evaluate(queue);
      check_loss(result.loss);
      loss += result.loss * static_cast<double>(samples);
      correct += static_cast<double>(result.correct);
      const views::Extents& output = network.output_distribution().extents();
      all += predictions_in(network_.loss, output);
      channels = output[views::Dim::channel];
      const auto of_batch = network.metric_sums();
      sums.resize(of_batch.size());
      for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += of_batch[i];
    }
    TestResult test{.loss = loss / static_cast<double>(set_.size())};
    if (network_.loss != Loss::mean_squared_error) test.accuracy = correct / static_cast<double>(all);
    test.metrics = metrics_of(network_.loss, channels, sums, all);
    return test;
  }

  /// The first samples of the set with their predictions: `count`, or as many as the set or a mini-batch has.
  /// Collective; equal on all ranks.
  std::vector<SampleResult> samples(Networks<T>& networks, const Queue<Exec>& queue, Index batch, Index count) {
    const Index samples = std::min(batch, set_.size());
    auto& network = networks.of(samples);
    const HostBatch<T>& loaded = load_mini_batch(comm_, queue, network_, reader_, loader_, 0, 0, network);
    network.forward(queue, Mode::evaluation);
    SampleSums sums(network_, std::min(count, samples));
    if (network.input_distribution().is_first_copy(comm_.rank()))
      sums.template add_inputs<T>(network.input_box(), loaded.input);
    if (network.output_distribution().is_first_copy(comm_.rank())) {
      std::vector<T> outputs;
      detail::download<T, Exec>(queue, network.output(), outputs);
      sums.template add_outputs<T>(network.output_box(), {outputs, loaded.labels, loaded.targets});
    }
    comm_.all_reduce(sums.values(), comm::Reduction::sum);
    return sums.results();
  }

 private:
  const comm::Communicator& comm_;
  const NetworkDescription& network_;
  const Dataset& set_;
  BatchReader<T> reader_;
  std::optional<BatchLoader<T, Exec>> loader_;  ///< made with the queue of the first mini-batch
};

}  // namespace aloni::nn

#pragma once
// The mini-batches of a training on data sets, read ahead during the steps.
#include <aloni/core/comm/communicator.hpp>
#include <aloni/nn/data/load_batch.hpp>
#include <aloni/nn/train/batch_reader.hpp>
#include <aloni/nn/train/source.hpp>

#include <algorithm>
#include <exception>
#include <optional>

namespace aloni::nn {

template <class T>
class DatasetSource : public Source<T> {
 public:
  using typename Source<T>::Exec;

  /// @pre the arguments outlive this object; the sets have passed check_fits()
  DatasetSource(const comm::Communicator& comm, const NetworkDescription& network, const Dataset& train_set,
                const std::optional<Dataset>& test_set, const TrainOptions& options)
      : comm_(comm),
        network_(network),
        train_set_(train_set),
        test_set_(test_set),
        training_(train_set,
                  {std::min(options.batch, train_set.size()), true, augmentation_of(options), options.seed}) {
    // The training tests with mini-batches of the size with which it trains.
    if (test_set)
      testing_.emplace(*test_set_, typename BatchReader<T>::Options{.batch = std::min(options.batch, train_set.size()),
                                                                    .shuffles = false});
  }

  Index size() const override { return train_set_.size(); }
  std::optional<Index> set_size() const override { return train_set_.size(); }
  void begin_epoch(int epoch) override { epoch_ = static_cast<std::uint64_t>(epoch); }

  void fill(const Queue<Exec>& queue, Index first, Index, Network<T, Exec>& network) override {
    load(queue, training_, epoch_, first, network);
  }

  /// Two host batches for each set: one in use, one ahead.
  Index resident_bytes(const Network<T, Exec>& network) const override {
    const BatchPart part = part_of_batch(network, network_);
    const Index one = (part.input.empty() ? 0 : part.input.size()) + (part.output.empty() ? 0 : part.output.size());
    return (test_set_ ? 4 : 2) * one * static_cast<Index>(sizeof(T));
  }

  TestResult test(Networks<T>& networks, const Queue<Exec>& queue, Index batch,
                  const std::function<void(double)>& check_loss) override {
    if (!testing_) return {};
    double loss = 0, correct = 0, all = 0;
    for (Index first = 0; first < test_set_->size(); first += batch) {
      const Index samples = std::min(batch, test_set_->size() - first);
      auto& network = networks.of(samples);
      load(queue, *testing_, epoch_, first, network);
      const StepResult result = network.evaluate(queue);
      check_loss(result.loss);
      loss += result.loss * static_cast<double>(samples);
      correct += static_cast<double>(result.correct);
      all += static_cast<double>(predictions(network.output_distribution().extents()));
    }
    const bool counts = network_.loss != Loss::mean_squared_error;
    return {counts ? std::optional(correct / all) : std::nullopt, loss / static_cast<double>(test_set_->size())};
  }

 private:
  Index predictions(const views::Extents& output) const {
    return targets_of(network_.loss) == LossTargets::elements ? output.size()
                                                              : output.size() / output[views::Dim::channel];
  }

  /// Only this rank sees an error of a file. The others must not wait for it in the step.
  void load(const Queue<Exec>& queue, BatchReader<T>& reader, std::uint64_t epoch, Index first,
            Network<T, Exec>& network) {
    try {
      const HostBatch<T>* batch = nullptr;
      {
        const auto timing = network.stopwatch().measure(Stopwatch::Phase::input);
        batch = &reader.read(epoch, first, part_of_batch(network, network_));
      }
      load_batch(queue, *batch, network);
    } catch (const std::exception& e) {
      comm_.poison(e.what());
      throw;
    }
  }

  const comm::Communicator& comm_;
  const NetworkDescription& network_;
  const Dataset& train_set_;
  const std::optional<Dataset>& test_set_;
  std::uint64_t epoch_ = 0;
  BatchReader<T> training_;
  std::optional<BatchReader<T>> testing_;
};

}  // namespace aloni::nn

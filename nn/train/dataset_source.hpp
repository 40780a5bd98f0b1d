#pragma once
// The mini-batches of a training on data sets, read ahead during the steps.
#include <aloni/core/comm/communicator.hpp>
#include <aloni/nn/data/load_batch.hpp>
#include <aloni/nn/train/batch_reader.hpp>
#include <aloni/nn/train/source.hpp>
#include <aloni/nn/train/test_set.hpp>

#include <algorithm>
#include <optional>
#include <vector>

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
        training_(train_set,
                  {std::min(micro_batch(options), train_set.size()), true, augmentation_of(options), options.seed}) {
    // The training tests with mini-batches of the size for which it has a network.
    if (test_set) test_set_.emplace(comm, network, *test_set, std::min(micro_batch(options), train_set.size()));
  }

  Index size() const override { return train_set_.size(); }
  std::optional<Index> set_size() const override { return train_set_.size(); }
  void begin_epoch(int epoch) override { epoch_ = static_cast<std::uint64_t>(epoch); }

  void fill(const Queue<Exec>& queue, Index first, Index, Network<T, Exec>& network) override {
    load_mini_batch(comm_, queue, network_, training_, loader_, epoch_, first, network);
  }

  /// Two host batches for each set: one in use, one ahead.
  Index resident_bytes(const Network<T, Exec>& network) const override {
    const BatchPart part = part_of_batch(network, network_);
    const Index one = (part.input.empty() ? 0 : part.input.size()) + (part.output.empty() ? 0 : part.output.size());
    return (test_set_ ? 4 : 2) * one * static_cast<Index>(sizeof(T));
  }

  Index test_rest(Index batch) const override { return test_set_ ? test_set_->size() % batch : 0; }

  TestResult test(Networks<T>& networks, const Queue<Exec>& queue, Index batch,
                  const std::function<void(double)>& check_loss) override {
    return test_set_ ? test_set_->test(networks, queue, batch, epoch_, check_loss) : TestResult{};
  }
  std::vector<SampleResult> samples(Networks<T>& networks, const Queue<Exec>& queue, Index batch,
                                    Index count) override {
    return test_set_ ? test_set_->samples(networks, queue, batch, count) : std::vector<SampleResult>{};
  }

 private:
  const comm::Communicator& comm_;
  const NetworkDescription& network_;
  const Dataset& train_set_;
  std::uint64_t epoch_ = 0;
  BatchReader<T> training_;
  std::optional<BatchLoader<T, Exec>> loader_;  ///< made with the queue of the first mini-batch
  std::optional<TestSet<T>> test_set_;
};

}  // namespace aloni::nn

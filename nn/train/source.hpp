#pragma once
// The mini-batches of a training: of data sets (dataset_source.hpp), or of made-up data.
#include <aloni/nn/data/synthetic.hpp>
#include <aloni/nn/metrics.hpp>
#include <aloni/nn/sample_pictures.hpp>
#include <aloni/nn/train/networks.hpp>

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace aloni::nn {

/// Samples that a network computes at once.
inline Index micro_batch(const TrainOptions& options) { return options.batch / options.accumulate; }

template <class T>
class Source {
 public:
  using Exec = execution_space_t<T>;
  virtual ~Source() = default;
  /// Samples of one epoch.
  virtual Index size() const = 0;
  /// `epoch` counts from 0. The order of its samples depends on the seed and on it alone.
  virtual void begin_epoch(int epoch) = 0;
  /// Number of samples in the training set; none if the samples are made up and have no end.
  virtual std::optional<Index> set_size() const = 0;
  /// The samples first … first + samples - 1 of the epoch. Asynchronous on the queue.
  virtual void fill(const Queue<Exec>& queue, Index first, Index samples, Network<T, Exec>& network) = 0;
  /// Bytes of host memory that this rank takes for mini-batches of the network. Part of the predicted memory.
  virtual Index resident_bytes(const Network<T, Exec>&) const { return 0; }
  /// Samples of the incomplete last mini-batch of test(); 0: none.
  virtual Index test_rest(Index) const { return 0; }
  /// Evaluates the test set, if there is one. `check_loss` gets each loss. Collective.
  virtual TestResult test(Networks<T>& networks, const Queue<Exec>& queue, Index batch,
                          const std::function<void(double)>& check_loss) = 0;
  /// The first `count` samples of the test set with their predictions; none without a test set. Collective.
  virtual std::vector<SampleResult> samples(Networks<T>&, const Queue<Exec>&, Index /*batch*/, Index /*count*/) {
    return {};
  }
};

/// One epoch of `steps` full mini-batches.
template <class T>
class SyntheticSource : public Source<T> {
 public:
  using typename Source<T>::Exec;
  /// @pre the arguments outlive this object
  SyntheticSource(const NetworkDescription& network, const TrainOptions& options)
      : network_(network), options_(options) {}

  Index size() const override { return options_.steps * options_.batch; }
  std::optional<Index> set_size() const override { return std::nullopt; }
  void begin_epoch(int) override {}
  void fill(const Queue<Exec>& queue, Index first, Index, Network<T, Exec>& network) override {
    fill_synthetic(queue, network_, options_.seed, static_cast<std::uint64_t>(first / micro_batch(options_)), network);
  }
  TestResult test(Networks<T>&, const Queue<Exec>&, Index, const std::function<void(double)>&) override { return {}; }

 private:
  const NetworkDescription& network_;
  const TrainOptions& options_;
};

}  // namespace aloni::nn

#pragma once
// The mini-batches of a training: of a set of images, or of made-up data.
#include <aloni/core/random.hpp>
#include <aloni/nn/data/batch.hpp>
#include <aloni/nn/data/synthetic.hpp>
#include <aloni/nn/train/networks.hpp>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace aloni::nn {

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
  /// Accuracy on the test set, if there is one. `check_loss` gets each loss. Collective.
  virtual std::optional<double> test(Networks<T>& networks, const Queue<Exec>& queue, Index batch,
                                     const std::function<void(double)>& check_loss) = 0;
};

template <class T>
class ImageSource : public Source<T> {
 public:
  using typename Source<T>::Exec;
  /// @pre the arguments outlive this object
  ImageSource(const LabelledImages& train_set, const LabelledImages& test_set, const TrainOptions& options)
      : train_set_(train_set), test_set_(test_set), options_(options), order_(train_set.labels.size()) {}

  Index size() const override { return train_set_.size(); }
  std::optional<Index> set_size() const override { return train_set_.size(); }

  /// Fisher and Yates. Streams of random numbers below 2^32 are used by the parameters.
  void begin_epoch(int epoch) override {
    epoch_ = static_cast<std::uint64_t>(epoch);
    std::iota(order_.begin(), order_.end(), Index{0});
    for (std::size_t i = order_.size(); i > 1; --i) {
      std::swap(order_[i - 1], order_[random::integer(options_.seed, (std::uint64_t{1} << 32) + epoch_, i) % i]);
    }
  }

  void fill(const Queue<Exec>& queue, Index first, Index samples, Network<T, Exec>& network) override {
    const auto chosen = std::span<const Index>(order_).subspan(first, samples);
    draw_shifts(chosen);
    fill_batch(queue, train_set_, chosen, network, shifts_);
  }

  std::optional<double> test(Networks<T>& networks, const Queue<Exec>& queue, Index batch,
                             const std::function<void(double)>& check_loss) override {
    std::vector<Index> order(test_set_.labels.size());
    std::iota(order.begin(), order.end(), Index{0});
    Index correct = 0;
    for (Index first = 0; first < test_set_.size(); first += batch) {
      const Index samples = std::min(batch, test_set_.size() - first);
      auto& network = networks.of(samples);
      fill_batch(queue, test_set_, std::span<const Index>(order).subspan(first, samples), network);
      const StepResult result = network.evaluate(queue);
      check_loss(result.loss);
      correct += result.correct;
    }
    return static_cast<double>(correct) / static_cast<double>(test_set_.size());
  }

 private:
  /// Draws the shift of each sample from its position in the training set and the epoch. Equal on all ranks.
  void draw_shifts(std::span<const Index> chosen) {
    if (options_.shift == 0) return;
    const std::uint64_t choices = 2 * static_cast<std::uint64_t>(options_.shift) + 1;
    shifts_.clear();
    for (const Index sample : chosen) {
      const std::uint64_t bits =
          random::integer(options_.seed, (std::uint64_t{1} << 33) + epoch_, static_cast<std::uint64_t>(sample));
      shifts_.push_back({static_cast<int>((bits & 0xffffffff) % choices) - options_.shift,
                         static_cast<int>((bits >> 32) % choices) - options_.shift});
    }
  }

  const LabelledImages &train_set_, &test_set_;
  const TrainOptions& options_;
  std::vector<Index> order_;
  std::vector<Shift> shifts_;
  std::uint64_t epoch_ = 0;
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
    fill_synthetic(queue, network_, options_.seed, static_cast<std::uint64_t>(first / options_.batch), network);
  }
  std::optional<double> test(Networks<T>&, const Queue<Exec>&, Index, const std::function<void(double)>&) override {
    return std::nullopt;
  }

 private:
  const NetworkDescription& network_;
  const TrainOptions& options_;
};

}  // namespace aloni::nn

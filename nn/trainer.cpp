#include <aloni/nn/trainer.hpp>

#include <aloni/core/error.hpp>
#include <aloni/nn/detail/instantiate.hpp>
#include <aloni/nn/detail/replicated.hpp>
#include <aloni/nn/train/arguments.hpp>
#include <aloni/nn/train/dataset_source.hpp>
#include <aloni/nn/train/training.hpp>

#include <string>

namespace aloni::nn {

AugmentationOptions augmentation_of(const TrainOptions& options) {
  return {options.shift, options.flip, options.brightness, options.contrast};
}

template <class T>
TrainReport train(const comm::Communicator& comm, const NetworkDescription& description, const Strategy& strategy,
                  const LabelledImages& train_set, const LabelledImages& test_set, const TrainOptions& options,
                  TrainObserver* observer) {
  comm::ReplicatedValues data;
  detail::add_to(data, "training set", train_set);
  detail::add_to(data, "test set", test_set);
  check_replicated(comm, detail::element_name<T>(), description, strategy, data, options);
  if (description.loss != Loss::softmax_cross_entropy) {
    throw Unsupported(
        "aloni::nn::train", "loss", name(description.loss),
        "softmax_cross_entropy, as labelled images have class labels; train() of a Dataset has all losses");
  }
  const Dataset train = as_dataset(train_set);
  const std::optional<Dataset> test = as_dataset(test_set);
  check_arguments(description, train, test, options);
  DatasetSource<T> source(comm, description, train, test, options);
  return Training<T>(comm, description, strategy, source, options, observer).run();
}

template <class T>
TrainReport train(const comm::Communicator& comm, const NetworkDescription& description, const Strategy& strategy,
                  const Dataset& train_set, const std::optional<Dataset>& test_set, const TrainOptions& options,
                  TrainObserver* observer) {
  const auto data = comm::collectively(comm, "aloni::nn::train: fingerprints of the data sets", [&] {
    comm::ReplicatedValues values;
    detail::add_to(values, "training set", train_set);
    if (test_set) detail::add_to(values, "test set", *test_set);
    return values;
  });
  check_replicated(comm, detail::element_name<T>(), description, strategy, data, options);
  check_arguments(description, train_set, test_set, options);
  DatasetSource<T> source(comm, description, train_set, test_set, options);
  return Training<T>(comm, description, strategy, source, options, observer).run();
}

template <class T>
TrainReport train_on_synthetic_data(const comm::Communicator& comm, const NetworkDescription& description,
                                    const Strategy& strategy, const TrainOptions& options, TrainObserver* observer) {
  check_replicated(comm, detail::element_name<T>(), description, strategy, {}, options);
  check_arguments(options);
  if (options.steps < 1) {
    throw InvalidArgument("aloni::nn::train", "steps", std::to_string(options.steps),
                          "at least 1: made-up data have no end");
  }
  SyntheticSource<T> source(description, options);
  return Training<T>(comm, description, strategy, source, options, observer).run();
}

#define INSTANTIATE(T, Exec)                                                                                           \
  template TrainReport train<T>(const comm::Communicator&, const NetworkDescription&, const Strategy&,                 \
                                const LabelledImages&, const LabelledImages&, const TrainOptions&, TrainObserver*);    \
  template TrainReport train<T>(const comm::Communicator&, const NetworkDescription&, const Strategy&, const Dataset&, \
                                const std::optional<Dataset>&, const TrainOptions&, TrainObserver*);                   \
  template TrainReport train_on_synthetic_data<T>(const comm::Communicator&, const NetworkDescription&,                \
                                                  const Strategy&, const TrainOptions&, TrainObserver*);
ALONI_INSTANTIATE_ACTIVATIONS(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::nn

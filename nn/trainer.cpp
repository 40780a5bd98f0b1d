#include <aloni/nn/trainer.hpp>

#include <aloni/core/error.hpp>
#include <aloni/nn/detail/instantiate.hpp>
#include <aloni/nn/detail/replicated.hpp>
#include <aloni/nn/train/arguments.hpp>
#include <aloni/nn/train/source.hpp>
#include <aloni/nn/train/training.hpp>

#include <string>

namespace aloni::nn {

template <class T>
TrainReport train(const comm::Communicator& comm, const NetworkDescription& description, const Strategy& strategy,
                  const LabelledImages& train_set, const LabelledImages& test_set, const TrainOptions& options,
                  TrainObserver* observer) {
  check_replicated(comm, detail::element_name<T>(), description, strategy,
                   {{"training set", &train_set}, {"test set", &test_set}}, options);
  check_arguments(description, train_set, test_set, options);
  ImageSource<T> source(train_set, test_set, options);
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

#define INSTANTIATE(T, Exec)                                                                                        \
  template TrainReport train<T>(const comm::Communicator&, const NetworkDescription&, const Strategy&,              \
                                const LabelledImages&, const LabelledImages&, const TrainOptions&, TrainObserver*); \
  template TrainReport train_on_synthetic_data<T>(const comm::Communicator&, const NetworkDescription&,             \
                                                  const Strategy&, const TrainOptions&, TrainObserver*);
ALONI_INSTANTIATE_ACTIVATIONS(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::nn

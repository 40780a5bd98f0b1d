#include <aloni/tools/backend_argument.hpp>
#include <aloni/tools/inference_arguments.hpp>
#include <aloni/tools/model_argument.hpp>
#include <aloni/tools/option.hpp>
#include <aloni/tools/precision_argument.hpp>
#include <aloni/tools/together.hpp>

#include <utility>

namespace aloni::tools {

void InferenceArguments::add_options(CLI::App& command) {
  command_ = &command;
  add_option(command, "--weights", weights_, "Weights in a safetensors file, for example of aloni train --export",
             "FILE");
  add_option(command, "--checkpoint", checkpoint_,
             "Weights of the newest whole checkpoint in this folder of aloni train, or their average if it has one",
             "DIR");
  add_option(command, "--batch", batch_, "Samples at a time, summed over all ranks", "N");
  strategy_.add_options(command);
  add_precision_option(command, precision_);
  add_backend_option(command, backend_);
}

void InferenceArguments::check() const {
  for (const auto& [option, path] : {std::pair("--weights", weights_), std::pair("--checkpoint", checkpoint_)})
    if (command_->count(option) > 0 && path.empty()) refuse(option, "\"\"", "a path");
  if (weights_.empty() == checkpoint_.empty()) {
    refuse("--weights", weights_.empty() ? "not given" : weights_,
           weights_.empty() ? "a file of weights, or --checkpoint DIR" : "no --checkpoint beside it");
  }
  check_range("--batch", batch_, 1, most_of_an_option);
  check_computed_precision(precision_);
  backend_of(backend_);
  strategy_.check();
}

void InferenceArguments::add_to(comm::ReplicatedValues& values) const {
  values.add("--weights", weights_).add("--checkpoint", checkpoint_).add("--batch", batch_);
  strategy_.add_to(values);
  values.add("--precision", precision_).add("--backend", backend_);
}

nn::InferenceOptions InferenceArguments::options() const { return {.batch = batch_, .backend = backend_of(backend_)}; }

}  // namespace aloni::tools

#include <aloni/tools/model_argument.hpp>
#include <aloni/tools/network_arguments.hpp>
#include <aloni/tools/option.hpp>

namespace aloni::tools {

void NetworkArguments::add_options(CLI::App& command) {
  command_ = &command;
  add_option(command, "--model", model_, model_help(), "NAME|FILE.json");
  add_option(command, "--input", input_, "Extents of one sample, HxWxC or DxHxWxC; default: those of the model",
             "EXTENTS");
  command.add_option("--classes", classes_, "Classes of the last layer; default: those of the model")
      ->type_name("N")
      ->take_last()
      ->check(fits_64_bits);
}

void NetworkArguments::check() const {
  check_model(model_);
  for (const char* option : {"--input", "--classes"})
    check_not_with_model_file(model_, option, command_->count(option) > 0);
  if (command_->count("--input") > 0) check_input(input_);
  if (command_->count("--classes") > 0) check_range("--classes", classes_, 1, most_of_an_option);
}

void NetworkArguments::add_to(comm::ReplicatedValues& values) const {
  values.add("--model", model_).add("--input", input_).add("--classes", classes_);
}

nn::NetworkDescription NetworkArguments::network() const {
  nn::ModelOptions given;
  if (!input_.empty()) given.input = parse_input(input_);
  if (command_->count("--classes") > 0) given.classes = classes_;
  return network_of_model(model_, given);
}

}  // namespace aloni::tools

#pragma once
// The options that choose the network of a subcommand that only computes: --model, --input, --classes.
#include <aloni/core/comm/agreement.hpp>
#include <aloni/core/index.hpp>
#include <aloni/nn/network_description.hpp>

#include <string>
#include <utility>

namespace CLI {
class App;
}

namespace aloni::tools {

class NetworkArguments {
 public:
  /// `model`: without --model.
  explicit NetworkArguments(std::string model = "lenet5") : model_(std::move(model)) {}
  /// Adds the options to `command`. @pre this object outlives `command`
  void add_options(CLI::App& command);
  /// Throws UsageError for an unknown model, a value out of range, and an option that a model file does not have.
  void check() const;
  /// The options that all ranks must pass alike.
  void add_to(comm::ReplicatedValues& values) const;

  /// The argument of --model.
  const std::string& model() const { return model_; }
  /// Not collective. @pre check() has returned. Throws FileError, InvalidArgument.
  nn::NetworkDescription network() const;

 private:
  CLI::App* command_ = nullptr;
  std::string model_, input_;
  Index classes_ = 0;  // counts only if it is given
};

}  // namespace aloni::tools

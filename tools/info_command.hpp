#pragma once
// aloni info: versions, options and ranks of this build and run, for bug reports and for programs.
#include <aloni/core/comm/agreement.hpp>
#include <aloni/core/comm/communicator.hpp>

#include <string>

namespace CLI {
class App;
}

namespace aloni::tools {

class InfoCommand {
 public:
  /// Adds the subcommand and its options to `app`. @pre this object outlives `app`
  explicit InfoCommand(CLI::App& app);

  bool chosen() const;
  /// Throws UsageError.
  void check() const;
  /// The options that all ranks must pass alike. Of paths, only whether they are given.
  void add_to(comm::ReplicatedValues& values) const;
  /// Collective. Throws FileError on rank 0, PeerFailed on the others.
  void run(const comm::Communicator& comm) const;

 private:
  CLI::App* command_;
  std::string json_;
};

}  // namespace aloni::tools

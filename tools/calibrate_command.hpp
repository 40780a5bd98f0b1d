#pragma once
// aloni calibrate: measures all-reduce algorithms on the ranks of the job and prints the choice for each size.
#include <aloni/core/comm/agreement.hpp>
#include <aloni/core/comm/communicator.hpp>

#include <cstddef>
#include <string>

namespace CLI {
class App;
}

namespace aloni::tools {

class CalibrateCommand {
 public:
  /// Adds the subcommand and its options to `app`. @pre this object outlives `app`
  explicit CalibrateCommand(CLI::App& app);

  bool chosen() const;
  /// Throws UsageError.
  void check() const;
  /// The options that all ranks must pass alike. Of paths, only whether they are given.
  void add_to(comm::ReplicatedValues& values) const;
  /// Collective. Throws FileError on rank 0, PeerFailed on the others.
  void run(const comm::Communicator& comm) const;

 private:
  CLI::App* command_;
  std::string output_, json_;
  std::size_t largest_bytes_ = std::size_t{32} << 20;
  double seconds_ = 0.02;
};

}  // namespace aloni::tools

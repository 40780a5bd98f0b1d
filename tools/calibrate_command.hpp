#pragma once
// aloni calibrate: measures the machine of the job and its kernels, and writes them as a machine file.
#include <aloni/core/comm/agreement.hpp>
#include <aloni/core/comm/communicator.hpp>
#include <aloni/model/machine.hpp>
#include <aloni/tools/collective_measurement.hpp>
#include <aloni/tools/convolution_calibration.hpp>
#include <aloni/tools/machine_measurement.hpp>

#include <cstddef>
#include <string>
#include <vector>

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
  /// The machine of --output if --resume goes on with it; otherwise a new one, saved. Collective.
  model::Machine first_part(const comm::Communicator& comm) const;
  /// Adds the constants of messages, halo exchanges and collectives that `machine` lacks, with provenance, and saves
  /// the machine after each of the two measurements. Collective.
  std::vector<CommunicationTimes> add_communication(const comm::Communicator& comm, model::Machine& machine) const;
  MachineMeasurementOptions measurement_options() const;
  /// Writes the machine to --output if it is given, so that --resume goes on from here. Collective. Throws as run().
  void save(const comm::Communicator& comm, const model::Machine& machine) const;
  /// Seconds for kernels.
  double kernel_seconds() const;

  /// Adds the convolutions of --model. The result is the text about them, empty without --model. Collective.
  std::string add_convolutions_of_model(const comm::Communicator& comm, model::Machine& machine) const;

  CLI::App* command_;
  ConvolutionArguments convolutions_;
  std::string output_, json_, drawing_, tiles_;
  bool quick_ = false, resume_ = false;
  double kernels_ = 480;
  std::size_t largest_bytes_ = std::size_t{32} << 20;
  double seconds_ = 0.5;
};

}  // namespace aloni::tools

#pragma once
// The options --strategy and --complete of several subcommands: the split of each layer over the ranks.
//
//   StrategyArgument strategy{FewerBlocks::refused};
//   strategy.add_options(command);                         // then: app.parse(…), strategy.check()
//   const nn::Strategy splits = strategy.read(1024);       // --strategy h4w2 --complete n: n128h4w2
#include <aloni/core/comm/agreement.hpp>
#include <aloni/core/comm/communicator.hpp>
#include <aloni/nn/strategy.hpp>

#include <cstdint>
#include <string>
#include <utility>

namespace CLI {
class App;
}

namespace aloni::tools {

/// The meaning of a grid on the command line with fewer blocks than ranks. A training with it computes each block
/// several times, which a user hardly wants. Strategy files may always have such grids, for single layers.
enum class FewerBlocks : std::uint8_t { repeated, refused };

/// The grid with more blocks in one dimension, so that it has a block for each of `ranks` ranks. Unchanged if its
/// number of blocks does not divide `ranks`. `letter`: of nn::LayerSplit. @pre one of "n", "d", "h", "w", "c", "f"
nn::LayerSplit completed(nn::LayerSplit split, const std::string& letter, int ranks);

class StrategyArgument {
 public:
  /// `otherwise`: for the help text, the strategy without this option.
  explicit StrategyArgument(FewerBlocks fewer, std::string otherwise = "samples over all ranks")
      : fewer_(fewer), otherwise_(std::move(otherwise)) {}
  /// Adds the options to `command`. `others`: help for other values, which the command treats itself.
  /// @pre this object outlives `command`
  void add_options(CLI::App& command, const std::string& others = "");
  /// Throws UsageError for an empty strategy, an unknown letter, and --complete without a grid.
  void check() const;
  /// The options that all ranks must pass alike.
  void add_to(comm::ReplicatedValues& values) const;

  /// The strategy in the file that --strategy names, if it exists, otherwise its grid for all layers, completed.
  /// Without --strategy: samples over `ranks` ranks. Not collective.
  /// Throws UsageError, FileError, InvalidArgument.
  nn::Strategy read(int ranks) const;

  /// The same for the ranks of `comm`. Only rank 0 reads the file, so all ranks get the same strategy.
  /// Collective. Throws UsageError, FileError, InvalidArgument on rank 0, PeerFailed on the others.
  nn::Strategy read(const comm::Communicator& comm) const;

  /// Whether the user asks for the fastest strategy by the cost model: --strategy auto. Then read() must not be called.
  bool is_automatic() const { return strategy_ == "auto"; }
  /// Throws UsageError for options that --strategy auto does not take: --complete, --recompute, --offload.
  /// @pre is_automatic()
  void check_automatic() const;

  /// The argument of --strategy; empty if it is not given.
  const std::string& text() const { return strategy_; }

 private:
  CLI::App* command_ = nullptr;
  FewerBlocks fewer_;
  std::string otherwise_;
  std::string strategy_, complete_;
};

}  // namespace aloni::tools

#pragma once
// The splits of a layer that the search for a strategy considers, and the reason for which it rejects each other one.
//
//   const std::vector<LayerFacts> facts = facts_of(net, 64);
//   const Candidates found = candidates_of(facts[3], 16);
//   found.splits;                                       // n16, n8h2, n4h2w2, n4f4, …
//   for (const Rejection& r : found.rejected) std::cout << to_string(r.split) << ": " << reason(r) << "\n";
//
// A candidate has one block for each rank, and blocks of nearly equal size. Those with least communication are kept:
// ghosts, gathered inputs, partial sums, and gradients of weights. Where no split gives each rank a block, candidates
// have as many blocks as possible, and several ranks compute the same block.
// The overlap of the halo exchange is not part of the choice here: its price does not depend on other layers.
//
// Source: spatial-parallel-cnn, section V.C ("select distributions that are load balanced"). Pure.
#include <aloni/nn/network_description.hpp>
#include <aloni/nn/operation.hpp>
#include <aloni/nn/strategy.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace aloni::model {

/// The facts about a layer on which its candidates depend.
struct LayerFacts {
  nn::OperationProperties properties = {};
  int layer = 0;
  int spatial_rank = 2;
  std::vector<views::Extents> inputs = {};  ///< for the whole mini-batch
  views::Extents input = {}, output = {};   ///< input: as LayerPlan::input
  Index weights = 0;                        ///< learned elements
  bool last_before_softmax = false;         ///< its channels are not split (nn/strategy.hpp)
};

/// Throws as infer_extents().
std::vector<LayerFacts> facts_of(const nn::NetworkDescription& network, Index samples);

/// The split that a layer really has if the strategy names this one (nn/strategy.hpp): layers without space fold the
/// spatial blocks into samples, and layers without filters split channels by blocks of filters.
nn::LayerSplit effective_split(const LayerFacts& facts, const nn::LayerSplit& split);

enum class RejectionReason : std::uint8_t {
  unsupported,          ///< supports() refuses it; plans fold it to another split
  few_samples,          ///< more blocks than samples
  few_rows,             ///< more blocks than elements in a spatial dimension: some would be empty
  few_channels,         ///< more blocks than channels, or filters
  many_channel_blocks,  ///< CandidateOptions::most_channel_blocks
  idle_ranks,           ///< several ranks would compute each block
  uneven,               ///< the largest block exceeds the mean too much
  more_communication,   ///< other candidates move less data, and there are enough of them
};

struct Rejection {
  nn::LayerSplit split;
  RejectionReason reason = RejectionReason::unsupported;
  /// few_…: the elements. many_channel_blocks: the most. idle_ranks: the ranks per block. uneven: largest / mean.
  /// more_communication: the elements that a rank moves, divided by those of the best candidate.
  double value = 0;

  friend bool operator==(const Rejection&, const Rejection&) = default;
};
/// One sentence: "8 blocks of samples are more than 4 samples".
std::string reason(const Rejection& rejection);

struct Candidates {
  std::vector<nn::LayerSplit> splits = {};  ///< at least one; least communication first
  std::vector<Rejection> rejected = {};
};

struct CandidateOptions {
  int most = 40;
  /// Of channels times filters. Each block is a message for each rank of the group, in both passes.
  int most_channel_blocks = 128;
  double largest_imbalance = 1.5;  ///< of the largest block to the mean block, over all dimensions
  bool training = true;            ///< gradients count too
};

/// @pre ranks ≥ 1
Candidates candidates_of(const LayerFacts& facts, int ranks, const CandidateOptions& options = {});

/// Whether a block would have no element of the input, or of the output.
bool has_empty_blocks(const LayerFacts& facts, const nn::LayerSplit& split);

/// Largest block divided by mean block, over all dimensions. Empty blocks count as blocks.
double imbalance(const LayerFacts& facts, const nn::LayerSplit& split);

}  // namespace aloni::model

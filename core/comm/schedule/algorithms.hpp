#pragma once
// The collective algorithms. Each is a function that appends the steps of the calling rank to a builder. They work on
// regions, so that algorithms can be composed. A ring all-reduce is a reduce-scatter and an all-gather. The
// hierarchical all-reduce combines three algorithms on subsets of the ranks.
//
//   Builder b(rank);
//   ring_all_reduce(b, Team::all(rank, size), b.output(count));
//   Schedule s = b.finish();
//
// Costs: p is the number of ranks of the team, n the number of elements of the whole operation. "Per rank" counts the
// elements that each rank sends. Reductions combine contiguous ranges of positions, lower positions first; exceptions
// are stated.
#include <aloni/core/comm/schedule/builder.hpp>
#include <aloni/core/comm/schedule/team.hpp>

#include <vector>

namespace aloni::comm {

// --- all-reduce: in place; every rank gets the reduction of all ranks' `data` ---

/// Sends the whole data in log2(p) rounds: n log2(p) elements per rank. If p is no power of two, the ranks beyond the
/// largest power of two send one message before and receive one after. Fewest rounds: for small data.
/// Source: Thakur, Rabenseifner, Gropp: Optimization of collective communication operations in MPICH, 2005.
void recursive_doubling_all_reduce(Builder& b, const Team& team, Region data);

/// Reduce-scatter by recursive halving, then all-gather by recursive doubling. For powers of two: 2 n (p - 1) / p
/// elements per rank in 2 log2(p) messages.
/// Source: Rabenseifner: Optimization of collective reduction operations, 2004.
void rabenseifner_all_reduce(Builder& b, const Team& team, Region data);

/// Reduce-scatter and all-gather around a ring: 2 n (p - 1) / p elements per rank for every p, in 2 (p - 1) rounds
/// between neighbours. `segment`: maximal elements per message, so that adding overlaps receiving; 0: one message per
/// block. Exception: sums go around the ring, from the successor of the block's position on, not from 0 to p - 1.
/// Source: Patarasuk, Yuan: Bandwidth optimal all-reduce algorithms, 2009.
void ring_all_reduce(Builder& b, const Team& team, Region data, Index segment = 0);

/// A reduce-scatter within each node, an all-reduce of each block between nodes, and an all-gather within each node.
/// For q nodes, the link of a node carries 2 n (q - 1) / q elements per direction. `nodes`: the ranks of each node,
/// equally many. Throws Unsupported if nodes differ in size; InvalidArgument if `rank` is on no node.
void hierarchical_all_reduce(Builder& b, int rank, const std::vector<std::vector<int>>& nodes, Region data);

/// For ranks that share memory. Each rank reduces its block in the data of all ranks, in one pass and two rounds of
/// empty messages. The result has the same bits as recursive doubling. `staged`: this rank's data do not lie in shared
/// memory; the blocks of the other ranks are copied there before, and back afterwards. It may differ between ranks.
void direct_all_reduce(Builder& b, const Team& team, Region data, bool staged);

// --- reduce-scatter and all-gather: position i gets, or contributes, block_of(data, i, p) ---

/// (p - 1) rounds, n (p - 1) / p elements per rank. Overwrites the other blocks of `data` with intermediate values.
void ring_reduce_scatter(Builder& b, const Team& team, Region data, Index segment = 0);
/// (p - 1) rounds, n (p - 1) / p elements per rank.
void ring_all_gather(Builder& b, const Team& team, Region data, Index segment = 0);
/// ceil(log2 p) rounds for every p, n (p - 1) / p elements per rank. Uses scratch memory of n elements.
/// @pre data.count is a multiple of p; throws InvalidArgument otherwise.
/// Source: Bruck et al.: Efficient algorithms for all-to-all communications, 1997.
void bruck_all_gather(Builder& b, const Team& team, Region data);

// --- broadcast: all ranks get the data of position `root` ---

/// ceil(log2 p) rounds of the whole data: for small data.
void binomial_broadcast(Builder& b, const Team& team, Region data, int root);
/// A chain of ranks with messages of `segment` elements. It takes the time of n + (p - 2) × segment elements: for large
/// data. @pre segment > 0
void chain_broadcast(Builder& b, const Team& team, Region data, int root, Index segment);
/// Broadcasts to one rank of each node, then within the nodes. `nodes`: the ranks of each node, in any numbers. `root`:
/// a rank, not a position.
void hierarchical_broadcast(Builder& b, int rank, const std::vector<std::vector<int>>& nodes, Region data, int root);

// --- all-to-all: block j of `input` of position i becomes block i of `output` of position j ---

/// p - 1 messages per rank, each block directly to its destination: for large blocks. Blocks may have different sizes:
/// `counts[i][j]` elements go from position i to j. They lie in the order of ranks in both buffers.
void pairwise_all_to_all(Builder& b, const Team& team, Region input, Region output,
                         const std::vector<std::vector<Index>>& counts);
/// ceil(log2 p) messages per rank, each of about half the data: for small blocks.
/// @pre both counts are the same multiple of p. Source: Bruck et al. 1997, see above.
void bruck_all_to_all(Builder& b, const Team& team, Region input, Region output);

// --- barrier ---

/// ceil(log2 p) rounds of empty messages.
/// Source: Hensgen, Finkel, Manber: Two algorithms for barrier synchronization, 1988.
void dissemination_barrier(Builder& b, const Team& team);

}  // namespace aloni::comm

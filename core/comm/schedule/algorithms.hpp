#pragma once
// The collective algorithms, each a function that appends its steps for the calling rank to a builder. They work on regions, so
// larger ones are put together from smaller ones (a ring all-reduce is a reduce-scatter and an all-gather; the hierarchical
// one runs three of them on parts of the ranks).
//
//   Builder b(rank);
//   ring_all_reduce(b, Team::all(rank, size), b.output(count));
//   Schedule s = b.finish();
//
// p is the size of the team, n the elements of the whole operation, "per rank" what each rank sends. Reductions combine
// contiguous ranges of positions, lower positions first, wherever the algorithm allows (it says so where not).
#include <aloni/core/comm/schedule/builder.hpp>
#include <aloni/core/comm/schedule/team.hpp>

#include <vector>

namespace aloni::comm {

// --- all-reduce: in place, every rank gets the reduction of all ranks' `data` ---

/// log2(p) rounds of the whole data: n log2(p) elements per rank; when p is no power of two, one more message before and after on the
/// ranks beyond it. Fewest rounds: for small data. (Thakur, Rabenseifner, Gropp: Optimization of collective
/// communication operations in MPICH, 2005)
void recursive_doubling_all_reduce(Builder& b, const Team& team, Region data);

/// Reduce-scatter by recursive halving, all-gather by recursive doubling: 2 n (p - 1) / p elements per rank in 2 log2(p) messages
/// for powers of two. (Rabenseifner: Optimization of collective reduction operations, 2004)
void rabenseifner_all_reduce(Builder& b, const Team& team, Region data);

/// Reduce-scatter and all-gather around a ring: 2 n (p - 1) / p elements per rank for every p, neighbours only, 2 (p - 1) rounds.
/// Messages of at most `segment` elements, so that adding overlaps receiving (0: one message per block). Sums go around the ring:
/// positions from the block's own successor on, not 0 … p - 1. (Patarasuk, Yuan: Bandwidth optimal
/// all-reduce algorithms, 2009)
void ring_all_reduce(Builder& b, const Team& team, Region data, Index segment = 0);

/// Within each node a reduce-scatter, between the nodes an all-reduce of each rank's part with its counterparts, within each node
/// an all-gather: a link between nodes carries 2 n (q - 1) / q elements per direction and node for q nodes. `nodes` lists the ranks of each
/// node; all of one size.
void hierarchical_all_reduce(Builder& b, int rank, const std::vector<std::vector<int>>& nodes, Region data);

/// For ranks that share memory: each reduces its block in everybody's data, in one pass and two rounds of empty messages. `staged`: this
/// rank's data isn't in shared memory; the others' blocks of it are copied there before, and back after (ranks may differ in that).
/// The same bits as recursive doubling.
void direct_all_reduce(Builder& b, const Team& team, Region data, bool staged);

// --- reduce-scatter and all-gather: position i has, or gets, block_of(data, i, p) ---

/// (p - 1) rounds, n (p - 1) / p elements per rank; the other blocks of `data` are destroyed.
void ring_reduce_scatter(Builder& b, const Team& team, Region data, Index segment = 0);
/// (p - 1) rounds, n (p - 1) / p elements per rank.
void ring_all_gather(Builder& b, const Team& team, Region data, Index segment = 0);
/// ceil(log2 p) rounds for every p, n (p - 1) / p elements per rank, through scratch memory of n elements. Blocks of equal size only.
/// (Bruck et al.: Efficient algorithms for all-to-all communications, 1997) @pre data.count is a multiple of p
void bruck_all_gather(Builder& b, const Team& team, Region data);

// --- broadcast: everybody gets the data of position `root` ---

/// ceil(log2 p) rounds of the whole data: for small data.
void binomial_broadcast(Builder& b, const Team& team, Region data, int root);
/// One rank after the other, in messages of `segment` elements that follow each other down the chain: n + (p - 2) segment elements'
/// time for large data. @pre segment > 0
void chain_broadcast(Builder& b, const Team& team, Region data, int root, Index segment);
/// To one rank of each other node first, then within the nodes. `nodes` as above, of any sizes; `root` is a rank.
void hierarchical_broadcast(Builder& b, int rank, const std::vector<std::vector<int>>& nodes, Region data, int root);

// --- all-to-all: block j of `input` goes to position j, where it becomes block i of `output` (i: the sender) ---

/// p - 1 messages per rank, each block straight to its place: for large blocks. Blocks need not be equal:
/// `counts[i][j]` elements go from position i to j, one after the other in both buffers.
void pairwise_all_to_all(Builder& b, const Team& team, Region input, Region output,
                         const std::vector<std::vector<Index>>& counts);
/// ceil(log2 p) messages per rank of about half the data each: for small blocks. (Bruck et al. 1997)
/// @pre both counts are the same multiple of p
void bruck_all_to_all(Builder& b, const Team& team, Region input, Region output);

// --- barrier ---

/// ceil(log2 p) rounds of empty messages. (Hensgen, Finkel, Manber: Two algorithms for barrier synchronization, 1988)
void dissemination_barrier(Builder& b, const Team& team);

}  // namespace aloni::comm

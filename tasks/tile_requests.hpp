#pragma once
// TileRequests: how the tiles of a task graph reach the ranks that read them. One object per rank decides which request
// and which tile goes to which rank. It is a pure state machine: no thread, no message, no clock.
//
//   TileRequests tiles(rank, size);
//   tiles.produced(key, {2, 3, 5});            // this rank has written the tile; three ranks read it
//   tiles.need(other_key, owner);              // a task of this rank reads a tile of another rank
//   tiles.request_arrived(request);            // messages of other ranks
//   tiles.payload_arrived(other_key, clients);
//   for (const TileAction& a : tiles.take_actions()) …   // after each event: send, deliver, free
//
// Use comm::Broadcast instead where all ranks come to the same call at the same time.
//
// The broadcast. No rank sends a tile unasked, since only its reader knows when it has room. Each rank that reads a
// tile asks the owner once. The owner has a list of the clients of the tile, each with its server; at first it serves
// all itself. It answers a request with the tile, and hands half of the clients that it still serves to the new copy.
// The answer carries that half. A request of a client that was handed on is forwarded to its server. So a tree grows in
// the order of the requests. The client-server list is that of Tsujita, Endo and Fujisawa, "The Scalable Petascale
// Data-Driven Approach for the Cholesky Factorization with Multiple GPUs", ESPM2 2015. Two differences: half of the
// clients is handed on, and clients that have asked already are handed on with their requests, without a message.
//
// Costs of a tile with c clients, c < P ranks:
//   payloads   c, the least possible: each client gets one.
//   sends      at most floor(log2(c + 1)) by the owner, and no more by any copy: s(c) = 1 + s(floor((c - 1) / 2)).
//   requests   c, each forwarded at most floor(log2(c)) times: a copy gets at most ceil((c - 1) / 2) clients.
// Ranks of one node are handed on to each other first. A client may accept fewer clients than half (set_most_clients),
// for example none when its memory is short. Then its server keeps them, and the bound of sends does not hold.
//
// Every request is answered. The server of a client has the tile, or its payload is on the way: it became the server by
// that payload. So a request follows servers, each later in the tree, to one that serves the client itself. A request
// that overtakes the payload waits there. Messages may come in any order, also between two ranks.
//
// Termination. A rank has finished once its tasks have ended, its own payloads have left, its copies are freed, and all
// its lists are empty. Then no message to it exists or will be sent:
//   - A payload goes to a rank only as the answer to its request. Its tasks have ended, so all answers have come.
//   - A request reaches a rank only while this rank has its client in a list: as the owner, which all clients ask once,
//     or as the server, to which each client is handed on once. The tasks have ended, so all tiles of the owner are
//     produced and all its lists are known. An entry disappears only with the request of its client. So an empty list
//     has no request on the way.
// Each list becomes empty, because each client asks once. So no message of termination is needed, and a rank may leave
// while others still work.
//
// Memory. A copy lives until its rank has released it and its list is empty. With set_most_clients(0) it lives only
// until the release. Let all ranks then ask in the order of their tasks, and let these orders agree with one order of
// all tasks. A limit on the copies of a rank cannot deadlock in this case: the first task that has not run finds room.
// The least limit is the largest number of copies between their first and last use.
//
// Errors. InvalidArgument on this rank for a wrong event of its tasks, CommunicationError for a message that no correct
// rank sends. Both leave the object as it was. Neither reaches other ranks: the caller poisons the communicator.
#include <aloni/core/flat_map.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

namespace aloni::tasks {

/// Names the contents of a tile on all ranks: the tile, and its version if other ranks read several of its contents.
using TileKey = std::uint64_t;

/// A request for a tile, as sent to its owner and forwarded unchanged. Trivially copyable.
struct TileRequest {
  TileKey tile = 0;
  std::int32_t client = -1;       ///< the rank that reads the tile
  std::int32_t most_clients = 0;  ///< number of clients that it accepts to serve later

  friend bool operator==(const TileRequest&, const TileRequest&) = default;
};

/// A client that a payload hands to its receiver. Trivially copyable.
struct TileClient {
  static constexpr std::int32_t not_asked = -1;

  std::int32_t rank = -1;
  std::int32_t most_clients = not_asked;  ///< of its request; not_asked: its request will be forwarded

  friend bool operator==(const TileClient&, const TileClient&) = default;
};

/// What the caller does next, in this order.
struct TileAction {
  enum class Kind : std::uint8_t {
    send_request,     ///< send `request` to `rank`
    forward_request,  ///< the same, for another rank's request
    send_payload,     ///< send the tile and `clients` to `rank`, then call sent()
    deliver,          ///< the tile is here: its tasks may run
    free_copy,        ///< no task and no client needs this copy any more
    served,           ///< all clients of an own tile have it: its memory may be overwritten
    finished          ///< this rank gets no message any more. The last action.
  };

  Kind kind{};
  TileKey tile = 0;
  int rank = -1;
  TileRequest request{};
  std::vector<TileClient> clients{};
};

class TileRequests {
 public:
  static constexpr int any_number = std::numeric_limits<std::int32_t>::max();

  /// Counted since construction.
  struct Counts {
    std::uint64_t requests = 0, forwarded = 0, payloads = 0;  ///< sent by this rank
    std::uint64_t copies = 0;                                 ///< copies that arrived
    std::uint64_t freed = 0;                                  ///< copies that were freed
    std::uint64_t handed_on = 0;                              ///< clients given to other ranks
    std::uint64_t most_sends = 0;                             ///< largest number of payloads of one tile
  };

  /// `nodes[r]`: number of the node of rank r; empty: all ranks are on one node. Clients are handed on to a rank of
  /// their own node if there is one, so that fewer payloads cross between nodes.
  /// @pre 0 ≤ rank < size; nodes is empty or has `size` values. Throws InvalidArgument.
  TileRequests(int rank, int size, std::vector<int> nodes = {});

  // --- events of this rank's tasks ---

  /// A task has written the tile. `clients`: all other ranks that read it, each once. A tile that no task writes is
  /// produced at the start. @pre not produced or needed before. Throws InvalidArgument; CommunicationError if a rank
  /// has asked that is no client.
  void produced(TileKey tile, std::span<const int> clients);
  /// Tasks of this rank will read a tile of `owner`. Once for each tile, at any time before the tasks read it.
  /// @pre 0 ≤ owner < size, another rank. Throws InvalidArgument.
  void need(TileKey tile, int owner);
  /// The last task of this rank has read the copy. @pre delivered. Throws InvalidArgument.
  void released(TileKey tile);
  /// All tasks of this rank have ended: no produced() and need() follows. @pre all needed tiles were delivered and
  /// released. Throws InvalidArgument; CommunicationError if a rank has asked for a tile that this rank never had.
  void tasks_finished();
  /// Largest number of clients that later requests of this rank accept: any_number at first, 0 to keep copies no longer
  /// than own tasks read them. @pre n ≥ 0. Throws InvalidArgument.
  void set_most_clients(int n);

  // --- messages ---

  /// Throws CommunicationError: a rank asks twice, is no client, or asks after the end.
  void request_arrived(const TileRequest& request);
  /// Throws CommunicationError: this rank waits for no such tile, or its clients are wrong.
  void payload_arrived(TileKey tile, std::span<const TileClient> clients);
  /// A payload of send_payload has left: its memory is no longer read. Throws InvalidArgument.
  void sent(TileKey tile);

  /// The actions since the last call.
  std::vector<TileAction> take_actions();
  bool finished() const { return finished_; }
  /// Whether this rank has asked for a tile that has not arrived.
  bool awaits(TileKey tile) const;
  const Counts& counts() const { return counts_; }
  /// Copies of other ranks' tiles that are here or asked for.
  std::size_t copies() const { return copies_; }
  /// Tiles asked for that have not arrived, with their owners, as one line for error texts; at most four of them.
  std::string waiting_for() const;

 private:
  struct Entry {
    std::int32_t client = -1;
    std::int32_t server = -1;  // -1: this rank
    std::int32_t most_clients = TileClient::not_asked;
  };
  enum class State : std::uint8_t { unknown, awaited, own, copy };
  struct Tile {
    State state = State::unknown;
    bool in_use = false;             // tasks of this rank have not released the copy
    std::uint32_t sending = 0;       // payloads that have not left
    std::uint32_t sends = 0;         // payloads
    std::int32_t owner = -1;         // of an awaited tile
    std::vector<Entry> list;         // clients whose requests have not come
    std::vector<TileRequest> early;  // requests that came before the tile
  };
  using Tiles = FlatMap<TileKey, Tile>;

  std::string name_of(TileKey tile) const;
  void check_early(TileKey key, const Tile& tile, std::span<const TileClient> clients) const;
  void fill(TileKey key, Tile& tile, std::span<const TileClient> clients);
  void answer(TileKey key, Tile& tile);
  void serve(TileKey key, Tile& tile, const Entry& client);
  std::vector<std::size_t> choose(const std::vector<Entry>& list, const Entry& server) const;
  int node_of(int rank) const { return nodes_.empty() ? 0 : nodes_[static_cast<std::size_t>(rank)]; }
  void settle(Tiles::iterator tile);
  void finish();

  int rank_, size_;
  std::vector<int> nodes_;
  std::int32_t most_clients_ = any_number;
  bool tasks_finished_ = false, finished_ = false;
  std::size_t copies_ = 0;
  Tiles tiles_;
  std::vector<TileAction> actions_;
  Counts counts_;
};

}  // namespace aloni::tasks

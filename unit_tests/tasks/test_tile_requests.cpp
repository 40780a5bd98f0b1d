// Tiles on request: hand-made cases of one tile, and simulated ranks whose messages arrive in any order. The simulation
// checks counts against the bounds of the header, values against a serial run, freed copies and the end of each rank.
#include "tasks/tile_task.hpp"

#include <support/random_cases.hpp>

#include <aloni/core/error.hpp>
#include <aloni/tasks/tile_requests.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace test_tile_requests {

using namespace aloni::tasks;
using aloni::CommunicationError;
using aloni::InvalidArgument;
using aloni::test::TileTask;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Kind = TileAction::Kind;

constexpr TileKey tile = 7;

TileRequest request(int client, int most_clients = TileRequests::any_number) {
  return {.tile = tile, .client = client, .most_clients = most_clients};
}

std::vector<Kind> kinds(const std::vector<TileAction>& actions) {
  std::vector<Kind> result;
  for (const TileAction& a : actions) result.push_back(a.kind);
  return result;
}

std::vector<TileAction> of_kind(const std::vector<TileAction>& actions, Kind kind) {
  std::vector<TileAction> result;
  for (const TileAction& a : actions)
    if (a.kind == kind) result.push_back(a);
  return result;
}

/// The text of the error, and whether it has this type.
template <class E, class F>
std::string error_of(const F& f) {
  try {
    f();
  } catch (const E& error) {
    return error.what();
  } catch (const std::exception& error) {
    return std::string("another type: ") + error.what();
  }
  return "no error";
}

// --- one tile ---

TEST(TileRequests, OwnerServesTheFirstClientAndForwardsThoseItHandedOn) {
  TileRequests owner(1, 6);
  owner.produced(tile, std::vector{2, 3, 4, 5});
  owner.request_arrived(request(3));
  std::vector<TileAction> actions = owner.take_actions();
  ASSERT_THAT(kinds(actions), ElementsAre(Kind::send_payload));
  EXPECT_EQ(actions[0].rank, 3);
  EXPECT_THAT(actions[0].clients, ElementsAre(TileClient{.rank = 2}, TileClient{.rank = 5}));

  owner.request_arrived(request(2));
  actions = owner.take_actions();
  ASSERT_THAT(kinds(actions), ElementsAre(Kind::forward_request));
  EXPECT_EQ(actions[0].rank, 3);
  EXPECT_EQ(actions[0].request, request(2));

  owner.request_arrived(request(4));
  EXPECT_THAT(kinds(owner.take_actions()), ElementsAre(Kind::send_payload));
  owner.request_arrived(request(5));
  EXPECT_THAT(kinds(owner.take_actions()), ElementsAre(Kind::forward_request));
  EXPECT_EQ(owner.counts().payloads, 2u);
  EXPECT_EQ(owner.counts().forwarded, 2u);
}

TEST(TileRequests, OwnerIsServedOnceAllPayloadsHaveLeft) {
  TileRequests owner(0, 3);
  owner.produced(tile, std::vector{1, 2});
  owner.request_arrived(request(1));
  owner.request_arrived(request(2));
  owner.tasks_finished();
  EXPECT_THAT(kinds(owner.take_actions()), ElementsAre(Kind::send_payload, Kind::forward_request));
  EXPECT_FALSE(owner.finished());
  owner.sent(tile);
  EXPECT_THAT(kinds(owner.take_actions()), ElementsAre(Kind::served, Kind::finished));
  EXPECT_TRUE(owner.finished());
}

/// Requests before the tile: one payload to the first, which takes every second one along, without more messages.
TEST(TileRequests, WaitingRequestsAreHandedOnWithThePayload) {
  TileRequests owner(0, 6);
  for (const int client : {5, 3, 1, 4}) owner.request_arrived(request(client));
  EXPECT_THAT(owner.take_actions(), IsEmpty());
  owner.produced(tile, std::vector{1, 2, 3, 4, 5});
  const std::vector<TileAction> actions = owner.take_actions();
  ASSERT_THAT(kinds(actions), ElementsAre(Kind::send_payload, Kind::send_payload));
  EXPECT_EQ(actions[0].rank, 5);
  EXPECT_THAT(actions[0].clients,
              ElementsAre(TileClient{3, TileRequests::any_number}, TileClient{4, TileRequests::any_number}));
  EXPECT_EQ(actions[1].rank, 1);
  EXPECT_THAT(actions[1].clients, ElementsAre(TileClient{.rank = 2}));
}

TEST(TileRequests, ACopyServesItsClientsAndIsFreedAfterThem) {
  TileRequests reader(3, 6);
  reader.need(tile, 1);
  ASSERT_THAT(kinds(reader.take_actions()), ElementsAre(Kind::send_request));
  reader.request_arrived(request(4));  // overtakes the payload
  EXPECT_THAT(reader.take_actions(), IsEmpty());
  reader.payload_arrived(tile, std::vector<TileClient>{{.rank = 2}, {.rank = 4}});
  std::vector<TileAction> actions = reader.take_actions();
  ASSERT_THAT(kinds(actions), ElementsAre(Kind::deliver, Kind::send_payload));
  EXPECT_EQ(actions[1].rank, 4);
  EXPECT_THAT(actions[1].clients, ElementsAre(TileClient{.rank = 2}));
  reader.released(tile);
  reader.tasks_finished();
  reader.sent(tile);
  EXPECT_THAT(reader.take_actions(), IsEmpty());  // rank 2 has not asked
  reader.request_arrived(request(2));
  EXPECT_THAT(kinds(reader.take_actions()), ElementsAre(Kind::forward_request, Kind::free_copy, Kind::finished));
  EXPECT_EQ(reader.copies(), 0u);
}

TEST(TileRequests, AClientThatAcceptsNoneGetsNone) {
  TileRequests owner(0, 6), reader(1, 6);
  reader.set_most_clients(0);
  reader.need(tile, 0);
  const TileRequest asked = reader.take_actions().at(0).request;
  EXPECT_EQ(asked.most_clients, 0);
  owner.produced(tile, std::vector{1, 2, 3, 4, 5});
  owner.request_arrived(asked);
  EXPECT_THAT(owner.take_actions().at(0).clients, IsEmpty());
  owner.request_arrived(request(2, 1));
  EXPECT_THAT(owner.take_actions().at(0).clients, ElementsAre(TileClient{.rank = 3}));
}

/// Four nodes of two ranks: three payloads go to other nodes, the least possible.
TEST(TileRequests, ClientsAreHandedOnWithinTheirNode) {
  TileRequests owner(0, 8, {0, 0, 1, 1, 2, 2, 3, 3});
  owner.produced(tile, std::vector{1, 2, 3, 4, 5, 6, 7});
  owner.request_arrived(request(5));
  std::vector<TileAction> actions = owner.take_actions();
  ASSERT_THAT(kinds(actions), ElementsAre(Kind::send_payload));
  EXPECT_THAT(actions[0].clients, ElementsAre(TileClient{.rank = 2}, TileClient{.rank = 3}, TileClient{.rank = 4}));
  owner.request_arrived(request(7));
  EXPECT_THAT(owner.take_actions().at(0).clients, ElementsAre(TileClient{.rank = 6}));
  owner.request_arrived(request(1));
  EXPECT_THAT(owner.take_actions().at(0).clients, IsEmpty());
  EXPECT_THROW(TileRequests(0, 2, {0}), InvalidArgument);

  TileRequests two_nodes(0, 4, {0, 0, 1, 1});  // one payload goes to the other node
  two_nodes.produced(tile, std::vector{1, 2, 3});
  two_nodes.request_arrived(request(2));
  EXPECT_THAT(two_nodes.take_actions().at(0).clients, ElementsAre(TileClient{.rank = 3}));
}

TEST(TileRequests, ATileWithoutOtherReadersIsServedAtOnce) {
  TileRequests owner(0, 1);
  owner.produced(tile, {});
  EXPECT_THAT(kinds(owner.take_actions()), ElementsAre(Kind::served));
  owner.tasks_finished();
  EXPECT_THAT(kinds(owner.take_actions()), ElementsAre(Kind::finished));
}

// --- errors ---

TEST(TileRequests, RefusesWrongEventsOfItsTasks) {
  TileRequests r(0, 3);
  EXPECT_THROW(TileRequests(3, 3), InvalidArgument);
  EXPECT_THROW(r.produced(tile, std::vector{0}), InvalidArgument);
  EXPECT_THROW(r.produced(tile, std::vector{3}), InvalidArgument);
  EXPECT_THROW(r.produced(tile, std::vector{1, 1}), InvalidArgument);
  EXPECT_THROW(r.need(tile, 0), InvalidArgument);
  EXPECT_THROW(r.released(tile), InvalidArgument);
  EXPECT_THROW(r.sent(tile), InvalidArgument);
  EXPECT_THROW(r.set_most_clients(-1), InvalidArgument);
  EXPECT_THAT(r.take_actions(), IsEmpty());
  r.need(tile, 1);
  EXPECT_THROW(r.need(tile, 1), InvalidArgument);
  EXPECT_THROW(r.produced(tile, std::vector{1}), InvalidArgument);
  EXPECT_THROW(r.released(tile), InvalidArgument);
  EXPECT_THAT(error_of<InvalidArgument>([&] { r.tasks_finished(); }), HasSubstr("not delivered"));
  EXPECT_EQ(r.waiting_for(), "tile 7 of rank 1");
  r.payload_arrived(tile, {});
  EXPECT_THAT(error_of<InvalidArgument>([&] { r.tasks_finished(); }), HasSubstr("not released"));
  r.released(tile);
  r.tasks_finished();
  EXPECT_TRUE(r.finished());
  EXPECT_THROW(r.need(8, 1), InvalidArgument);
  EXPECT_THROW(r.produced(8, {}), InvalidArgument);
}

TEST(TileRequests, RefusesMessagesThatNoCorrectRankSends) {
  TileRequests r(0, 4);
  EXPECT_THAT(error_of<CommunicationError>([&] { r.payload_arrived(tile, {}); }), HasSubstr("payload of tile 7"));
  EXPECT_THROW(r.request_arrived(request(0)), CommunicationError);
  EXPECT_THROW(r.request_arrived(request(4)), CommunicationError);
  EXPECT_THROW(r.request_arrived(request(1, -1)), CommunicationError);
  r.request_arrived(request(1));
  EXPECT_THAT(error_of<CommunicationError>([&] { r.request_arrived(request(1)); }), HasSubstr("the second one"));
  EXPECT_THAT(error_of<CommunicationError>([&] { r.produced(tile, std::vector{2}); }), HasSubstr("not a client"));
  r.produced(tile, std::vector{1, 2});  // the failed call has changed nothing
  EXPECT_THROW(r.request_arrived(request(1)), CommunicationError);
  EXPECT_THAT(error_of<CommunicationError>([&] { r.request_arrived(request(3)); }), HasSubstr("not expected"));

  r.need(8, 1);
  EXPECT_THROW(r.payload_arrived(8, std::vector<TileClient>{{.rank = 0}}), CommunicationError);
  EXPECT_THROW(r.payload_arrived(8, std::vector<TileClient>{{.rank = 2}, {.rank = 2}}), CommunicationError);
  r.request_arrived({.tile = 8, .client = 2});
  EXPECT_THROW(r.payload_arrived(8, std::vector<TileClient>{{.rank = 2, .most_clients = 1}}), CommunicationError);
  r.payload_arrived(8, std::vector<TileClient>{{.rank = 2}});
  EXPECT_THROW(r.payload_arrived(8, {}), CommunicationError);
}

TEST(TileRequests, FindsRequestsForTilesThatItNeverHad) {
  TileRequests r(0, 4);
  r.request_arrived(request(2));
  EXPECT_THAT(error_of<CommunicationError>([&] { r.tasks_finished(); }), HasSubstr("request of rank 2 for tile 7"));
  TileRequests ended(0, 4);
  ended.tasks_finished();
  EXPECT_THAT(error_of<CommunicationError>([&] { ended.request_arrived(request(2)); }), HasSubstr("any more"));
}

// --- simulated ranks ---

/// Ranks with their tasks, one event at a time. The seed chooses the next of all possible events: a message arrives, a
/// payload has left, a rank asks for a tile or runs a task.
class Simulation {
 public:
  /// `most_clients`: of all requests. `rooms`: copies of a rank at a time, or 0: no limit. With a limit, each rank runs
  /// its tasks in their order, and asks in the order of its first uses.
  Simulation(std::vector<TileTask> tasks, int size, std::uint64_t seed, int most_clients, bool limited)
      : tasks_(std::move(tasks)),
        random_(seed),
        values_(tasks_.size()),
        limited_(limited),
        unbounded_(most_clients > size) {
    order_ = static_cast<Order>(random_() % 3);
    std::vector<int> nodes;  // several ranks of each node, not always neighbours
    const auto num_nodes = 1 + random_() % 4;
    for (int r = 0; r < size; ++r) nodes.push_back(static_cast<int>(random_() % num_nodes));
    for (int r = 0; r < size; ++r) {
      Rank& rank = ranks_.emplace_back(Rank{.tiles = TileRequests(r, size, nodes)});
      rank.tiles.set_most_clients(most_clients);
    }
    slow_ = static_cast<int>(random_() % ranks_.size());
    for (std::size_t i = 0; i < tasks_.size(); ++i) {
      Tile& written = tiles_[tasks_[i].writes];
      written.owner = tasks_[i].rank;
      Rank& rank = ranks_[static_cast<std::size_t>(tasks_[i].rank)];
      rank.tasks.push_back(i);
      for (const TileKey key : tasks_[i].reads) {
        tiles_.at(key).readers.push_back(i);
        if (tiles_[key].owner == tasks_[i].rank) continue;
        tiles_[key].clients.insert(tasks_[i].rank);
        if (rank.uses[key]++ == 0) rank.to_ask.push_back(key);
      }
    }
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      if (limited_) ranks_[r].room = room_of(ranks_[r]);
      const auto asks = limited_ ? std::min<std::size_t>(1, ranks_[r].to_ask.size()) : ranks_[r].to_ask.size();
      for (std::size_t n = 0; n < asks; ++n) events_.push_back({.kind = Event::ask, .rank = static_cast<int>(r)});
      if (ranks_[r].tasks.empty()) end_tasks(static_cast<int>(r));
    }
    for (std::size_t i = 0; i < tasks_.size(); ++i) offer(i);
  }

  void run() {
    while (!events_.empty() && !testing::Test::HasFatalFailure()) {
      const Event e = take();
      happen(e);
      // With a limit, an event that frees room or ends a task lets its rank ask or run again.
      if (limited_ && events_.empty()) retry();
    }
    if (!testing::Test::HasFatalFailure()) check_end();
  }

  std::uint64_t payloads() const { return payloads_; }

 private:
  enum class Order { any, oldest_first, slow_rank };

  struct Event {
    enum Kind { message_request, message_payload, left, ask, run } kind{};
    int rank = 0;  ///< where it happens
    TileKey tile = 0;
    TileRequest request{};
    std::vector<TileClient> clients{};
    std::uint64_t value = 0;
    std::size_t task = 0;
  };
  struct Rank {
    TileRequests tiles;
    std::vector<std::size_t> tasks{};
    std::size_t done = 0;
    std::map<TileKey, int> uses{};           ///< of other ranks' tiles, left
    std::map<TileKey, std::uint64_t> has{};  ///< own tiles and copies
    std::vector<TileKey> to_ask{};
    std::size_t asked = 0, room = 0, freed = 0;
    bool finished = false;
  };
  struct Tile {
    int owner = -1;
    std::set<int> clients;
    std::vector<std::size_t> readers;     ///< tasks
    std::map<int, int> sends;             ///< of each rank
    std::map<int, int> got, forwarded;    ///< by each client
    std::map<int, std::size_t> handed{};  ///< clients of each copy
    bool served = false;
  };

  Rank& at(int r) { return ranks_[static_cast<std::size_t>(r)]; }

  /// Most copies that a rank needs at a time if it runs its tasks in order and asks for a tile at its first use.
  std::size_t room_of(const Rank& rank) const {
    std::map<TileKey, int> left = rank.uses;
    std::set<TileKey> held;
    std::size_t most = 1;
    for (const std::size_t t : rank.tasks) {
      for (const TileKey key : tasks_[t].reads)
        if (left.contains(key)) held.insert(key);
      most = std::max(most, held.size());
      for (const TileKey key : tasks_[t].reads)
        if (left.contains(key) && --left[key] == 0) held.erase(key);
    }
    return most;
  }

  Event take() {
    std::size_t i = random_() % events_.size();
    if (order_ == Order::oldest_first && random_() % 4 > 0) i = 0;
    if (order_ == Order::slow_rank) {  // it acts when nothing else can happen, or rarely
      for (int tries = 0; tries < 8 && events_[i].rank == slow_; ++tries) i = random_() % events_.size();
    }
    Event e = std::move(events_[i]);
    if (order_ == Order::oldest_first) {
      events_.erase(events_.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      events_[i] = std::move(events_.back());
      events_.pop_back();
    }
    return e;
  }

  void happen(const Event& e) {
    Rank& rank = at(e.rank);
    switch (e.kind) {
      case Event::message_request:
        ASSERT_FALSE(rank.finished) << "a request for the finished rank " << e.rank;
        rank.tiles.request_arrived(e.request);
        break;
      case Event::message_payload: {
        ASSERT_FALSE(rank.finished) << "a payload for the finished rank " << e.rank;
        Tile& t = tiles_.at(e.tile);
        ASSERT_EQ(++t.got[e.rank], 1) << "rank " << e.rank << " got tile " << e.tile << " twice";
        t.handed[e.rank] = e.clients.size();
        rank.has[e.tile] = e.value;
        rank.tiles.payload_arrived(e.tile, e.clients);
        break;
      }
      case Event::left:
        ASSERT_TRUE(rank.has.contains(e.tile)) << "memory of tile " << e.tile << " freed while it was sent";
        rank.tiles.sent(e.tile);
        break;
      case Event::ask:
        ask(e.rank);
        break;
      case Event::run:
        run_task(e.task);
        break;
    }
    act(e.rank);
  }

  void ask(int r) {
    Rank& rank = at(r);
    if (rank.asked == rank.to_ask.size() || (limited_ && rank.tiles.copies() >= rank.room)) return;
    // Without a limit in any order.
    if (!limited_) {
      std::swap(rank.to_ask[rank.asked], rank.to_ask[rank.asked + random_() % (rank.to_ask.size() - rank.asked)]);
    }
    const TileKey key = rank.to_ask[rank.asked++];
    rank.tiles.need(key, tiles_.at(key).owner);
    if (limited_) {
      ASSERT_LE(rank.tiles.copies(), rank.room);
      events_.push_back({.kind = Event::ask, .rank = r});
    }
  }

  /// All ranks that have room ask; possible only once nothing else happens, which is the hardest case.
  void retry() {
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      const Rank& rank = ranks_[r];
      if (rank.asked < rank.to_ask.size() && rank.tiles.copies() < rank.room)
        events_.push_back({.kind = Event::ask, .rank = static_cast<int>(r)});
    }
  }

  /// Adds the event of a task whose tiles are all here.
  void offer(std::size_t task) {
    const TileTask& t = tasks_[task];
    Rank& rank = at(t.rank);
    if (rank.has.contains(t.writes) || offered_.contains(task)) return;
    if (limited_ && rank.tasks[rank.done] != task) return;
    for (const TileKey key : t.reads)
      if (!rank.has.contains(key)) return;
    offered_.insert(task);
    events_.push_back({.kind = Event::run, .rank = t.rank, .task = task});
  }

  void run_task(std::size_t task) {
    const TileTask& t = tasks_[task];
    Rank& rank = at(t.rank);
    std::vector<std::uint64_t> read;
    for (const TileKey key : t.reads) {
      ASSERT_TRUE(rank.has.contains(key)) << "tile " << key << " freed before its task";
      read.push_back(rank.has[key]);
    }
    values_[task] = rank.has[t.writes] = aloni::test::value_of(task, read);
    Tile& written = tiles_.at(t.writes);
    rank.tiles.produced(t.writes, std::vector<int>(written.clients.begin(), written.clients.end()));
    for (const TileKey key : t.reads) {
      const auto uses = rank.uses.find(key);
      if (uses != rank.uses.end() && --uses->second == 0) rank.tiles.released(key);
    }
    ++rank.done;
    if (rank.done == rank.tasks.size()) {
      end_tasks(t.rank);
    } else if (limited_) {
      offer(rank.tasks[rank.done]);
    }
    for (const std::size_t reader : written.readers)
      if (tasks_[reader].rank == t.rank) offer(reader);
  }

  void end_tasks(int r) {
    at(r).tiles.tasks_finished();
    act(r);
  }

  void act(int r) {
    Rank& rank = at(r);
    for (TileAction& a : rank.tiles.take_actions()) {
      ASSERT_FALSE(rank.finished) << "an action after finished";
      switch (a.kind) {
        case Kind::send_request:
        case Kind::forward_request:
          if (a.kind == Kind::forward_request) ++tiles_.at(a.tile).forwarded[a.request.client];
          ASSERT_FALSE(at(a.rank).finished) << "a request to the finished rank " << a.rank;
          events_.push_back({.kind = Event::message_request, .rank = a.rank, .request = a.request});
          break;
        case Kind::send_payload:
          ASSERT_FALSE(at(a.rank).finished) << "a payload to the finished rank " << a.rank;
          ASSERT_TRUE(rank.has.contains(a.tile)) << "rank " << r << " sends tile " << a.tile << " without having it";
          ++tiles_.at(a.tile).sends[r];
          ++payloads_;
          events_.push_back({.kind = Event::message_payload,
                             .rank = a.rank,
                             .tile = a.tile,
                             .clients = std::move(a.clients),
                             .value = rank.has[a.tile]});
          events_.push_back({.kind = Event::left, .rank = r, .tile = a.tile});
          break;
        case Kind::deliver:
          for (const std::size_t reader : tiles_.at(a.tile).readers)
            if (tasks_[reader].rank == r) offer(reader);
          break;
        case Kind::free_copy:
          ASSERT_EQ(rank.has.erase(a.tile), 1u);
          ASSERT_EQ(rank.uses.at(a.tile), 0);
          ++rank.freed;
          break;
        case Kind::served:
          ASSERT_FALSE(std::exchange(tiles_.at(a.tile).served, true));
          break;
        case Kind::finished:
          rank.finished = true;
          for (const Event& e : events_) {
            ASSERT_TRUE(e.rank != r || e.kind == Event::ask) << "rank " << r << " finished before event " << e.kind;
          }
          break;
      }
    }
  }

  void check_end() {
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      ASSERT_TRUE(ranks_[r].finished) << "rank " << r << " hangs: " << ranks_[r].tiles.waiting_for();
      ASSERT_EQ(ranks_[r].freed, ranks_[r].uses.size()) << "rank " << r << " kept copies";
      ASSERT_EQ(ranks_[r].tiles.counts().requests, ranks_[r].uses.size());
    }
    EXPECT_EQ(values_, aloni::test::serial_values(tasks_));
    for (const auto& [key, t] : tiles_) {
      ASSERT_TRUE(t.served);
      ASSERT_EQ(t.got.size(), t.clients.size()) << "payloads of tile " << key;
      for (const auto& [client, times] : t.forwarded)
        ASSERT_LE(times, std::bit_width(t.clients.size()) - 1) << "tile " << key;
      if (!unbounded_) continue;
      for (const auto& [rank, sends] : t.sends) {
        // floor(log2(clients + 1)), of which the owner has all, and a copy those handed to it.
        const std::size_t clients = rank == t.owner ? t.clients.size() : t.handed.at(rank);
        ASSERT_LE(sends, std::bit_width(clients + 1) - 1) << "rank " << rank << ", tile " << key;
      }
    }
  }

  std::vector<TileTask> tasks_;
  std::mt19937_64 random_;
  std::vector<Rank> ranks_;
  std::map<TileKey, Tile> tiles_;
  std::vector<Event> events_;
  std::vector<std::uint64_t> values_;
  std::set<std::size_t> offered_;
  Order order_{};
  bool limited_, unbounded_;
  int slow_ = 0;
  std::uint64_t payloads_ = 0;
};

/// One case of a seed: 2 to 16 ranks, a random graph or a Cholesky factorisation.
void simulate(std::uint64_t seed, std::uint64_t& payloads) {
  std::mt19937_64 random(seed);
  const int size = 2 + static_cast<int>(random() % 15);
  std::vector<TileTask> tasks;
  if (random() % 4 == 0) {
    int rows = 1 + static_cast<int>(random() % 4);
    while (size % rows != 0) --rows;
    tasks = aloni::test::cholesky_tasks(2 + static_cast<int>(random() % 5), rows, size / rows);
  } else {
    tasks = aloni::test::random_tasks(random, size, 60);
  }
  const bool limited = random() % 4 == 0;
  const int most_clients = limited ? 0 : random() % 4 == 0 ? static_cast<int>(random() % 3) : TileRequests::any_number;
  Simulation simulation(std::move(tasks), size, seed, most_clients, limited);
  simulation.run();
  payloads += simulation.payloads();
}

TEST(TileRequests, RanksEndWithTheRightTilesInEveryOrderOfMessages) {
  const int seeds = aloni::test::random_cases(10'000);
  std::uint64_t payloads = 0;
  for (int seed = 0; seed < seeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    simulate(static_cast<std::uint64_t>(seed), payloads);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(payloads, 20u * static_cast<std::uint64_t>(seeds));
}

/// All ranks read one tile: the counts of the header are reached, not only kept.
TEST(TileRequests, OneTileForAllRanksTakesLogarithmicallyManySends) {
  for (int size = 2; size <= 16; ++size) {
    TileRequests owner(0, size);
    std::vector<int> clients;
    for (int r = 1; r < size; ++r) clients.push_back(r);
    for (const int r : clients) owner.request_arrived(request(r));
    owner.produced(tile, clients);
    const auto payloads = of_kind(owner.take_actions(), Kind::send_payload);
    EXPECT_EQ(payloads.size(), std::bit_width(static_cast<unsigned>(size)) - 1u) << size << " ranks";
    std::size_t reached = payloads.size();
    for (const TileAction& a : payloads) reached += a.clients.size();
    EXPECT_EQ(reached, clients.size());
  }
}

}  // namespace test_tile_requests

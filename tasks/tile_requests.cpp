#include <aloni/tasks/tile_requests.hpp>

#include <aloni/core/error.hpp>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

namespace aloni::tasks {

namespace {

constexpr const char* tile_requests_name = "aloni::tasks::TileRequests";

std::string request_of(const TileRequest& q) {
  return "request of rank " + std::to_string(q.client) + " for tile " + std::to_string(q.tile);
}

}  // namespace

TileRequests::TileRequests(int rank, int size, std::vector<int> nodes)
    : rank_(rank), size_(size), nodes_(std::move(nodes)) {
  if (rank < 0 || rank >= size) {
    throw InvalidArgument(tile_requests_name, "rank", std::to_string(rank) + " of " + std::to_string(size),
                          "0 or more, below the number of ranks");
  }
  if (!nodes_.empty() && nodes_.size() != static_cast<std::size_t>(size)) {
    throw InvalidArgument(tile_requests_name, "nodes.size()", std::to_string(nodes_.size()),
                          "one for each of " + std::to_string(size) + " ranks, or none");
  }
}

std::string TileRequests::name_of(TileKey tile) const {
  return "tile " + std::to_string(tile) + " on rank " + std::to_string(rank_);
}

// --- events of this rank's tasks ---

void TileRequests::produced(TileKey key, std::span<const int> clients) {
  if (tasks_finished_)
    throw InvalidArgument(tile_requests_name, name_of(key), "produced after tasks_finished()", "an earlier call");
  std::vector<TileClient> list;
  for (const int client : clients) {
    if (client < 0 || client >= size_ || client == rank_) {
      throw InvalidArgument(tile_requests_name, "client of " + name_of(key), std::to_string(client),
                            "another rank, 0 to " + std::to_string(size_ - 1));
    }
    if (std::ranges::find(list, client, &TileClient::rank) != list.end()) {
      throw InvalidArgument(tile_requests_name, "client of " + name_of(key), std::to_string(client) + " twice",
                            "each rank that reads the tile, once");
    }
    list.push_back({.rank = client});
  }
  const auto found = tiles_.find(key);
  if (found != tiles_.end()) {
    if (found->second.state != State::unknown) {
      throw InvalidArgument(tile_requests_name, name_of(key), "produced after it was produced or needed",
                            "another key for each contents");
    }
    check_early(key, found->second, list);
  }
  const auto tile = tiles_.try_emplace(key).first;
  tile->second.state = State::own;
  fill(key, tile->second, list);
  settle(tile);
}

void TileRequests::need(TileKey key, int owner) {
  if (tasks_finished_)
    throw InvalidArgument(tile_requests_name, name_of(key), "needed after tasks_finished()", "an earlier call");
  if (owner < 0 || owner >= size_ || owner == rank_) {
    throw InvalidArgument(tile_requests_name, "owner of " + name_of(key), std::to_string(owner),
                          "another rank, 0 to " + std::to_string(size_ - 1));
  }
  Tile& tile = tiles_[key];
  if (tile.state != State::unknown) {
    throw InvalidArgument(tile_requests_name, name_of(key), "needed after it was needed or produced",
                          "one call for all tasks that read it");
  }
  tile.state = State::awaited;
  tile.owner = owner;
  ++copies_;
  ++counts_.requests;
  actions_.push_back({.kind = TileAction::Kind::send_request,
                      .tile = key,
                      .rank = owner,
                      .request = {.tile = key, .client = rank_, .most_clients = most_clients_}});
}

void TileRequests::released(TileKey key) {
  const auto tile = tiles_.find(key);
  if (tile == tiles_.end() || !tile->second.in_use) {
    throw InvalidArgument(tile_requests_name, name_of(key), "released without a copy in use",
                          "one call, after its delivery");
  }
  tile->second.in_use = false;
  settle(tile);
}

void TileRequests::tasks_finished() {
  for (const auto& [key, tile] : tiles_) {
    if (tile.state == State::unknown) {
      throw CommunicationError(tile_requests_name, request_of(tile.early.front()),
                               "a tile that rank " + std::to_string(rank_) + " has not, or had sent to it before",
                               "one request of each reader to the owner");
    }
    if (tile.state == State::awaited || tile.in_use) {
      throw InvalidArgument(tile_requests_name, name_of(key), tile.in_use ? "not released" : "not delivered",
                            "tasks_finished() after the last task has read its tiles");
    }
  }
  tasks_finished_ = true;
  finish();
}

void TileRequests::set_most_clients(int n) {
  if (n < 0) throw InvalidArgument(tile_requests_name, "most_clients", std::to_string(n), "0 or more");
  most_clients_ = n;
}

// --- messages ---

void TileRequests::request_arrived(const TileRequest& q) {
  if (q.client < 0 || q.client >= size_ || q.client == rank_ || q.most_clients < 0) {
    throw CommunicationError(tile_requests_name, request_of(q),
                             "accepts " + std::to_string(q.most_clients) + " clients",
                             "another rank than " + std::to_string(rank_) + " that accepts 0 or more clients");
  }
  const auto found = tiles_.find(q.tile);
  if (found == tiles_.end() || found->second.state == State::unknown || found->second.state == State::awaited) {
    if (tasks_finished_) {
      throw CommunicationError(tile_requests_name, request_of(q),
                               "rank " + std::to_string(rank_) + " has no such tile any more",
                               "one request of each reader");
    }
    std::vector<TileRequest>& early = tiles_[q.tile].early;
    if (std::ranges::find(early, q.client, &TileRequest::client) != early.end())
      throw CommunicationError(tile_requests_name, request_of(q), "the second one", "one request of each reader");
    early.push_back(q);
    return;
  }
  std::vector<Entry>& list = found->second.list;
  const auto entry = std::ranges::find(list, q.client, &Entry::client);
  if (entry == list.end()) {
    throw CommunicationError(tile_requests_name, request_of(q),
                             "not expected on rank " + std::to_string(rank_) + ", or the second one",
                             "one request of each reader of the tile");
  }
  entry->most_clients = q.most_clients;
  answer(q.tile, found->second);
  settle(found);
}

void TileRequests::payload_arrived(TileKey key, std::span<const TileClient> clients) {
  const auto tile = tiles_.find(key);
  if (tile == tiles_.end() || tile->second.state != State::awaited) {
    throw CommunicationError(tile_requests_name, "payload of " + name_of(key), "arrived",
                             "only payloads that this rank has asked for, once");
  }
  for (std::size_t i = 0; i < clients.size(); ++i) {
    const TileClient& c = clients[i];
    const bool twice = std::ranges::find(clients.first(i), c.rank, &TileClient::rank) != clients.first(i).end();
    if (c.rank >= 0 && c.rank < size_ && c.rank != rank_ && c.most_clients >= TileClient::not_asked && !twice) continue;
    throw CommunicationError(tile_requests_name, "client in the payload of " + name_of(key), std::to_string(c.rank),
                             "other ranks, each once, that accept 0 or more clients");
  }
  check_early(key, tile->second, clients);
  tile->second.state = State::copy;
  tile->second.in_use = true;
  ++counts_.copies;
  actions_.push_back({.kind = TileAction::Kind::deliver, .tile = key});
  fill(key, tile->second, clients);
  settle(tile);
}

void TileRequests::sent(TileKey key) {
  const auto tile = tiles_.find(key);
  if (tile == tiles_.end() || tile->second.sending == 0)
    throw InvalidArgument(tile_requests_name, name_of(key), "sent", "one call for each payload that this rank sends");
  --tile->second.sending;
  settle(tile);
}

std::vector<TileAction> TileRequests::take_actions() { return std::exchange(actions_, {}); }

bool TileRequests::awaits(TileKey key) const {
  const auto tile = tiles_.find(key);
  return tile != tiles_.end() && tile->second.state == State::awaited;
}

std::string TileRequests::waiting_for() const {
  constexpr int most_named = 4;
  std::string text;
  int named = 0;
  std::size_t others = 0;
  for (const auto& [key, tile] : tiles_) {
    if (tile.state != State::awaited) continue;
    if (++named > most_named) {
      ++others;
      continue;
    }
    text += (text.empty() ? "" : "; ") + ("tile " + std::to_string(key)) + " of rank " + std::to_string(tile.owner);
  }
  if (others > 0) text += "; " + std::to_string(others) + " others";
  return text;
}

// --- the list of one tile ---

/// Throws if a request that came before the tile is of no client, or of one whose request the server has seen.
void TileRequests::check_early(TileKey key, const Tile& tile, std::span<const TileClient> clients) const {
  for (const TileRequest& q : tile.early) {
    const auto client = std::ranges::find(clients, q.client, &TileClient::rank);
    if (client != clients.end() && client->most_clients == TileClient::not_asked) continue;
    throw CommunicationError(tile_requests_name, request_of(q),
                             client == clients.end() ? "not a client of " + name_of(key) : "the second one",
                             "one request of each reader of the tile");
  }
}

/// Makes the list: clients whose requests have come first, in the order of the requests. Answers these.
void TileRequests::fill(TileKey key, Tile& tile, std::span<const TileClient> clients) {
  tile.list.reserve(clients.size());
  for (const TileClient& c : clients)
    if (c.most_clients != TileClient::not_asked) tile.list.push_back({c.rank, -1, c.most_clients});
  for (const TileRequest& q : tile.early) tile.list.push_back({q.client, -1, q.most_clients});
  const std::size_t asked = tile.list.size();
  for (const TileClient& c : clients) {
    if (c.most_clients != TileClient::not_asked) continue;
    if (std::ranges::find(tile.early, c.rank, &TileRequest::client) == tile.early.end())
      tile.list.push_back({.client = c.rank});
  }
  tile.early = {};
  if (asked > 0) answer(key, tile);
}

/// Serves or forwards all requests that have come. Serving one may remove others.
void TileRequests::answer(TileKey key, Tile& tile) {
  for (std::size_t i = 0; i < tile.list.size();) {
    const Entry e = tile.list[i];
    if (e.most_clients == TileClient::not_asked) {
      ++i;
      continue;
    }
    tile.list.erase(tile.list.begin() + static_cast<std::ptrdiff_t>(i));
    if (e.server < 0) {
      serve(key, tile, e);
      i = 0;
      continue;
    }
    ++counts_.forwarded;
    actions_.push_back({.kind = TileAction::Kind::forward_request,
                        .tile = key,
                        .rank = e.server,
                        .request = {.tile = key, .client = e.client, .most_clients = e.most_clients}});
  }
}

/// Positions in the list of the clients to hand on: half of those that this rank serves, but at most the number that
/// the new server accepts. First those of its node, then those of third nodes, node by node, then those of this rank's
/// node. Within a node evenly spread. The list begins with those that have asked, and both ranks shall get some of
/// them.
std::vector<std::size_t> TileRequests::choose(const std::vector<Entry>& list, const Entry& server) const {
  const int here = node_of(rank_), there = node_of(server.client);
  std::array<std::vector<std::size_t>, 3> groups;
  std::size_t served = 0;
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (list[i].server >= 0) continue;
    ++served;
    const int node = node_of(list[i].client);
    groups[node == there ? 0 : node != here ? 1 : 2].push_back(i);
  }
  std::ranges::stable_sort(groups[1], {}, [&](std::size_t i) { return node_of(list[i].client); });
  std::size_t left = std::min((served + 1) / 2, static_cast<std::size_t>(server.most_clients));
  std::vector<std::size_t> chosen;
  for (const std::vector<std::size_t>& group : groups) {
    const std::size_t n = group.size(), taken = std::min(left, n);
    for (std::size_t i = 0; i < taken; ++i)
      chosen.push_back(group[&group == &groups[1] ? i : (i * n + taken - 1) / taken]);
    left -= taken;
  }
  std::ranges::sort(chosen);
  return chosen;
}

/// Sends the tile to a client that has left the list, and hands clients on to it.
void TileRequests::serve(TileKey key, Tile& tile, const Entry& client) {
  std::vector<TileClient> handed;
  const std::vector<std::size_t> chosen = choose(tile.list, client);
  for (const std::size_t i : chosen) {
    Entry& e = tile.list[i];
    handed.push_back({.rank = e.client, .most_clients = e.most_clients});
    e.server = client.client;
  }
  // The requests of the others come here and are forwarded.
  std::erase_if(tile.list,
                [&](const Entry& e) { return e.server == client.client && e.most_clients != TileClient::not_asked; });
  ++tile.sending;
  ++counts_.payloads;
  counts_.most_sends = std::max<std::uint64_t>(counts_.most_sends, ++tile.sends);
  counts_.handed_on += handed.size();
  actions_.push_back(
      {.kind = TileAction::Kind::send_payload, .tile = key, .rank = client.client, .clients = std::move(handed)});
}

/// Forgets a tile that this rank has no duty for any more.
void TileRequests::settle(Tiles::iterator at) {
  const Tile& tile = at->second;
  const bool is_copy = tile.state == State::copy;
  if (!tile.list.empty() || tile.sending > 0 || (is_copy && tile.in_use)) return;
  actions_.push_back({.kind = is_copy ? TileAction::Kind::free_copy : TileAction::Kind::served, .tile = at->first});
  if (is_copy) {
    --copies_;
    ++counts_.freed;
  }
  tiles_.erase(at);
  finish();
}

void TileRequests::finish() {
  if (!tasks_finished_ || !tiles_.empty() || finished_) return;
  finished_ = true;
  actions_.push_back({.kind = TileAction::Kind::finished});
}

}  // namespace aloni::tasks

#include <aloni/core/comm/transport/shared_transport.hpp>

#include <aloni/core/error.hpp>

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

namespace aloni::comm::detail {

namespace {

enum Path : std::uint8_t { in_cell, in_block, in_heap };

constexpr std::size_t num_cells = 64;  // per ring
constexpr std::size_t small_block = 16 * 1024, large_block = 128 * 1024;
constexpr std::size_t num_small = 32, num_large = 16;
constexpr std::size_t num_loans = 128;  // payloads in the heap that peers read at the same time
// Up to this size, copying costs less than telling the sender that its memory is free again.
constexpr std::size_t heap_bytes = 16 * 1024;
constexpr std::size_t heap_fragment = std::size_t{1} << 30;

/// Follows the header in a cell without payload.
struct Place {
  SharedAddress address{};
  std::uint32_t flag = 0;  // number of the flag that the receiver clears after reading the payload
};

struct Introduction {
  std::int32_t process = 0, descriptor = -1;
  std::uint64_t token[2] = {};
};

}  // namespace

struct SharedTransport::Cell {
  static constexpr std::size_t payload_bytes = 256 - sizeof(std::uint64_t) - sizeof(Header);

  std::atomic<std::uint64_t> stamp;  // number of the message in the ring, from 1; 0: none yet
  Header header;
  std::byte payload[payload_bytes];
};

struct alignas(64) SharedTransport::Ring {
  alignas(64) std::atomic<std::uint64_t> consumed;  // written by the receiver
  alignas(64) Cell cells[num_cells];
};

struct alignas(64) SharedTransport::Blocks {
  struct alignas(64) Flag {
    std::atomic<std::uint32_t> busy;
  };
  Flag flags[num_small + num_large + num_loans];  // small blocks, then large blocks, then loans
  alignas(4096) std::byte small[num_small][small_block];
  alignas(4096) std::byte large[num_large][large_block];

  std::byte* data(std::size_t block) { return block < num_small ? small[block] : large[block - num_small]; }
};

struct SharedTransport::Control {
  std::uint64_t token[2];
  Blocks blocks;
  // Rings follow, one for each rank of the node.

  static std::size_t bytes(std::size_t ranks) { return sizeof(Control) + ranks * sizeof(Ring); }
  Ring* rings() { return reinterpret_cast<Ring*>(this + 1); }
};

SharedTransport::SharedTransport(SharedHeap& heap, int rank, std::vector<int> ranks, const GatherBytes& all_gather)
    : heap_(heap),
      index_(static_cast<int>(std::ranges::find(ranks, rank) - ranks.begin())),
      control_(Control::bytes(ranks.size())),
      index_of_(static_cast<std::size_t>(ranks.back()) + 1, -1) {
  static_assert(sizeof(Cell) == 256 && std::atomic<std::uint64_t>::is_always_lock_free);
  // A new segment contains zeros, the initial value of all its fields.
  auto* const control = reinterpret_cast<Control*>(control_.data());
  blocks_ = &control->blocks;
  Introduction me{.process = getpid(), .descriptor = control_.descriptor()};
  for (std::size_t i = num_loans; i-- > 0;)
    free_loans_.push_back(static_cast<std::uint32_t>(num_small + num_large + i));
  loans_.reserve(num_loans);
  for (std::size_t i = 0; i < 2; ++i) control->token[i] = me.token[i] = random_token();
  const std::vector<Introduction> all = gather(all_gather, me);

  std::vector<std::uint8_t> opened(ranks.size(), 0);
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    index_of_[static_cast<std::size_t>(ranks[i])] = static_cast<int>(i);
    const Introduction& them = all[i];
    if (static_cast<int>(i) == index_) {
      peers_.push_back(nullptr);
      continue;
    }
    try {
      SharedSegment segment(them.process, them.descriptor, control_.bytes());
      auto* const theirs = reinterpret_cast<Control*>(segment.data());
      // In another PID namespace, this PID belongs to a different process.
      opened[i] = theirs->token[0] == them.token[0] && theirs->token[1] == them.token[1];
      peers_.push_back(std::make_unique<Peer>(
          Peer{.rank = ranks[i], .segment = std::move(segment), .heap = PeerMemory(them.process)}));
      peers_.back()->outgoing = theirs->rings() + index_;
      peers_.back()->incoming = control->rings() + i;
      peers_.back()->blocks = &theirs->blocks;
    } catch (const CommunicationError&) {
      peers_.push_back(nullptr);
    }
  }
  // Both directions must work.
  const std::vector<std::byte> matrix = all_gather(std::as_bytes(std::span(opened)));
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (!opened[i]) continue;
    peers_[i]->reachable = std::to_integer<int>(matrix[i * ranks.size() + static_cast<std::size_t>(index_)]) != 0;
  }
}

SharedTransport::~SharedTransport() = default;

bool SharedTransport::reaches(int rank) const {
  if (rank < 0 || static_cast<std::size_t>(rank) >= index_of_.size()) return false;
  const int i = index_of_[static_cast<std::size_t>(rank)];
  return i >= 0 && peers_[static_cast<std::size_t>(i)] && peers_[static_cast<std::size_t>(i)]->reachable;
}

SharedTransport::Peer& SharedTransport::peer_of(int rank) {
  return *peers_[static_cast<std::size_t>(index_of_[static_cast<std::size_t>(rank)])];
}

std::size_t SharedTransport::largest_fragment(int, const void* data, std::size_t bytes) const {
  if (bytes <= heap_bytes) return heap_bytes;
  return heap_.address_of(data, bytes).descriptor >= 0 ? heap_fragment : large_block;
}

SharedTransport::Cell* SharedTransport::free_cell(Peer& peer) {
  if (peer.sent - peer.consumed == num_cells) {
    peer.consumed = peer.outgoing->consumed.load(std::memory_order_acquire);
    if (peer.sent - peer.consumed == num_cells) return nullptr;
  }
  return &peer.outgoing->cells[peer.sent % num_cells];
}

Transport::Sent SharedTransport::send(int rank, const Header& header, const void* data, std::uint32_t ticket) {
  Peer& peer = peer_of(rank);
  Cell* const cell = free_cell(peer);
  if (!cell) return Sent::no_room;
  Sent result = Sent::copied;
  if (header.bytes <= Cell::payload_bytes) {
    cell->header = header;
    cell->header.path = in_cell;
    if (header.bytes > 0) std::memcpy(cell->payload, data, header.bytes);
  } else {
    Place place;
    if (header.bytes > heap_bytes) place.address = heap_.address_of(data, header.bytes);
    std::uint8_t path = in_heap;
    if (place.address.descriptor >= 0) {
      if (free_loans_.empty()) return Sent::no_room;
      place.flag = free_loans_.back();
      free_loans_.pop_back();
      loans_.push_back({place.flag, ticket});
      blocks_->flags[place.flag].busy.store(1, std::memory_order_relaxed);
      result = Sent::pending;
    } else {
      const bool is_small = header.bytes <= small_block;
      std::size_t& next = is_small ? next_small_ : next_large_;
      const std::size_t first = is_small ? 0 : num_small, count = is_small ? num_small : num_large;
      std::size_t tries = 0;
      while (blocks_->flags[first + next].busy.load(std::memory_order_acquire)) {
        next = (next + 1) % count;
        if (++tries == count) return Sent::no_room;
      }
      const std::size_t block = first + next;
      next = (next + 1) % count;
      blocks_->flags[block].busy.store(1, std::memory_order_relaxed);
      std::memcpy(blocks_->data(block), data, header.bytes);
      place.flag = static_cast<std::uint32_t>(block);
      path = in_block;
    }
    cell->header = header;
    cell->header.path = path;
    std::memcpy(cell->payload, &place, sizeof place);
  }
  cell->stamp.store(++peer.sent, std::memory_order_release);
  return result;
}

bool SharedTransport::poll(Sink& sink) {
  bool any = false;
  for (std::size_t i = 0; i < loans_.size();) {
    const Loan loan = loans_[i];
    if (blocks_->flags[loan.flag].busy.load(std::memory_order_acquire)) {
      ++i;
      continue;
    }
    any = true;
    loans_[i] = loans_.back();
    loans_.pop_back();
    free_loans_.push_back(loan.flag);
    sink.sent(loan.ticket);
  }
  for (const auto& p : peers_) {
    if (!p || !p->reachable) continue;
    Peer& peer = *p;
    while (true) {
      Cell& cell = peer.incoming->cells[peer.received % num_cells];
      if (cell.stamp.load(std::memory_order_acquire) != peer.received + 1) break;
      any = true;
      ++peer.received;
      Fragment fragment{.peer = peer.rank, .header = cell.header, .data = cell.payload};
      if (cell.header.path != in_cell) {
        Place place;
        std::memcpy(&place, cell.payload, sizeof place);
        fragment.stays = true;
        fragment.token = place.flag;
        fragment.data = cell.header.path == in_block ? peer.blocks->data(place.flag)
                                                     : peer.heap.at(place.address, cell.header.bytes);
      }
      sink.arrived(fragment);
      peer.incoming->consumed.store(peer.received, std::memory_order_release);
    }
  }
  return any;
}

void SharedTransport::release(const Fragment& fragment) {
  peer_of(fragment.peer).blocks->flags[fragment.token].busy.store(0, std::memory_order_release);
}

void SharedTransport::fetch(const Fragment&, void*, std::uint32_t) {
  // Never called: all payloads of this transport can be read in place.
}

// Peers only access memory of the heap. Its owner detaches the heap.
void SharedTransport::abandon() noexcept {}

std::byte* SharedTransport::exposed(int peer, const SharedAddress& address, std::size_t bytes) {
  return peer_of(peer).heap.at(address, bytes);
}

std::shared_ptr<std::byte> SharedTransport::open_exposed(int peer, const SharedAddress& address, std::size_t bytes) {
  return peer_of(peer).heap.open(address, bytes);
}

}  // namespace aloni::comm::detail

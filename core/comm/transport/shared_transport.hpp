#pragma once
// Between ranks of one node, through memory that both have mapped (shared_heap.hpp).
//
// Each ordered pair has a ring of cells in the receiver's control segment: one writer, one reader, a stamp per cell that says
// "full". A cell has the header and up to 200 bytes; an 8-byte message is one cache line. A larger payload
//   lies in the shared heap: the cell says where, the receiver reads it there, and marks it as read;
//   lies elsewhere: the sender copies it into a block of its control segment, the receiver reads it there and marks the block free.
// No system call, no lock.
#include <aloni/core/comm/shared_heap.hpp>
#include <aloni/core/comm/transport.hpp>
#include <aloni/core/comm/transport/all_gather.hpp>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace aloni::comm::detail {

class SharedTransport final : public Transport {
 public:
  /// Collective over the node: `ranks` are its ranks, ascending, `rank` the caller's. `heap` outlives the transport.
  SharedTransport(SharedHeap& heap, int rank, std::vector<int> ranks, const AllGather& all_gather);
  ~SharedTransport() override;

  /// Ranks with which messages can be exchanged; symmetric, without the caller.
  bool reaches(int rank) const;

  std::string name() const override { return "shared"; }
  std::size_t largest_fragment(int peer, const void* data, std::size_t bytes) const override;
  Sent send(int peer, const Header& header, const void* data, std::uint32_t ticket) override;
  bool poll(Sink& sink) override;
  void release(const Fragment& fragment) override;
  void fetch(const Fragment& fragment, void* to, std::uint32_t ticket) override;
  SharedAddress expose(const void* data, std::size_t bytes) const override { return heap_.address_of(data, bytes); }
  std::byte* exposed(int peer, const SharedAddress& address, std::size_t bytes) override;
  void abandon() noexcept override;

 private:
  struct Cell;
  struct Ring;
  struct Blocks;
  struct Control;

  struct Peer {
    int rank = -1;
    bool reachable = false;
    SharedSegment segment;  // theirs
    PeerMemory heap;
    Ring* outgoing = nullptr;  // in theirs
    Ring* incoming = nullptr;  // in ours
    Blocks* blocks = nullptr;  // theirs
    std::uint64_t sent = 0, consumed = 0, received = 0;
  };
  /// A payload in the heap that a peer reads.
  struct Loan {
    std::uint32_t flag, ticket;
  };

  Peer& peer_of(int rank);
  Cell* free_cell(Peer& peer);

  SharedHeap& heap_;
  int index_ = -1;
  SharedSegment control_;
  Blocks* blocks_ = nullptr;
  std::size_t next_small_ = 0, next_large_ = 0;
  std::vector<Loan> loans_;
  std::vector<std::uint32_t> free_loans_;
  std::vector<std::unique_ptr<Peer>> peers_;
  std::vector<int> index_of_;  // by rank, -1: not on this node
};

}  // namespace aloni::comm::detail

#pragma once
// Transport between ranks of one node, through shared memory (shared_heap.hpp).
//
// Each ordered pair of ranks has a ring of cells in the receiver's control segment, with one writer and one reader. A
// stamp marks a cell as full. A cell holds the header and up to 200 bytes; an 8-byte message fills one cache line. For
// a larger payload there are two cases:
//   - It lies in the shared heap: the cell has its address. The receiver reads it in place and marks it as read.
//   - It lies elsewhere: the sender copies it into a block of its control segment. The receiver reads and frees the
//     block.
// There are no system calls and no locks.
#include <aloni/core/comm/shared_heap.hpp>
#include <aloni/core/comm/transport.hpp>
#include <aloni/core/comm/transport/gather_bytes.hpp>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace aloni::comm::detail {

class SharedTransport final : public Transport {
 public:
  static constexpr int calls_of_construction = 2;  ///< of `all_gather`, by the constructor
  /// `ranks`: the ranks of the node, ascending. `rank`: this rank. `heap` must outlive the transport. Collective over
  /// the node.
  SharedTransport(SharedHeap& heap, int rank, std::vector<int> ranks, const GatherBytes& all_gather);
  ~SharedTransport() override;

  /// Whether this rank and `rank` can exchange messages. Symmetric; false for this rank itself.
  bool reaches(int rank) const;

  std::string name() const override { return "shared"; }
  std::size_t largest_fragment(int peer, const void* data, std::size_t bytes) const override;
  Sent send(int peer, const Header& header, const void* data, std::uint32_t ticket) override;
  bool poll(Sink& sink) override;
  void release(const Fragment& fragment) override;
  void fetch(const Fragment& fragment, void* to, std::uint32_t ticket) override;
  SharedAddress expose(const void* data, std::size_t bytes) const override { return heap_.address_of(data, bytes); }
  std::byte* exposed(int peer, const SharedAddress& address, std::size_t bytes) override;
  std::shared_ptr<std::byte> open_exposed(int peer, const SharedAddress& address, std::size_t bytes) override;
  void abandon() noexcept override;

 private:
  struct Cell;
  struct Ring;
  struct Blocks;
  struct Control;

  struct Peer {
    int rank = -1;
    bool reachable = false;
    SharedSegment segment;  // the peer's control segment
    PeerMemory heap;
    Ring* outgoing = nullptr;  // in the peer's segment
    Ring* incoming = nullptr;  // in this rank's segment
    Blocks* blocks = nullptr;  // in the peer's segment
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
  std::vector<int> index_of_;  // position of each rank in peers_; -1: not on this node
};

}  // namespace aloni::comm::detail

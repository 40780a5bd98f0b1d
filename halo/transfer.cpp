#include <aloni/halo/transfer.hpp>

#include <aloni/core/error.hpp>
#include <aloni/core/profiling.hpp>
#include <aloni/halo/detail/batches.hpp>
#include <aloni/views/detail/instantiate.hpp>
#include <aloni/views/for_each.hpp>
#include <aloni/views/strided_copy.hpp>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <memory_resource>
#include <span>
#include <type_traits>
#include <vector>

namespace aloni::halo {

namespace detail {

class TransferBase {
 public:
  virtual ~TransferBase() = default;
  virtual void finish() = 0;
  virtual const comm::Communicator& communicator() const = 0;
  virtual bool waits_for_messages() const = 0;
};

}  // namespace detail

namespace {

using views::Box;
using views::CopyMode;
using views::num_dims;
using views::StridedCopy;

// Buffers into which a message may still arrive live as long as the process: on purpose never destroyed, because
// Views must not be released after Kokkos is down.
void keep_forever(std::shared_ptr<detail::TransferBase> transfer) {
  static auto* const kept = new std::vector<std::shared_ptr<detail::TransferBase>>;
  kept->push_back(std::move(transfer));
}

// Ranks may have made different numbers of transfers, on other communicators too: the largest count is free on all.
int agree_on_tag(const comm::Communicator& comm) {
  static std::atomic<std::int64_t> made{0};
  const std::int64_t number = comm.all_reduce(made.load(), comm::Reduction::max);
  made = std::max(made.load(), number + 1);
  return static_cast<int>(number % (comm::Communicator::max_tag + 1));
}

// One side of a copy: where the first cell is and how to step. A mirrored dimension starts at its end and steps down;
// a replicated one does not step.
struct Walk {
  Index offset = 0;
  std::array<Index, num_dims> strides{};
};

Walk walk(const std::array<Index, num_dims>& strides, const std::array<Index, num_dims>& first, const Move& move,
          bool along_source) {
  Walk w;
  for (std::size_t i = 0; i < num_dims; ++i) {
    const int step = along_source ? move.step[i] : 1;
    w.strides[i] = step * strides[i];
    w.offset += first[i] * strides[i];
    if (step < 0) w.offset += (move.source.hi[i] - move.source.lo[i] - 1) * strides[i];
  }
  return w;
}

std::array<Index, num_dims> extents(const Box& b) { return views::extents_of(b).values; }

std::array<Index, num_dims> dense_strides(const Box& b) {
  std::array<Index, num_dims> strides;
  Index stride = 1;
  for (std::size_t i = num_dims; i-- > 0; stride *= b.hi[i] - b.lo[i]) strides[i] = stride;
  return strides;
}

template <class T, class Mem>
std::array<Index, num_dims> strides_of(const TensorRef<T, Mem>& tensor) {
  std::array<Index, num_dims> strides;
  for (std::size_t i = 0; i < num_dims; ++i) strides[i] = static_cast<Index>(tensor.data.stride(static_cast<int>(i)));
  return strides;
}

template <class T, class Mem>
Walk walk_source(const TensorRef<T, Mem>& tensor, const Move& move, bool by_destination) {
  std::array<Index, num_dims> first;
  for (std::size_t i = 0; i < num_dims; ++i) first[i] = move.source.lo[i] - tensor.box.lo[i];
  return walk(strides_of(tensor), first, move, by_destination);
}

template <class T, class Mem>
Walk walk_box(const TensorRef<T, Mem>& tensor, const Box& box) {
  Walk w;
  w.strides = strides_of(tensor);
  for (std::size_t i = 0; i < num_dims; ++i) w.offset += (box.lo[i] - tensor.box.lo[i]) * w.strides[i];
  return w;
}

Walk walk_message(Index at, const Move& move, bool by_destination) {
  Walk w = walk(dense_strides(move.source), {}, move, by_destination);
  w.offset += at;
  return w;
}

StridedCopy copy(const std::array<Index, num_dims>& extents, const Walk& source, const Walk& destination) {
  return {source.offset, destination.offset, extents, source.strides, destination.strides};
}

}  // namespace

// --- Pending ---

Pending::Pending(std::shared_ptr<detail::TransferBase> transfer)
    : transfer_(std::move(transfer)), exceptions_(std::uncaught_exceptions()) {}

Pending& Pending::operator=(Pending&& other) noexcept {
  if (this != &other) {
    abandon_or_finish();
    transfer_ = std::move(other.transfer_);
    exceptions_ = other.exceptions_;
  }
  return *this;
}

Pending::~Pending() { abandon_or_finish(); }

void Pending::finish() {
  if (transfer_ == nullptr) return;
  const auto transfer = std::move(transfer_);
  transfer->finish();
}

void Pending::abandon_or_finish() noexcept {
  if (transfer_ == nullptr) return;
  const auto transfer = transfer_;
  if (std::uncaught_exceptions() > exceptions_ && transfer->waits_for_messages()) {
    transfer->communicator().poison("aloni::halo::Transfer: an exception left a started transfer unfinished");
    keep_forever(std::move(transfer_));
    return;
  }
  try {
    finish();
  } catch (const std::exception& e) {  // finish() has kept the buffers
    transfer->communicator().poison(e.what());
  }
}

// --- Transfer ---

template <class T, class Exec>
struct Transfer<T, Exec>::Implementation : detail::TransferBase, std::enable_shared_from_this<Implementation> {
  using List = views::StridedCopyList<T, Exec>;
  using Entry = typename List::Entry;
  // Messages leave from and arrive in memory that the host can read; where that is not the tensors' own, they are
  // staged.
  static constexpr bool staged = !Kokkos::SpaceAccessibility<Kokkos::HostSpace, memory_space>::accessible;
  using HostMemory = std::conditional_t<staged, Kokkos::SharedHostPinnedSpace, memory_space>;

  struct Peer {
    int rank;
    Index offset, elements;
  };
  struct Buffer {
    std::vector<Peer> peers;
    Kokkos::View<T*, memory_space> data;
    Kokkos::View<T*, HostMemory> host;  ///< the same as data unless staged
    std::shared_ptr<void> memory;       ///< behind data, unless that counts its own references
  };

  comm::Communicator comm;
  int tag = 0;
  std::string label;
  std::vector<item_type> items;
  TransferCount counts;

  Buffer outgoing, incoming;  // of the forward direction; the adjoint uses them the other way round
  List pack, unpack, local, adjoint_pack, adjoint_unpack, adjoint_local;
  std::vector<comm::Request> requests;

  bool in_flight = false, adjoint = false;
  Exec space{};

  Implementation(const comm::Communicator& c, std::vector<item_type> all, std::string name)
      : comm(c), label("aloni::halo::" + std::move(name)), items(std::move(all)) {}

  const comm::Communicator& communicator() const override { return comm; }
  bool waits_for_messages() const override { return !requests.empty(); }

  static void check_box(const char* what, const Box& box, const TensorRef<T, memory_space>& tensor) {
    if (!views::contains(tensor.box, box))
      throw InvalidArgument("aloni::halo::Transfer", what, to_string(box),
                            "a box inside the tensor's " + to_string(tensor.box));
  }

  void check() const {
    for (const item_type& item : items) {
      for (const auto* tensor : {&item.source, &item.destination})
        for (views::Dim d : views::all_dims)
          if (static_cast<Index>(tensor->data.extent(static_cast<std::size_t>(views::position(d)))) !=
              tensor->box.extent(d))
            throw InvalidArgument(
                "aloni::halo::Transfer", std::string("extent of data, ") + views::name(d),
                std::to_string(tensor->data.extent(static_cast<std::size_t>(views::position(d)))),
                std::to_string(tensor->box.extent(d)) + ", the extent of the tensor's box " + to_string(tensor->box));
      for (const Message& m : item.plan.sends) {
        for (const Move& move : m.moves) check_box("box to send", move.source, item.source);
        check_peer(m.peer);
      }
      for (const Message& m : item.plan.receives) {
        for (const Move& move : m.moves) check_box("box to receive", move.destination, item.destination);
        check_peer(m.peer);
      }
      for (const Move& move : item.plan.local) {
        check_box("box to copy", move.source, item.source);
        check_box("box to fill", move.destination, item.destination);
      }
      for (const Box& box : item.plan.fills) check_box("box to fill", box, item.destination);
    }
  }

  void check_peer(int peer) const {
    if (peer < 0 || peer >= comm.size())
      throw InvalidArgument("aloni::halo::Transfer", "peer of a message", std::to_string(peer),
                            "a rank of the communicator, from 0 to " + std::to_string(comm.size() - 1));
  }

  // Calls f(item, move, position in the buffer) for all messages of one direction, and fills in the buffer's table of
  // peers: one message per peer, in it the items in order.
  template <class F>
  static void lay_out(const std::vector<item_type>& items, std::vector<Message> TransferPlan::*direction,
                      Buffer& buffer, F&& f) {
    std::map<int, std::vector<std::pair<const item_type*, const Message*>>> by_peer;
    for (const item_type& item : items)
      for (const Message& m : item.plan.*direction) by_peer[m.peer].emplace_back(&item, &m);
    constexpr Index line = 64 / sizeof(T);  // messages begin on cache lines of their own
    Index at = 0;
    for (const auto& [peer, messages] : by_peer) {
      at = (at + line - 1) / line * line;
      Peer entry{peer, at, 0};
      for (const auto& [item, message] : messages)
        for (const Move& move : message->moves) {
          f(*item, move, at);
          at += move.source.size();
        }
      entry.elements = at - entry.offset;
      buffer.peers.push_back(entry);
    }
  }

  static Index size(const Buffer& b) { return b.peers.empty() ? 0 : b.peers.back().offset + b.peers.back().elements; }

  void allocate(Buffer& buffer, const Exec& exec, const char* name) {
    const auto n = static_cast<std::size_t>(size(buffer));
    if constexpr (std::is_same_v<memory_space, Kokkos::HostSpace>) {
      // Where the ranks of this node can read it: their messages then take one copy instead of two.
      const auto heap = comm.shared_memory();
      const std::size_t bytes = std::max<std::size_t>(n, 1) * sizeof(T);
      buffer.memory = {heap->allocate(bytes, 64), [heap, bytes](void* p) { heap->deallocate(p, bytes, 64); }};
      buffer.data = decltype(buffer.data)(static_cast<T*>(buffer.memory.get()), n);
      Kokkos::deep_copy(exec, buffer.data, T{0});
    } else {
      buffer.data = decltype(buffer.data)(Kokkos::view_alloc(exec, label + name), n);
    }
    if constexpr (staged)
      buffer.host = decltype(buffer.host)(Kokkos::view_alloc(label + name + ", host"), n);
    else
      buffer.host = buffer.data;
  }

  struct Sum {
    const item_type* item;
    Box box;
    Entry entry;
  };
  static void append_in_batches(std::vector<Sum>& sums, int first_batch, std::vector<Entry>& entries) {
    std::vector<detail::Target> targets;
    for (const Sum& s : sums) targets.push_back({static_cast<int>(s.item - sums.front().item), s.box});
    const std::vector<int> batches = detail::batches_of(targets);
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i].entry.batch = first_batch + batches[i];
    std::stable_sort(sums.begin(), sums.end(),
                     [](const Sum& a, const Sum& b) { return a.entry.batch < b.entry.batch; });
    for (const Sum& s : sums) entries.push_back(s.entry);
  }

  static Entry zero(const TensorRef<T, memory_space>& tensor, const Box& box, int batch) {
    return {nullptr, tensor.data.data(), copy(extents(box), {}, walk_box(tensor, box)), CopyMode::assign, batch};
  }

  void set_up(const Exec& exec) {
    std::vector<Entry> packs, unpacks, copies, adjoint_packs, adjoint_unpacks, adjoint_copies;
    std::vector<Sum> sums;

    // The buffers' addresses are known only after their sizes: entries hold null first.
    lay_out(items, &TransferPlan::sends, outgoing, [&](const item_type& item, const Move& m, Index at) {
      const Walk tensor = walk_source(item.source, m, false), message = walk_message(at, m, false);
      packs.push_back({item.source.data.data(), nullptr, copy(extents(m.source), tensor, message)});
      sums.push_back({&item,
                      m.source,
                      {nullptr, item.source.data.data(), copy(extents(m.source), message, tensor), CopyMode::add}});
    });
    allocate(outgoing, exec, ", outgoing");
    for (Entry& e : packs) e.destination = outgoing.data.data();
    for (Sum& s : sums) s.entry.source = outgoing.data.data();
    append_in_batches(sums, 0, adjoint_unpacks);

    lay_out(items, &TransferPlan::receives, incoming, [&](const item_type& item, const Move& m, Index at) {
      const Walk tensor = walk_box(item.destination, m.destination), message = walk_message(at, m, true);
      unpacks.push_back({nullptr, item.destination.data.data(), copy(extents(m.destination), message, tensor)});
      adjoint_packs.push_back({item.destination.data.data(), nullptr, copy(extents(m.destination), tensor, message)});
    });
    allocate(incoming, exec, ", incoming");
    for (Entry& e : unpacks) e.source = incoming.data.data();
    for (Entry& e : adjoint_packs) e.destination = incoming.data.data();

    sums.clear();
    for (const item_type& item : items) {
      if (!item.same_tensor) adjoint_copies.push_back(zero(item.source, item.source.box, 0));
      for (const Move& m : item.plan.local) {
        const Walk from = walk_source(item.source, m, true), to = walk_box(item.destination, m.destination);
        copies.push_back(
            {item.source.data.data(), item.destination.data.data(), copy(extents(m.destination), from, to)});
        sums.push_back({&item,
                        m.source,
                        {item.destination.data.data(), item.source.data.data(), copy(extents(m.destination), to, from),
                         CopyMode::add}});
      }
      for (const Box& box : item.plan.fills) copies.push_back(zero(item.destination, box, 0));
    }
    append_in_batches(sums, 1, adjoint_copies);
    const int last = adjoint_copies.empty() ? 0 : adjoint_copies.back().batch + 1;
    for (const item_type& item : items) {
      if (!item.same_tensor) continue;
      for (const Message& message : item.plan.receives)
        for (const Move& m : message.moves) adjoint_copies.push_back(zero(item.destination, m.destination, last));
      for (const Move& m : item.plan.local) adjoint_copies.push_back(zero(item.destination, m.destination, last));
      for (const Box& box : item.plan.fills) adjoint_copies.push_back(zero(item.destination, box, last));
    }

    pack = List(exec, label + ": pack", packs);
    unpack = List(exec, label + ": unpack", unpacks);
    local = List(exec, label + ": copy within the rank", copies);
    adjoint_pack = List(exec, label + ": pack ghosts", adjoint_packs);
    adjoint_unpack = List(exec, label + ": add to owners", adjoint_unpacks);
    adjoint_local = List(exec, label + ": add to owners within the rank", adjoint_copies);
    requests.reserve(outgoing.peers.size() + incoming.peers.size());

    for (const item_type& item : items) {
      const TransferCount c = count(item.plan);
      counts.sent_elements += c.sent_elements;
      counts.received_elements += c.received_elements;
      counts.local_elements += c.local_elements;
      counts.filled_elements += c.filled_elements;
    }
    counts.sent_messages = static_cast<Index>(outgoing.peers.size());
    counts.received_messages = static_cast<Index>(incoming.peers.size());
  }

  static std::span<std::byte> bytes(const Buffer& buffer, const Peer& peer) {
    return {reinterpret_cast<std::byte*>(buffer.host.data() + peer.offset),
            static_cast<std::size_t>(peer.elements) * sizeof(T)};
  }

  void start(const Exec& exec, bool backwards) {
    if (in_flight)
      throw InvalidArgument("aloni::halo::Transfer::start", "transfer", label,
                            "one that is not in flight: finish() the Pending of its last start first");
    const Buffer& out = backwards ? incoming : outgoing;
    const Buffer& in = backwards ? outgoing : incoming;
    space = exec;
    adjoint = backwards;
    for (const item_type& item : items)
      if (item.destination.ghost_state && !backwards) *item.destination.ghost_state = views::GhostState::stale;
    try {
      in_flight = true;
      requests.clear();
      (backwards ? adjoint_pack : pack).run(exec);
      if constexpr (staged) {
        if (!out.peers.empty()) Kokkos::deep_copy(exec, out.host, out.data);
      }
      if (has_messages()) {
        // One wait for two reasons: the messages are packed, and the last unpacking has left the buffer that receives
        // now.
        static const std::string reason = "aloni::halo: messages are packed and buffers free before communication";
        exec.fence(reason);
      }
      for (const Peer& peer : in.peers) requests.push_back(comm.receive(bytes(in, peer), peer.rank, tag));
      for (const Peer& peer : out.peers) requests.push_back(comm.send(bytes(out, peer), peer.rank, tag));
      (backwards ? adjoint_local : local).run(exec);
    } catch (...) {
      keep_forever(this->shared_from_this());
      throw;
    }
  }

  bool has_messages() const { return !outgoing.peers.empty() || !incoming.peers.empty(); }

  void finish() override {
    const ScopedRegion region("aloni::halo::Transfer::finish");
    try {
      if (!requests.empty()) comm.wait(requests);
    } catch (...) {
      keep_forever(this->shared_from_this());
      throw;
    }
    in_flight = false;
    const Buffer& in = adjoint ? outgoing : incoming;
    if constexpr (staged) {
      if (!in.peers.empty()) Kokkos::deep_copy(space, in.data, in.host);
    }
    (adjoint ? adjoint_unpack : unpack).run(space);
    for (const item_type& item : items) {
      const auto& changed = adjoint ? item.source : item.destination;
      if (changed.ghost_state) *changed.ghost_state = adjoint ? views::GhostState::stale : views::GhostState::fresh;
    }
  }
};

template <class T, class Exec>
Transfer<T, Exec>::Transfer(const comm::Communicator& comm, const Queue<Exec>& queue, std::vector<item_type> items,
                            TransferOptions options)
    : implementation_(std::make_shared<Implementation>(comm, std::move(items), std::move(options.label))) {
  comm::collectively(comm, "aloni::halo::Transfer", [&] {
    implementation_->check();
    implementation_->set_up(queue.space());
  });
  implementation_->tag = agree_on_tag(comm);
}

template <class T, class Exec>
Pending Transfer<T, Exec>::start(const Queue<Exec>& queue) const {
  if (implementation_ == nullptr) return {};
  const ScopedRegion region("aloni::halo::Transfer::start");
  implementation_->start(queue.space(), false);
  return Pending(implementation_);
}

template <class T, class Exec>
Pending Transfer<T, Exec>::start_adjoint(const Queue<Exec>& queue) const {
  if (implementation_ == nullptr) return {};
  const ScopedRegion region("aloni::halo::Transfer::start_adjoint");
  implementation_->start(queue.space(), true);
  return Pending(implementation_);
}

template <class T, class Exec>
TransferCount Transfer<T, Exec>::counts() const {
  return implementation_ == nullptr ? TransferCount{} : implementation_->counts;
}

template <class T, class Exec>
std::size_t Transfer<T, Exec>::buffer_bytes() const {
  if (implementation_ == nullptr) return 0;
  const auto& i = *implementation_;
  const std::size_t elements = i.outgoing.data.size() + i.incoming.data.size();
  return elements * sizeof(T) * (Implementation::staged ? 2 : 1);
}

#define INSTANTIATE(T, Exec) template class Transfer<T, Exec>;
ALONI_INSTANTIATE_FOR_SPACES(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::halo

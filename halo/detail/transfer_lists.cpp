#include <aloni/halo/detail/transfer_lists.hpp>

#include <aloni/halo/detail/batches.hpp>
#include <aloni/halo/detail/walk.hpp>
#include <aloni/views/detail/instantiate.hpp>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <map>
#include <type_traits>
#include <variant>

namespace aloni::halo::detail {

namespace {

using views::Box;
using views::CopyMode;

/// The entries of the copy lists of one element type.
template <class T, class Exec>
class Entries {
 public:
  using Item = TransferItem<T, typename Exec::memory_space>;
  using Buffer = MessageBuffer<Exec>;
  using Entry = typename views::StridedCopyList<T, Exec>::Entry;
  using Part = typename Buffer::Part;

  std::vector<Entry> poison, pack, unpack, local, adjoint_pack, adjoint_unpack, adjoint_local;

  Entries(const std::vector<typename Buffer::item_type>& items, const Buffer& outgoing, const Buffer& incoming,
          bool poisons)
      : poisons_(poisons) {
    add_outgoing(items, outgoing);
    add_incoming(items, incoming);
    std::vector<const Item*> mine;
    for (const auto& any : items)
      if (const auto* item = std::get_if<Item>(&any)) mine.push_back(item);
    add_local(mine);
    add_adjoint_local(mine);
  }

 private:
  /// A copy that adds to cells of `box` in the item's source.
  struct Sum {
    const Item* item;
    Box box;
    Entry entry;
  };

  template <class F>
  static void for_each_move(const std::vector<typename Buffer::item_type>& items, const Buffer& buffer, F&& f) {
    buffer.for_each_move(items, [&](const Part& part) {
      if (const auto* item = std::get_if<Item>(&part.item)) f(*item, part);
    });
  }

  void add_outgoing(const std::vector<typename Buffer::item_type>& items, const Buffer& outgoing) {
    std::vector<Sum> sums;
    for_each_move(items, outgoing, [&](const Item& item, const Part& part) {
      const Move& m = part.move;
      const Peer& peer = outgoing.peers[part.peer];
      const Walk tensor = walk_source(item.source, m, false);
      const Walk message = walk_message(static_cast<Index>(part.at / sizeof(T)), m, false);
      T* const packed = reinterpret_cast<T*>(outgoing.packed(peer));
      if (!peer.direct || outgoing.places[part.number].is_packed)
        pack.push_back({item.source.data.data(), packed, copy(extents(m.source), tensor, message)});
      const T* ghosts = packed;
      Walk from = message;
      if (peer.direct_adjoint && !m.source.empty()) {
        ghosts = reinterpret_cast<const T*>(outgoing.opened[part.number].get());
        from = {0, outgoing.adjoint_places[part.number].strides};
      }
      sums.push_back(
          {&item, m.source, {ghosts, item.source.data.data(), copy(extents(m.source), from, tensor), CopyMode::add}});
    });
    append_in_batches(sums, 0, adjoint_unpack);
  }

  void add_incoming(const std::vector<typename Buffer::item_type>& items, const Buffer& incoming) {
    for_each_move(items, incoming, [&](const Item& item, const Part& part) {
      const Move& m = part.move;
      const Peer& peer = incoming.peers[part.peer];
      const Walk tensor = walk_box(item.destination, m.destination);
      const Walk message = walk_message(static_cast<Index>(part.at / sizeof(T)), m, true);
      T* const packed = reinterpret_cast<T*>(incoming.packed(peer));
      const T* from = packed;
      Walk source = message;
      if (peer.direct && !m.source.empty()) {
        from = reinterpret_cast<const T*>(incoming.opened[part.number].get());
        source = walk(incoming.places[part.number].strides, {}, m, true);
      }
      unpack.push_back({from, item.destination.data.data(), copy(extents(m.destination), source, tensor)});
      if (!peer.direct_adjoint || incoming.adjoint_places[part.number].is_packed)
        adjoint_pack.push_back({item.destination.data.data(), packed, copy(extents(m.destination), tensor, message)});
      add_poison(item, m.destination);
    });
  }

  void add_local(const std::vector<const Item*>& items) {
    for (const Item* item : items) {
      for (const Move& m : item->plan.local) {
        local.push_back({item->source.data.data(), item->destination.data.data(),
                         copy(extents(m.destination), walk_source(item->source, m, true),
                              walk_box(item->destination, m.destination))});
        add_poison(*item, m.destination);
      }
      for (const Box& box : item->plan.fills) {
        local.push_back(fill(item->destination, box, 0));
        add_poison(*item, box);
      }
      for (const Box& box : item->filled_later) add_poison(*item, box);
    }
  }

  // Between two tensors, the source first becomes zero. The only move of a rank assigns instead, if it is plain. Then
  // come the sums. In place, the ghosts become zero last.
  void add_adjoint_local(const std::vector<const Item*>& items) {
    std::vector<Sum> sums;
    for (const Item* item : items) {
      const auto& moves = item->plan.local;
      const auto from_own = [&](const Move& m, CopyMode mode) {
        return Entry{item->destination.data.data(), item->source.data.data(),
                     copy(extents(m.destination), walk_box(item->destination, m.destination),
                          walk_source(item->source, m, true)),
                     mode};
      };
      if (!item->same_tensor && moves.size() == 1 && is_plain(moves[0])) {
        adjoint_local.push_back(from_own(moves[0], CopyMode::assign));
        for (const Box& rest : difference(item->source.box, moves[0].source))
          adjoint_local.push_back(fill(item->source, rest, 0));
        continue;
      }
      if (!item->same_tensor) adjoint_local.push_back(fill(item->source, item->source.box, 0));
      for (const Move& m : moves) sums.push_back({item, m.source, from_own(m, CopyMode::add)});
    }
    append_in_batches(sums, 1, adjoint_local);
    const int last = adjoint_local.empty() ? 0 : adjoint_local.back().batch + 1;
    for (const Item* item : items) {
      if (!item->same_tensor) continue;
      for (const Message& message : item->plan.receives)
        for (const Move& m : message.moves) adjoint_local.push_back(fill(item->destination, m.destination, last));
      for (const Move& m : item->plan.local) adjoint_local.push_back(fill(item->destination, m.destination, last));
      for (const Box& box : item->plan.fills) adjoint_local.push_back(fill(item->destination, box, last));
    }
  }

  void add_poison(const Item& item, const Box& box) {
    if (poisons_) poison.push_back(fill(item.destination, box, 0, poisonous()));
  }

  static constexpr T poisonous() {
    if constexpr (std::is_same_v<T, comm::bfloat16> || std::is_same_v<T, comm::float16>)
      return T(std::numeric_limits<float>::quiet_NaN());
    return std::is_floating_point_v<T> ? std::numeric_limits<T>::quiet_NaN() : std::numeric_limits<T>::lowest();
  }

  static Entry fill(const TensorRef<T, typename Exec::memory_space>& tensor, const Box& box, int batch,
                    T value = T(0)) {
    return {nullptr, tensor.data.data(), copy(extents(box), {}, walk_box(tensor, box)), CopyMode::assign, batch, value};
  }

  static void append_in_batches(std::vector<Sum>& sums, int first_batch, std::vector<Entry>& entries) {
    std::vector<Target> targets;
    std::map<const Item*, int> tensors;
    for (const Sum& s : sums)
      targets.push_back({tensors.try_emplace(s.item, static_cast<int>(tensors.size())).first->second, s.box});
    const std::vector<int> batches = batches_of(targets);
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i].entry.batch = first_batch + batches[i];
    std::stable_sort(sums.begin(), sums.end(),
                     [](const Sum& a, const Sum& b) { return a.entry.batch < b.entry.batch; });
    for (const Sum& s : sums) entries.push_back(s.entry);
  }

  bool poisons_;
};

}  // namespace

template <class Exec>
TransferLists<Exec>::TransferLists(const Exec& exec, const std::string& label, const std::vector<item_type>& items,
                                   const MessageBuffer<Exec>& outgoing, const MessageBuffer<Exec>& incoming,
                                   bool poisons) {
  const auto make = [&](auto& lists) {
    using T = typename std::remove_reference_t<decltype(lists)>::element_type;
    using List = views::StridedCopyList<T, Exec>;
    const Entries<T, Exec> entries(items, outgoing, incoming, poisons);
    lists.poison = List(exec, label + ": poison ghosts", entries.poison);
    lists.pack = List(exec, label + ": pack", entries.pack);
    lists.unpack = List(exec, label + ": unpack", entries.unpack);
    lists.local = List(exec, label + ": copy within the rank", entries.local);
    lists.adjoint_pack = List(exec, label + ": pack ghosts", entries.adjoint_pack);
    lists.adjoint_unpack = List(exec, label + ": add to owners", entries.adjoint_unpack);
    lists.adjoint_local = List(exec, label + ": add to owners within the rank", entries.adjoint_local);
  };
  std::apply([&](auto&... lists) { (make(lists), ...); }, lists_);
}

#define INSTANTIATE(Exec) template class TransferLists<Exec>;
ALONI_INSTANTIATE_SPACES(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::halo::detail

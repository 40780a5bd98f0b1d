#pragma once
// MatchTable: maps the peer and key of a message to a 32-bit value (a slot, or a counter). An open-addressing hash
// table that never shrinks.
#include <aloni/core/comm/message.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace aloni::comm::detail {

class MatchTable {
 public:
  MatchTable() : entries_(64) {}

  /// Pointer to the value, or null. Valid until the next insert or erase.
  std::uint32_t* find(int peer, const MessageKey& key) {
    for (std::size_t i = place(peer, key);; i = next(i)) {
      Entry& e = entries_[i];
      if (e.peer < 0) return nullptr;
      if (e.peer == peer && e.key == key) return &e.value;
    }
  }

  /// @pre the table does not contain this peer and key
  void insert(int peer, const MessageKey& key, std::uint32_t value) {
    if (2 * ++size_ > entries_.size()) grow();
    put({key, peer, value});
  }

  /// @pre the table contains this peer and key
  void erase(int peer, const MessageKey& key) {
    std::size_t hole = place(peer, key);
    while (entries_[hole].peer != peer || !(entries_[hole].key == key)) hole = next(hole);
    --size_;
    // An entry behind the hole moves into it if the hole lies between the entry's home and its position.
    for (std::size_t i = next(hole); entries_[i].peer >= 0; i = next(i)) {
      const std::size_t home = place(entries_[i].peer, entries_[i].key);
      const bool stays = hole <= i ? hole < home && home <= i : hole < home || home <= i;
      if (stays) continue;
      entries_[hole] = entries_[i];
      hole = i;
    }
    entries_[hole].peer = -1;
  }

 private:
  struct Entry {
    MessageKey key;
    int peer = -1;
    std::uint32_t value = 0;
  };

  std::size_t place(int peer, const MessageKey& k) const {
    std::uint64_t h = (std::uint64_t{k.context} << 32 | k.operation) * 0x9e3779b97f4a7c15u;
    h ^= (std::uint64_t{k.part} << 32 | std::uint64_t{k.index} << 16 | static_cast<std::uint32_t>(peer)) *
         0xc2b2ae3d27d4eb4fu;
    h ^= h >> 29;
    return (h * 0x165667b19e3779f9u >> 32) & (entries_.size() - 1);
  }
  std::size_t next(std::size_t i) const { return (i + 1) & (entries_.size() - 1); }
  void put(const Entry& entry) {
    std::size_t i = place(entry.peer, entry.key);
    while (entries_[i].peer >= 0) i = next(i);
    entries_[i] = entry;
  }
  void grow() {
    const std::vector<Entry> old = std::exchange(entries_, std::vector<Entry>(2 * entries_.size()));
    for (const Entry& e : old) {
      if (e.peer >= 0) put(e);
    }
  }

  std::vector<Entry> entries_;
  std::size_t size_ = 0;
};

}  // namespace aloni::comm::detail

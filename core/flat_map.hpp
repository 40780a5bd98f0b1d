#pragma once
// A hash table in one array, for millions of lookups by unsigned integers. A lookup touches one place in memory, not a
// list of nodes, and an insertion allocates nothing but now and then a larger array.
//
//   FlatMap<std::uint64_t, double> seconds;
//   seconds[task] = 1e-3;
//   if (const auto found = seconds.find(task); found != seconds.end()) seconds.erase(found);
//
// Use std::unordered_map instead where references must stay valid: insertions and erasures move other elements. Linear
// probing, with backward shifts at erasures (Knuth, The Art of Computer Programming 3, section 6.4, algorithm R).
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

namespace aloni {

/// T: default constructible and movable.
template <std::unsigned_integral Key, class T>
class FlatMap {
  struct Slot {
    std::pair<Key, T> element = {};
    bool used = false;
  };

 public:
  template <class S, class V>
  class Position {
   public:
    using iterator_category = std::forward_iterator_tag;
    using value_type = std::pair<Key, T>;
    using difference_type = std::ptrdiff_t;
    using pointer = V*;
    using reference = V&;

    Position() = default;
    Position(S* slot, S* end) : slot_(slot), end_(end) { skip(); }
    V& operator*() const { return slot_->element; }
    V* operator->() const { return &slot_->element; }
    Position& operator++() {
      ++slot_;
      skip();
      return *this;
    }
    Position operator++(int) {
      Position before = *this;
      ++*this;
      return before;
    }
    friend bool operator==(const Position& a, const Position& b) { return a.slot_ == b.slot_; }

   private:
    friend class FlatMap;
    void skip() {
      while (slot_ != end_ && !slot_->used) ++slot_;
    }

    S *slot_ = nullptr, *end_ = nullptr;
  };
  using iterator = Position<Slot, std::pair<Key, T>>;
  using const_iterator = Position<const Slot, const std::pair<Key, T>>;

  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  iterator begin() { return {slots_.data(), slots_.data() + slots_.size()}; }
  iterator end() { return {slots_.data() + slots_.size(), slots_.data() + slots_.size()}; }
  const_iterator begin() const { return {slots_.data(), slots_.data() + slots_.size()}; }
  const_iterator end() const { return {slots_.data() + slots_.size(), slots_.data() + slots_.size()}; }

  iterator find(Key key) {
    const std::size_t at = place_of(key);
    return at == slots_.size() || !slots_[at].used ? end() : iterator(&slots_[at], slots_.data() + slots_.size());
  }
  const_iterator find(Key key) const {
    const std::size_t at = place_of(key);
    return at == slots_.size() || !slots_[at].used ? end() : const_iterator(&slots_[at], slots_.data() + slots_.size());
  }
  bool contains(Key key) const { return find(key) != end(); }

  /// The element of the key, and whether it is new. A new one is T().
  std::pair<iterator, bool> try_emplace(Key key) {
    if (8 * (size_ + 1) > 5 * slots_.size()) grow();
    Slot& slot = slots_[place_of(key)];
    const bool is_new = !slot.used;
    if (is_new) {
      slot.element.first = key;
      slot.used = true;
      ++size_;
    }
    return {iterator(&slot, slots_.data() + slots_.size()), is_new};
  }
  T& operator[](Key key) { return try_emplace(key).first->second; }

  void erase(iterator position) {
    auto hole = static_cast<std::size_t>(position.slot_ - slots_.data());
    const std::size_t mask = slots_.size() - 1;
    for (std::size_t at = (hole + 1) & mask; slots_[at].used; at = (at + 1) & mask) {
      // An element may move to the hole if the hole is not before the first place of its key.
      if (((at - home_of(slots_[at].element.first)) & mask) < ((at - hole) & mask)) continue;
      slots_[hole].element = std::move(slots_[at].element);
      hole = at;
    }
    slots_[hole] = {};
    --size_;
  }

 private:
  /// Multiplicative hashing: the upper bits of the product depend on all bits of the key.
  std::size_t home_of(Key key) const {
    const int bits = std::countr_zero(slots_.size());
    return static_cast<std::size_t>((static_cast<std::uint64_t>(key) * 0x9e3779b97f4a7c15u) >> (64 - bits));
  }
  /// The slot of the key, or the free one where it belongs; the number of slots if there are none.
  std::size_t place_of(Key key) const {
    if (slots_.empty()) return 0;
    const std::size_t mask = slots_.size() - 1;
    std::size_t at = home_of(key);
    while (slots_[at].used && slots_[at].element.first != key) at = (at + 1) & mask;
    return at;
  }
  void grow() {
    constexpr std::size_t least = 8;
    std::vector<Slot> before = std::exchange(slots_, std::vector<Slot>(slots_.empty() ? least : 2 * slots_.size()));
    for (Slot& slot : before)
      if (slot.used) slots_[place_of(slot.element.first)] = std::move(slot);
  }

  std::vector<Slot> slots_;  ///< a power of two, or none
  std::size_t size_ = 0;
};

}  // namespace aloni

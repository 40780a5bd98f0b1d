#pragma once
// Messages of a rank to itself: matched by tag in the order of the calls, one copy from the sender's buffer into the
// receiver's, no MPI. A redistribution then needs no special case for the part that stays.
//
// The copy happens in the call that completes the pair, whichever it is. Slots are reused: after the first use of a
// pattern nothing is allocated.
#include <aloni/core/comm/transport.hpp>

#include <vector>

namespace aloni::comm {

class SelfTransport final : public Transport {
 public:
  std::string name() const override { return "self"; }
  Request send(const void* data, std::size_t bytes, int peer, int tag) override;
  Request receive(void* data, std::size_t bytes, int peer, int tag) override;
  bool test(Request& request) override;

 private:
  enum class Stage : unsigned char { pending, done, wrong_size };
  struct Slot {
    const void* source = nullptr;  // of a send
    void* target = nullptr;        // of a receive
    std::size_t bytes = 0, sent_bytes = 0;
    int tag = 0;
    Stage stage = Stage::pending;
  };

  std::uint32_t add(const Slot& slot);
  /// The oldest of `waiting` with this tag, taken out of it; -1 when there is none.
  std::int64_t take(std::vector<std::uint32_t>& waiting, int tag);
  static void deliver(Slot& send, Slot& receive);

  std::vector<Slot> slots_;
  std::vector<std::uint32_t> free_, sends_, receives_;
};

}  // namespace aloni::comm

#include <aloni/core/comm/partial_all_reduce.hpp>

#include <aloni/core/comm/engine/communicator_state.hpp>
#include <aloni/core/error.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <exception>
#include <memory_resource>
#include <string>
#include <utility>
#include <vector>

namespace aloni::comm {

namespace {

constexpr int arrival_tag = 0, begin_tag = 1;

enum Word : std::uint32_t { give, everything, end };  // give: contribution; everything: the round needs all ranks
constexpr std::array<std::uint32_t, 3> words{give, everything, end};

std::span<const std::byte> message(Word word) { return std::as_bytes(std::span(&words[word], 1)); }

}  // namespace

// Each rank sends one word to rank 0 for each of its calls (an arrival). Rank 0 counts the arrivals. It begins a round
// by one word to each rank. Then all ranks, late ones too, start an all-reduce of their contributions so far.
template <class T>
struct PartialAllReduce<T>::Implementation final : detail::CommunicatorRuntime::Service {
  using Handle = detail::Engine::Handle;

  /// The data of one round: `count` sums, then the number of contributions.
  struct Slot {
    std::pmr::vector<T> data;
    std::int64_t round = -1;
    Request request;
    bool complete = false;
  };
  /// Receives words from one rank.
  struct Ear {
    std::uint32_t word = 0;
    Handle handle;
    bool listens = false;
  };

  const char* name;
  Communicator comm;
  Communicator::State& state;
  std::shared_ptr<std::pmr::memory_resource> memory;
  std::size_t count;
  int quorum, max_lag;
  CollectiveOptions options;

  std::pmr::vector<T> given;  // contributions since the last round began
  std::vector<Slot> slots;    // round i uses slot i modulo their number
  std::int64_t calls = 0, rounds = 0;
  bool ended = false;
  int exceptions = std::uncaught_exceptions();  // at construction
  std::vector<Handle> sending;
  std::vector<Ear> ears;  // rank 0: arrivals from each rank; other ranks: one, for words from rank 0
  // Rank 0, for each rank: its number of calls (-1: has ended), and the round in which it wants everything.
  std::vector<std::int64_t> arrived, wants_everything;
  int num_ended = 0;

  Implementation(const Communicator& parent, std::size_t n, const PartialOptions& o)
      : name("aloni::comm::PartialAllReduce::reduce"),
        comm(parent.split(0, parent.rank())),
        state(*comm.state_),
        memory(comm.shared_memory()),
        count(n),
        quorum(o.quorum == 0 ? comm.size() / 2 + 1 : o.quorum),
        max_lag(o.max_lag),
        options(o.all_reduce),
        given(n + 1, T(0), memory.get()),
        ears(static_cast<std::size_t>(comm.rank() == 0 ? comm.size() : 1)),
        arrived(static_cast<std::size_t>(comm.size()), 0),
        wants_everything(static_cast<std::size_t>(comm.size()), -1) {
    options.fuse = false;
    for (int i = 0; i <= max_lag; ++i) slots.push_back({std::pmr::vector<T>(n + 1, T(0), memory.get()), -1, {}, false});
    const auto guard = state.runtime->guard();
    state.runtime->add_service(*this);
  }

  ~Implementation() override {
    const auto guard = state.runtime->guard();
    state.runtime->remove_service(*this);
  }

  Slot& slot_of(std::int64_t round) { return slots[static_cast<std::size_t>(round) % slots.size()]; }

  /// Makes progress; true if there was any work. Called under the family's guard, like all functions that it calls.
  bool service() override {
    bool any = false;
    std::erase_if(sending, [&](Handle h) { return state.runtime->engine().test(h); });
    if (comm.rank() == 0) {
      for (int r = 1; r < comm.size(); ++r) {
        while (hears(ears[static_cast<std::size_t>(r)], r, arrival_tag)) {
          any = true;
          note_arrival(r, static_cast<Word>(ears[static_cast<std::size_t>(r)].word));
        }
      }
      while (may_begin()) {
        any = true;
        tell_all(give);
        begin();
      }
      if (num_ended == comm.size() && !ended) {
        any = ended = true;
        tell_all(end);
      }
    } else {
      while (!ended && hears(ears[0], 0, begin_tag)) {
        any = true;
        if (ears[0].word == end) {
          ended = true;
        } else {
          begin();
        }
      }
    }
    for (Slot& s : slots) {
      if (s.request.pending && state.runtime->engine().test({s.request.slot, s.request.generation})) {
        s.request.pending = false;
        s.complete = any = true;
      }
    }
    return any;
  }

  /// True if a word has arrived. The next call waits for the next word.
  bool hears(Ear& ear, int rank, int tag) {
    if (!ear.listens) {
      if (comm.rank() == 0 && arrived[static_cast<std::size_t>(rank)] < 0) return false;  // that rank has ended
      ear.handle =
          state.runtime->engine().receive(*state.context, std::as_writable_bytes(std::span(&ear.word, 1)), rank, tag);
      ear.listens = true;
    }
    if (!state.runtime->engine().test(ear.handle)) return false;
    ear.listens = false;
    return true;
  }

  void say(Word word, int rank, int tag) {
    sending.push_back(state.runtime->engine().send(*state.context, message(word), rank, tag));
  }
  void tell_all(Word word) {
    for (int r = 1; r < comm.size(); ++r) say(word, r, begin_tag);
  }

  void note_arrival(int rank, Word word) {
    const auto r = static_cast<std::size_t>(rank);
    if (word == end) {
      ++num_ended;
      arrived[r] = -1;
      return;
    }
    if (word == everything) wants_everything[r] = arrived[r];
    ++arrived[r];
  }

  /// On rank 0: whether the next round may begin.
  bool may_begin() const {
    if (num_ended > 0) return false;
    if (rounds > 0) {
      const Slot& last = slots[static_cast<std::size_t>(rounds - 1) % slots.size()];
      if (last.round == rounds - 1 && !last.complete) return false;
    }
    const auto here = std::ranges::count_if(arrived, [&](std::int64_t a) { return a > rounds; });
    const bool all = std::ranges::find(wants_everything, rounds) != wants_everything.end();
    return here >= (all ? comm.size() : quorum) && *std::ranges::min_element(arrived) > rounds - max_lag;
  }

  void begin() {
    Slot& s = slot_of(rounds);
    std::swap(s.data, given);
    std::ranges::fill(given, T(0));
    s.round = rounds++;
    s.complete = false;
    s.request = comm.start_all_reduce(std::span<T>(s.data), Reduction::sum, options);
    s.complete = !s.request.pending;
  }

  int call(std::span<T> values, Word word) {
    if (values.size() != count) {
      throw InvalidArgument(name, "values.size()", std::to_string(values.size()),
                            std::to_string(count) + ", the count given at construction");
    }
    state.check_poison(name, false);
    const std::int64_t round = calls++;
    {
      const auto guard = state.runtime->guard();
      if (word == give) {
        for (std::size_t i = 0; i < count; ++i) given[i] += values[i];
        given[count] += T(1);
      }
      arrive(word);
    }
    Slot& s = slot_of(round);
    state.wait_for(name, [&] { return s.round == round && s.complete; });
    std::copy_n(s.data.begin(), count, values.begin());
    return static_cast<int>(s.data[count] + T(0.5));
  }

  void arrive(Word word) {
    state.poisoning([&] {
      if (comm.rank() == 0) {
        note_arrival(0, word);
      } else {
        say(word, 0, arrival_tag);
      }
      service();
    });
  }

  void close() {
    if (state.runtime->board().poisoned()) return;
    if (std::uncaught_exceptions() > exceptions)  // the others would wait for this rank's next call
      return comm.poison("an exception has ended the block that holds its PartialAllReduce");
    {
      const auto guard = state.runtime->guard();
      arrive(end);
    }
    state.wait_for(name, [&] { return ended && sending.empty(); });
  }
};

template <class T>
PartialAllReduce<T>::PartialAllReduce(const Communicator& comm, std::size_t count, const PartialOptions& options) {
  constexpr const char* name = "aloni::comm::PartialAllReduce";
  if (options.quorum < 0 || options.quorum > comm.size()) {
    throw InvalidArgument(name, "options.quorum", std::to_string(options.quorum),
                          "0 (more than half) to " + std::to_string(comm.size()) + " ranks");
  }
  if (options.max_lag < 1)
    throw InvalidArgument(name, "options.max_lag", std::to_string(options.max_lag), "at least 1 round");
  implementation_ = std::make_unique<Implementation>(comm, count, options);
}

template <class T>
PartialAllReduce<T>::~PartialAllReduce() {
  try {
    implementation_->close();
  } catch (const Error&) {  // the communicator is poisoned: its next operation throws, on the other ranks too
  }
}

template <class T>
int PartialAllReduce<T>::reduce(std::span<T> values) {
  return implementation_->call(values, give);
}

template <class T>
int PartialAllReduce<T>::flush(std::span<T> values) {
  return implementation_->call(values, everything);
}

template <class T>
std::size_t PartialAllReduce<T>::bytes() const {
  return (implementation_->slots.size() + 1) * implementation_->given.size() * sizeof(T);
}

template class PartialAllReduce<float>;
template class PartialAllReduce<double>;

}  // namespace aloni::comm

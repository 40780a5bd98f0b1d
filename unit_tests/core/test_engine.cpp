// Runs real engines and schedules on a simulated network: all ranks in one thread, reproducible from a seed.
#include <aloni/core/comm/transport/crc32c.hpp>
#include <aloni/core/error.hpp>

#include "support/fault_cases.hpp"
#include "support/random_cases.hpp"
#include "support/sanitizer.hpp"
#include "support/simulated_network.hpp"

#include <gtest/gtest.h>

#include <malloc.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace test_engine {

using namespace aloni::comm;
using namespace aloni::comm::detail;
using aloni::test::NetworkOptions;
using aloni::test::SimulatedRanks;

template <class T>
std::span<const std::byte> bytes_of(const std::vector<T>& v) {
  return std::as_bytes(std::span(v));
}
template <class T>
std::span<std::byte> writable_bytes_of(std::vector<T>& v) {
  return std::as_writable_bytes(std::span(v));
}

std::vector<std::vector<int>> one_node(int size) {
  std::vector<int> all(static_cast<std::size_t>(size));
  std::iota(all.begin(), all.end(), 0);
  return {all};
}

/// Steps until done() returns true; fails after too many steps.
template <class F>
void run_until(SimulatedRanks& ranks, F&& done) {
  for (int i = 0; i < 2'000'000; ++i) {
    if (done()) return;
    ranks.step();
  }
  std::string waiting;
  for (int r = 0; r < ranks.size(); ++r)
    waiting += "\n  rank " + std::to_string(r) + ": " + ranks[r].engine->waiting_for();
  FAIL() << "not complete after all steps:" << waiting;
}

/// A program of random operations, each with a check of its result.
class RandomProgram {
 public:
  explicit RandomProgram(std::uint64_t seed) : random_(seed) {
    const int nodes = at_most(3) == 0 ? 2 : 1, per_node = 1 + at_most(nodes == 1 ? 6 : 3);
    size_ = nodes * per_node;
    std::vector<std::vector<int>> layout(static_cast<std::size_t>(nodes));
    const bool round_robin = at_most(1) == 0;
    for (int r = 0; r < size_; ++r)
      layout[static_cast<std::size_t>(round_robin ? r % nodes : r / per_node)].push_back(r);
    NetworkOptions network;
    network.copied_bytes = at_most(1) == 0 ? 64 : 4096;
    network.must_fetch = at_most(1) == 0;
    network.fragment_bytes = at_most(1) == 0 ? 1 << 20 : 512;
    network.queue_length = static_cast<std::size_t>(1 + at_most(20));
    Faults faults{.seed = seed};
    if (at_most(1) == 0) faults.delay = 0.3;
    if (at_most(1) == 0) faults.no_room = 0.2;
    ranks_ = std::make_unique<SimulatedRanks>(layout, network, faults);
    // The default run-ahead, none (a send is complete only after it was consumed), or a small one.
    const int kind_of_run_ahead = at_most(2);
    const auto run_ahead_bytes = static_cast<std::size_t>(kind_of_run_ahead == 1 ? 0 : at_most(4000));
    for (int r = 0; r < size_; ++r) {
      if (kind_of_run_ahead > 0) (*ranks_)[r].engine->set_run_ahead_bytes(run_ahead_bytes);
      if (at_most(2) == 0) (*ranks_)[r].engine->set_max_fragment_bytes(static_cast<std::size_t>(8 * (1 + at_most(40))));
    }
    can_be_direct_ = nodes == 1;
  }

  void run() {
    const int operations = 1 + at_most(5);
    for (int i = 0; i < operations; ++i) add();
    // Every rank starts the operations in the same order, at random times. Several are in flight.
    std::vector<std::size_t> next(static_cast<std::size_t>(size_), 0);
    std::vector<std::vector<Engine::Handle>> pending(static_cast<std::size_t>(size_));
    run_until(*ranks_, [&] {
      const auto r = static_cast<std::size_t>(at_most(size_ - 1));
      if (next[r] < operations_.size() && at_most(3) == 0)
        operations_[next[r]++].start(static_cast<int>(r), pending[r]);
      std::erase_if(pending[r], [&](Engine::Handle h) { return (*ranks_)[static_cast<int>(r)].engine->test(h); });
      return std::ranges::all_of(next, [&](std::size_t n) { return n == operations_.size(); }) &&
             std::ranges::all_of(pending, [](const auto& p) { return p.empty(); });
    });
    for (const Operation& o : operations_) o.check();
  }

 private:
  struct Operation {
    std::function<void(int rank, std::vector<Engine::Handle>& pending)> start;
    std::function<void()> check;
  };
  using Data = std::vector<std::vector<std::int64_t>>;

  int at_most(int n) { return std::uniform_int_distribution<int>(0, n)(random_); }

  std::shared_ptr<Data> data(std::size_t count) {
    auto d = std::make_shared<Data>(static_cast<std::size_t>(size_));
    for (std::size_t r = 0; r < d->size(); ++r) {
      for (std::size_t i = 0; i < count; ++i) (*d)[r].push_back(static_cast<std::int64_t>((r + 1) * 1'000'003 + 7 * i));
    }
    return d;
  }

  void add() {
    const auto count = static_cast<std::size_t>(at_most(3) == 0 ? at_most(3000) : at_most(40));
    const int priority = at_most(2);
    switch (at_most(4)) {
      case 0:
      case 1:
        return add_all_reduce(count, priority);
      case 2:
        return add_broadcast(count, priority);
      case 3:
        return add_all_gather();
      default:
        return add_messages(count);
    }
  }

  void add_all_reduce(std::size_t count, int priority) {
    using A = AllReduceAlgorithm;
    std::vector<A> algorithms{A::recursive_doubling, A::rabenseifner, A::ring, A::hierarchical};
    if (can_be_direct_) algorithms.push_back(A::direct);
    PlanKey key{.kind = OperationKind::all_reduce,
                .algorithm = algorithms[static_cast<std::size_t>(at_most(static_cast<int>(algorithms.size()) - 1))],
                .element_bytes = 8,
                .count = static_cast<aloni::Index>(count),
                .part_elements = at_most(1) == 0 ? 0 : 1 + at_most(999)};
    const auto values = data(count);
    const auto before = std::make_shared<Data>(*values);
    const std::uint64_t staged = random_();
    operations_.push_back({[this, key, values, staged, priority](int r, auto& pending) {
                             PlanKey own = key;
                             own.staged = key.algorithm == A::direct && (staged >> r & 1);  // may differ between ranks
                             pending.push_back(
                                 ranks_->start(r, own, {.type = static_cast<std::uint8_t>(ElementType::int64)},
                                               (*values)[static_cast<std::size_t>(r)].data(),
                                               element_operation<std::int64_t>(Reduction::sum), priority));
                           },
                           [values, before, count, key] {
                             for (std::size_t i = 0; i < count; ++i) {
                               std::int64_t sum = 0;
                               for (const auto& v : *before) sum += v[i];
                               for (const auto& v : *values)
                                 ASSERT_EQ(v[i], sum) << to_string(key.algorithm) << ", element " << i;
                             }
                           }});
  }

  void add_broadcast(std::size_t count, int priority) {
    const int root = at_most(size_ - 1);
    const auto values = data(count);
    const auto before = std::make_shared<Data>(*values);
    operations_.push_back(
        {[this, root, values, count, priority](int r, auto& pending) {
           pending.push_back(ranks_->start(
               r, {.kind = OperationKind::broadcast, .root = root, .count = static_cast<aloni::Index>(8 * count)}, {},
               (*values)[static_cast<std::size_t>(r)].data(), {}, priority));
         },
         [values, before, root] {
           for (const auto& v : *values) ASSERT_EQ(v, (*before)[static_cast<std::size_t>(root)]);
         }});
  }

  void add_all_gather() {
    const auto values = std::make_shared<Data>(static_cast<std::size_t>(size_));
    for (std::size_t r = 0; r < values->size(); ++r) {
      (*values)[r].assign(static_cast<std::size_t>(size_), -1);
      (*values)[r][r] = static_cast<std::int64_t>(r);
    }
    operations_.push_back({[this, values](int r, auto& pending) {
                             pending.push_back(ranks_->start(r, {.kind = OperationKind::all_gather, .count = 8 * size_},
                                                             {}, (*values)[static_cast<std::size_t>(r)].data(), {}));
                           },
                           [values] {
                             for (const auto& v : *values) {
                               for (std::size_t i = 0; i < v.size(); ++i) ASSERT_EQ(v[i], static_cast<std::int64_t>(i));
                             }
                           }});
  }

  /// Every rank sends two messages with the same tag to every rank, itself included.
  void add_messages(std::size_t count) {
    const auto sent = data(2 * count);
    const auto n = static_cast<std::size_t>(size_);
    const auto received = std::make_shared<std::vector<Data>>(n, Data(n, std::vector<std::int64_t>(2 * count)));
    operations_.push_back(
        {[this, sent, received, count](int r, auto& pending) {
           auto& rank = (*ranks_)[r];
           for (int half = 0; half < 2; ++half) {
             for (int peer = 0; peer < size_; ++peer) {
               auto& to = (*received)[static_cast<std::size_t>(r)][static_cast<std::size_t>(peer)];
               pending.push_back(rank.engine->receive(
                   *rank.context, writable_bytes_of(to).subspan(8 * count * static_cast<std::size_t>(half), 8 * count),
                   peer, 5));
               pending.push_back(rank.engine->send(*rank.context,
                                                   bytes_of((*sent)[static_cast<std::size_t>(r)])
                                                       .subspan(8 * count * static_cast<std::size_t>(half), 8 * count),
                                                   peer, 5));
             }
           }
         },
         [sent, received] {
           for (const auto& of_rank : *received) ASSERT_EQ(of_rank, *sent);
         }});
  }

  std::mt19937_64 random_;
  int size_ = 0;
  bool can_be_direct_ = false;
  std::unique_ptr<SimulatedRanks> ranks_;
  std::vector<Operation> operations_;
};

TEST(EngineSimulation, RandomProgramsGiveCorrectResultsForEverySeed) {
  const int programs = aloni::test::nightly() ? 10'000 : 2500;
  for (std::uint64_t seed = 0; seed < static_cast<std::uint64_t>(aloni::test::share_of(programs)); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RandomProgram program(seed);
    program.run();
    if (HasFatalFailure()) return;
  }
}

/// Programs of collectives. In a wrong program one call of one rank differs from the other ranks.
class Programs {
 public:
  struct Call {
    PlanKey key;
    Contract contract;
    friend bool operator==(const Call&, const Call&) = default;
  };

  Programs(std::uint64_t seed, bool wrong) : random_(seed), wrong_(wrong) {
    size_ = 2 + at_most(4);
    std::vector<Call> calls;
    for (int i = 2 + at_most(4); i > 0; --i) calls.push_back(any_call());
    for (int i = 0; i < 2; ++i) calls.push_back({{.kind = OperationKind::barrier}, {}});
    programs_.assign(static_cast<std::size_t>(size_), calls);
    if (!wrong) return;
    auto& program = programs_[static_cast<std::size_t>(at_most(size_ - 1))];
    const std::size_t which = static_cast<std::size_t>(at_most(static_cast<int>(program.size()) - 3));
    Call& call = program[which];
    const Call before = call;
    switch (at_most(4)) {
      case 0:
        call.key.count += call.key.kind == OperationKind::all_gather ? size_ : 1;
        break;
      case 1:
        call.contract.type = call.contract.type == 2 ? 4 : 2;
        break;
      case 2:
        call.contract.reduction ^= 1;
        break;
      case 3:
        call.key.root = (call.key.root + 1) % size_;
        break;
      default:
        // One additional call, with a count that no other call has, so that it cannot match another call.
        program.insert(program.begin() + static_cast<std::ptrdiff_t>(which),
                       Call{{.kind = OperationKind::all_gather, .count = 1000 * size_}, {}});
        return;
    }
    if (call.key.kind == OperationKind::barrier || call == before)
      call = {{.kind = OperationKind::broadcast, .count = 77}, {}};
  }

  /// Returns the error text, "stuck", or "" on success.
  std::string run() {
    Faults faults{.seed = random_()};
    faults.delay = 0.2;
    SimulatedRanks ranks(one_node(size_), {}, faults);
    std::vector<std::size_t> next(static_cast<std::size_t>(size_));
    std::vector<Engine::Handle> pending(next.size());
    std::vector<bool> busy(next.size());
    std::vector<std::vector<std::int64_t>> data(next.size(), std::vector<std::int64_t>(8000));
    try {
      for (int step = 0; step < 100'000; ++step) {
        const auto r = static_cast<std::size_t>(at_most(size_ - 1));
        if (busy[r] && ranks[static_cast<int>(r)].engine->test(pending[r])) busy[r] = false;
        if (!busy[r] && next[r] < programs_[r].size()) {
          const Call& call = programs_[r][next[r]++];
          const bool sums = call.key.kind == OperationKind::all_reduce;
          pending[r] = ranks.start(static_cast<int>(r), call.key, call.contract, data[r].data(),
                                   sums ? element_operation<std::int64_t>(Reduction::sum) : ElementOperation{});
          busy[r] = true;
        }
        ranks[static_cast<int>(r)].engine->progress();
        if (step % 1000 == 999) ranks[static_cast<int>(r)].engine->compare_notes();
        bool done = true;
        for (std::size_t i = 0; i < next.size(); ++i) done = done && next[i] == programs_[i].size() && !busy[i];
        if (done) return "";
      }
    } catch (const aloni::CommunicationError& error) {
      return error.what();
    }
    return "stuck";
  }

 private:
  int at_most(int n) { return std::uniform_int_distribution<int>(0, n)(random_); }

  Call any_call() {
    switch (at_most(3)) {
      case 0:
        return {{.kind = OperationKind::all_reduce,
                 .algorithm = static_cast<AllReduceAlgorithm>(1 + at_most(4)),
                 .element_bytes = 8,
                 .count = 1 + at_most(500)},
                {.type = static_cast<std::uint8_t>(ElementType::int64)}};
      case 1:
        return {{.kind = OperationKind::broadcast, .root = at_most(size_ - 1), .count = 1 + at_most(500)}, {}};
      case 2:
        return {{.kind = OperationKind::all_gather, .count = (1 + at_most(20)) * size_}, {}};
      default:
        return {{.kind = OperationKind::barrier}, {}};
    }
  }

  std::mt19937_64 random_;
  bool wrong_;
  int size_ = 0;
  std::vector<std::vector<Call>> programs_;
};

TEST(ContractCheck, FindsEveryWrongProgramAndNamesARank) {
  for (std::uint64_t seed = 0; seed < 600; ++seed) {
    const std::string error = Programs(seed, true).run();
    ASSERT_NE(error, "") << "seed " << seed << ": nothing found";
    ASSERT_NE(error, "stuck") << "seed " << seed;
    ASSERT_NE(error.find("call of rank "), std::string::npos) << error;
  }
}

TEST(ContractCheck, AcceptsEveryCorrectProgram) {
  for (std::uint64_t seed = 0; seed < 1000; ++seed) ASSERT_EQ(Programs(seed, false).run(), "") << "seed " << seed;
}

/// Two ranks, one all-reduce of `count` doubles each.
class Faulty : public testing::Test {
 protected:
  void start(const Faults& faults, aloni::Index first, aloni::Index second) {
    ranks_ = std::make_unique<SimulatedRanks>(one_node(2), NetworkOptions{}, faults);
    for (int r = 0; r < 2; ++r) {
      (*ranks_)[r].engine->set_checksums(checksums_);
      values_[r].assign(static_cast<std::size_t>(r == 0 ? first : second), r + 1.0);
      handles_[r] = ranks_->start(r,
                                  {.kind = OperationKind::all_reduce,
                                   .algorithm = AllReduceAlgorithm::rabenseifner,
                                   .element_bytes = 8,
                                   .count = static_cast<aloni::Index>(values_[r].size())},
                                  {.type = static_cast<std::uint8_t>(ElementType::float64)}, values_[r].data(),
                                  element_operation<double>(Reduction::sum));
    }
  }
  bool both_done() {
    for (int r = 0; r < 2; ++r) done_[r] = done_[r] || (*ranks_)[r].engine->test(handles_[r]);
    return done_[0] && done_[1];
  }

  std::unique_ptr<SimulatedRanks> ranks_;
  std::vector<double> values_[2];
  Engine::Handle handles_[2];
  bool done_[2] = {}, checksums_ = false;
};

TEST_F(Faulty, TheErrorNamesBothCallsThatDifferAndARank) {
  try {
    start({}, 100, 101);
    run_until(*ranks_, [&] { return both_done(); });
    FAIL() << "no error";
  } catch (const aloni::CommunicationError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("all_reduce(sum of 100 double)"), std::string::npos) << text;
    EXPECT_NE(text.find("all_reduce(sum of 101 double)"), std::string::npos) << text;
    EXPECT_NE(text.find("rank"), std::string::npos) << text;
  }
}

TEST_F(Faulty, ATruncatedMessageIsAnErrorAndNeverAWrongResult) {
  int errors = 0, right = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    done_[0] = done_[1] = false;
    try {
      start({.seed = seed, .truncate = 0.2}, 1000, 1000);
      run_until(*ranks_, [&] { return both_done(); });
      EXPECT_EQ((*ranks_)[0].faulty->harm() + (*ranks_)[1].faulty->harm(), 0u);
      for (const auto& v : values_) EXPECT_EQ(std::ranges::count(v, 3.0), 1000);
      ++right;
    } catch (const aloni::CommunicationError&) {
      ++errors;
    }
  }
  EXPECT_GT(errors, 20);
  EXPECT_GT(right, 20);
}

TEST_F(Faulty, ACorruptedMessageIsAnErrorWithChecksums) {
  int errors = 0, right = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    done_[0] = done_[1] = false;
    checksums_ = true;
    try {
      start({.seed = seed, .corrupt = 0.2}, 1000, 1000);
      run_until(*ranks_, [&] { return both_done(); });
      EXPECT_EQ((*ranks_)[0].faulty->harm() + (*ranks_)[1].faulty->harm(), 0u);
      for (const auto& v : values_) EXPECT_EQ(std::ranges::count(v, 3.0), 1000);
      ++right;
    } catch (const aloni::CommunicationError& error) {
      EXPECT_NE(std::string(error.what()).find("checksum"), std::string::npos) << error.what();
      ++errors;
    }
  }
  EXPECT_GT(errors, 20);
  EXPECT_GT(right, 20);
}

TEST(Checksum, IsCrc32c) {
  // The check value of the polynomial, and a test vector of RFC 3720.
  EXPECT_EQ(crc32c("123456789", 9), 0xe3069283u);
  EXPECT_EQ(crc32c(std::vector<char>(32).data(), 32), 0x8a9136aau);
}

/// Runs collectives of three ranks with one kind of fault. Each ends with the correct result, with an error, or waits;
/// then waiting_for() names a rank.
class EachFault : public testing::TestWithParam<aloni::test::FaultCase> {};

TEST_P(EachFault, LeavesEveryCollectiveCorrectOrNamesARank) {
  using A = AllReduceAlgorithm;
  std::vector<PlanKey> keys;
  for (const A algorithm : {A::direct, A::recursive_doubling, A::rabenseifner, A::ring, A::hierarchical})
    keys.push_back({.kind = OperationKind::all_reduce, .algorithm = algorithm, .element_bytes = 8, .count = 300});
  keys.push_back({.kind = OperationKind::reduce_scatter, .element_bytes = 8, .count = 300});
  keys.push_back({.kind = OperationKind::broadcast, .element_bytes = 8, .root = 1, .count = 300});
  keys.push_back({.kind = OperationKind::all_gather, .element_bytes = 8, .count = 300});
  keys.push_back({.kind = OperationKind::barrier, .element_bytes = 8});
  constexpr int size = 3;
  int harmed = 0, ended = 0;
  for (const PlanKey& key : keys) {
    for (std::uint64_t seed = 0; seed < std::uint64_t{aloni::test::share_of(30)}; ++seed) {
      SCOPED_TRACE(describe({.kind = key.kind}) + " by " + to_string(key.algorithm) + ", seed " + std::to_string(seed));
      Faults faults = GetParam().faults;
      faults.seed = seed;
      SimulatedRanks ranks(one_node(size), {}, faults);
      std::vector<std::vector<std::int64_t>> data(size, std::vector<std::int64_t>(300));
      std::vector<Engine::Handle> handles;
      std::vector<bool> done(size);
      bool error = false;
      try {
        for (int r = 0; r < size; ++r) {
          auto& own = data[static_cast<std::size_t>(r)];
          for (std::size_t i = 0; i < own.size(); ++i)
            own[i] = key.kind == OperationKind::all_gather && static_cast<int>(i) / 100 != r
                         ? -1
                         : static_cast<std::int64_t>(i) * (r + 1);
          ranks[r].engine->set_checksums(true);
          const bool sums = key.kind == OperationKind::all_reduce || key.kind == OperationKind::reduce_scatter;
          ElementOperation operation = element_operation<std::int64_t>(Reduction::sum);
          if (!sums) operation = {.element_bytes = 8};
          handles.push_back(ranks.start(r, key, {}, own.data(), operation));
        }
        for (int step = 0; step < 20'000 && !std::ranges::all_of(done, std::identity{}); ++step) {
          ranks.step();
          for (int r = 0; r < size; ++r) {
            const auto i = static_cast<std::size_t>(r);
            done[i] = done[i] || ranks[r].engine->test(handles[i]);
          }
        }
      } catch (const aloni::CommunicationError& e) {
        error = true;
        EXPECT_NE(std::string(e.what()).find("rank"), std::string::npos) << e.what();
      }
      std::uint64_t harm = 0;
      for (int r = 0; r < size; ++r) harm += ranks[r].faulty->harm() + (ranks[r].faulty->dead() ? 1u : 0u);
      harmed += harm > 0;
      if (GetParam().harmless) {
        ASSERT_FALSE(error);
        ASSERT_TRUE(std::ranges::all_of(done, std::identity{}));
      }
      for (int r = 0; r < size && !error; ++r) {
        const auto& own = data[static_cast<std::size_t>(r)];
        if (!done[static_cast<std::size_t>(r)]) {
          ASSERT_NE(ranks[r].engine->waiting_for().find("rank"), std::string::npos);
          continue;
        }
        ++ended;
        for (std::size_t i = 0; i < own.size(); ++i) {
          const auto n = static_cast<std::int64_t>(i);
          const bool block = static_cast<int>(i) / 100 == r;
          std::int64_t expected = own[i];  // a barrier has no data
          if (key.kind == OperationKind::all_reduce || (key.kind == OperationKind::reduce_scatter && block))
            expected = 6 * n;
          if (key.kind == OperationKind::broadcast) expected = 2 * n;
          if (key.kind == OperationKind::all_gather) expected = n * (n / 100 + 1);
          ASSERT_EQ(own[i], expected);
        }
      }
    }
  }
  EXPECT_EQ(harmed > aloni::test::share_of(50), !GetParam().harmless) << harmed;
  EXPECT_GT(ended, aloni::test::share_of(50));
}

INSTANTIATE_TEST_SUITE_P(Kinds, EachFault, testing::ValuesIn(aloni::test::fault_cases()),
                         [](const auto& info) { return info.param.name; });

TEST_F(Faulty, AWaitingRankNamesTheRankThatItWaitsFor) {
  start({.dies_after = 0}, 1000, 1000);
  for (int i = 0; i < 1000; ++i) ranks_->step();
  EXPECT_FALSE(both_done());
  const std::string text = (*ranks_)[0].engine->waiting_for();
  EXPECT_NE(text.find("all_reduce(sum of 1000 double)"), std::string::npos) << text;
  EXPECT_NE(text.find("rank 1"), std::string::npos) << text;
}

// An operation of higher priority overtakes a running operation at its next part.
TEST(EnginePriority, ASmallUrgentOperationOvertakesALargeOperation) {
  SimulatedRanks ranks(one_node(2), {}, {});
  std::vector<double> large[2], small[2];
  Engine::Handle large_handle[2], small_handle[2];
  const auto start = [&](int r, std::vector<double>& v, std::size_t count, aloni::Index part, int priority) {
    v.assign(count, r + 1.0);
    return ranks.start(r,
                       {.kind = OperationKind::all_reduce,
                        .algorithm = AllReduceAlgorithm::rabenseifner,
                        .element_bytes = 8,
                        .count = static_cast<aloni::Index>(count),
                        .part_elements = part},
                       {.type = static_cast<std::uint8_t>(ElementType::float64)}, v.data(),
                       element_operation<double>(Reduction::sum), priority);
  };
  for (int r = 0; r < 2; ++r) large_handle[r] = start(r, large[r], 1'000'000, 10'000, 0);
  for (int i = 0; i < 20; ++i) ranks.step();
  for (int r = 0; r < 2; ++r) small_handle[r] = start(r, small[r], 1000, 0, 1);
  bool done[2] = {};
  int steps = 0;
  run_until(ranks, [&] {
    ++steps;
    for (int r = 0; r < 2; ++r) done[r] = done[r] || ranks[r].engine->test(small_handle[r]);
    return done[0] && done[1];
  });
  EXPECT_LT(steps, 100) << "the large operation takes about a thousand steps";
  EXPECT_FALSE(ranks[0].engine->test(large_handle[0]));
  EXPECT_EQ(std::ranges::count(small[0], 3.0), 1000);
  for (int r = 0; r < 2; ++r) run_until(ranks, [&] { return ranks[r].engine->test(large_handle[r]); });
  EXPECT_EQ(std::ranges::count(large[1], 3.0), 1'000'000);
}

/// A mail in fragments arrives before its communicator exists on the receiver, and its data before the head is taken.
TEST(Engine, MailsOfALaterCommunicatorAreFoundOnce) {
  SimulatedRanks ranks({{0, 1}}, {.copied_bytes = 8}, {});
  ranks[0].engine->set_max_fragment_bytes(10);
  Engine::Context& from = ranks[0].engine->add_context(5, {0, 1});
  const std::vector<std::byte> head(25, std::byte{1}), data(100, std::byte{2});
  std::vector<Engine::Handle> sent;
  for (const std::uint32_t number : {0u, 1u}) {
    sent.push_back(ranks[0].engine->send_mail(from, data, 1, 3, number, Engine::MailPart::data));
    sent.push_back(ranks[0].engine->send_mail(from, head, 1, 3, number, Engine::MailPart::head));
  }
  const auto progress = [&] {
    for (int i = 0; i < 20; ++i) {
      ranks[0].engine->progress();
      ranks[1].engine->progress();
    }
  };
  progress();
  Engine::Context& to = ranks[1].engine->add_context(5, {0, 1});
  for (const std::uint32_t number : {0u, 1u}) {
    const auto mail = ranks[1].engine->next_mail(to);
    ASSERT_TRUE(mail);
    EXPECT_EQ(mail->peer, 0);
    EXPECT_EQ(mail->kind, 3u);
    EXPECT_EQ(mail->number, number);
    ASSERT_EQ(mail->bytes, head.size());
    std::vector<std::byte> head_here(head.size()), data_here(data.size());
    const auto h = ranks[1].engine->receive_mail(to, head_here, 0, 3, number, Engine::MailPart::head, "test");
    const auto d = ranks[1].engine->receive_mail(to, data_here, 0, 3, number, Engine::MailPart::data, "test");
    progress();
    EXPECT_TRUE(ranks[1].engine->test(h));
    EXPECT_TRUE(ranks[1].engine->test(d));
    EXPECT_EQ(head_here, head);
    EXPECT_EQ(data_here, data);
  }
  EXPECT_FALSE(ranks[1].engine->next_mail(to));
  for (const Engine::Handle h : sent) EXPECT_TRUE(ranks[0].engine->test(h));
}

/// `count` messages of one element each, from rank 0 to rank 1.
Schedule many_messages(int rank, aloni::Index count) {
  Schedule s{.rank = rank, .steps = std::vector<Step>(static_cast<std::size_t>(count)), .output = count};
  for (aloni::Index i = 0; i < count; ++i) {
    const Region element{Buffer::output, i, 1};
    Step& step = s.steps[static_cast<std::size_t>(i)];
    step = {.kind = rank == 0 ? Step::Kind::send : Step::Kind::receive, .peer = 1 - rank};
    (rank == 0 ? step.from : step.to) = element;
  }
  return s;
}

constexpr aloni::Index most_messages_to_one_rank = 65'529;

/// The last of them has the greatest number that is none of the engine's own messages.
TEST(Engine, TheMostMessagesOfAScheduleToOneRankArrive) {
  if (aloni::test::sanitized) GTEST_SKIP() << "takes long, and shows nothing more there";
  const std::vector<int> root_ranks{0, 1};
  SimulatedRanks ranks({root_ranks}, {}, {});
  std::vector<std::int64_t> sent(most_messages_to_one_rank), here(sent.size());
  std::iota(sent.begin(), sent.end(), 1);
  std::vector<std::int64_t>* const values[] = {&sent, &here};
  Engine::Handle handles[2];
  Program programs[2];
  for (const int r : root_ranks) {
    programs[r] = compile(many_messages(r, most_messages_to_one_rank), root_ranks);
    handles[r] = ranks[r].engine->start(ranks[r].engine->add_context(5, root_ranks),
                                        {.name = "test",
                                         .contract = {.kind = OperationKind::user},
                                         .last = &programs[r],
                                         .input = values[r]->data(),
                                         .output = values[r]->data(),
                                         .operation = {.element_bytes = sizeof(std::int64_t)}});
  }
  for (const int r : root_ranks) run_until(ranks, [&] { return ranks[r].engine->test(handles[r]); });
  EXPECT_EQ(here, sent);
}

TEST(Engine, ASchedulesMessagesNeverGetTheNumbersOfTheEngine) {
  for (const int rank : {0, 1}) {
    try {
      compile(many_messages(rank, most_messages_to_one_rank + 1), std::vector<int>{0, 1});
      ADD_FAILURE() << "compiled";
    } catch (const aloni::Unsupported& error) {
      EXPECT_EQ(error.argument(), rank == 0 ? "messages to rank 1" : "messages from rank 0");
      EXPECT_EQ(error.value(), "65530");
      EXPECT_NE(error.expectation().find("65529"), std::string::npos);
    }
  }
}

TEST(Engine, RemovedContextsLeaveNoMemory) {
  SimulatedRanks ranks(one_node(2), {}, {.seed = 1});
  std::uint32_t id = 0;
  const auto make_and_remove = [&](int contexts) {
    for (int i = 0; i < contexts; ++i) {
      ++id;
      Engine::Context* const c[2] = {&ranks[0].engine->add_context(id, {0, 1}),
                                     &ranks[1].engine->add_context(id, {0, 1})};
      std::uint64_t said = id, heard = 0;
      const auto send = ranks[0].engine->send(*c[0], std::as_bytes(std::span(&said, 1)), 1, 7);
      const auto receive = ranks[1].engine->receive(*c[1], std::as_writable_bytes(std::span(&heard, 1)), 0, 7);
      bool sent = false, received = false;
      run_until(ranks, [&] {
        sent = sent || ranks[0].engine->test(send);
        received = received || ranks[1].engine->test(receive);
        return sent && received;
      });
      ASSERT_EQ(heard, id);
      for (int r = 0; r < 2; ++r) ranks[r].engine->remove_context(*c[r]);
    }
  };
  make_and_remove(100);
  const std::size_t before = mallinfo2().uordblks;  // bytes in use; 0 under AddressSanitizer
  make_and_remove(20'000);
  EXPECT_LT(mallinfo2().uordblks, before + 100'000);
}

}  // namespace test_engine

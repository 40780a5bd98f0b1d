// The builder's dependencies, and what the verifier refuses: each kind of mistake, named.
#include <aloni/core/comm/schedule/algorithms.hpp>
#include <aloni/core/comm/schedule/verify.hpp>
#include <aloni/core/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace aloni::comm {
namespace test_schedule {

using testing::ElementsAre;
using testing::HasSubstr;

/// The example of schedule.hpp.
Schedule exchange_and_add(int rank, Index count) {
  Builder b(rank);
  const Region data = b.output(count), theirs = b.scratch(count);
  b.send(1 - rank, data);
  b.receive(1 - rank, theirs);
  b.reduce(theirs, data, rank == 1 ? Operands::from_first : Operands::to_first);
  return b.finish();
}

std::vector<Schedule> pair() { return {exchange_and_add(0, 3), exchange_and_add(1, 3)}; }

std::vector<Schedule> ring(int p, Index n) {
  std::vector<Schedule> all;
  for (int r = 0; r < p; ++r) {
    Builder b(r);
    ring_all_reduce(b, Team::all(r, p), b.output(n));
    all.push_back(b.finish());
  }
  return all;
}

std::string refusal(const std::vector<Schedule>& schedules, const Goal& goal) {
  try {
    verify(schedules, goal);
  } catch (const InvalidArgument& e) {
    return e.what();
  }
  return "nothing was refused";
}

TEST(Schedule, CutsARegionIntoBlocksTheLargerOnesFirst) {
  const Region whole{Buffer::output, 10, 8};
  EXPECT_EQ(block_of(whole, 0, 3), (Region{Buffer::output, 10, 3}));
  EXPECT_EQ(block_of(whole, 1, 3), (Region{Buffer::output, 13, 3}));
  EXPECT_EQ(block_of(whole, 2, 3), (Region{Buffer::output, 16, 2}));
  EXPECT_EQ(blocks_of(whole, 1, 3, 3), (Region{Buffer::output, 13, 5}));
}

TEST(Builder, LetsWaitWhatTouchesTheSameElements) {
  const Schedule s = exchange_and_add(0, 3);
  ASSERT_EQ(s.steps.size(), 3u);
  EXPECT_THAT(s.dependencies_of(s.steps[0]), ElementsAre());
  EXPECT_THAT(s.dependencies_of(s.steps[1]), ElementsAre());
  EXPECT_THAT(s.dependencies_of(s.steps[2]), ElementsAre(0, 1)) << "it overwrites what is sent, and reads what arrives";
}

TEST(Builder, NamesEachDependencyOnce) {
  Builder b(0);
  const Region x = b.output(4), t = b.scratch(4);
  b.receive(1, t);             // 0
  b.copy(t, x);                // 1, after 0
  b.send(2, x);                // 2, after 1
  b.receive(3, t.part(0, 2));  // 3, after 1, which waits for 0
  b.fence();
  b.send(1, t.part(3, 1));  // 4, after all
  const Schedule s = b.finish();
  EXPECT_THAT(s.dependencies_of(s.steps[2]), ElementsAre(1));
  EXPECT_THAT(s.dependencies_of(s.steps[3]), ElementsAre(1));
  EXPECT_THAT(s.dependencies_of(s.steps[4]), ElementsAre(2, 3));
}

TEST(Builder, RefusesRegionsOutsideTheBuffers) {
  Builder b(0);
  const Region x = b.output(4), t = b.scratch(2);
  EXPECT_THROW(b.send(1, {Buffer::output, 3, 2}), InvalidArgument);
  EXPECT_THROW(b.receive(1, {Buffer::scratch, -1, 2}), InvalidArgument);
  EXPECT_THROW(b.copy(x, t), InvalidArgument);
  EXPECT_THROW(b.reduce(x.part(0, 2), x.part(1, 2), Operands::to_first), InvalidArgument);
}

TEST(Verifier, ProvesTheExample) {
  const Cost cost = verify(pair(), all_reduce_goal(2, 3));
  EXPECT_THAT(cost.elements_sent, ElementsAre(3, 3));
  EXPECT_EQ(cost.rounds, 1);
}

TEST(Verifier, RefusesAMessageWithoutReceive) {
  auto all = pair();
  all[1].steps.erase(all[1].steps.begin() + 1);
  all[1].steps[1].num_dependencies = 1;
  EXPECT_THAT(refusal(all, all_reduce_goal(2, 3)), HasSubstr("a receive for it on the other rank"));
}

TEST(Verifier, RefusesAReceiveWithoutMessage) {
  auto all = pair();
  all[0].steps.push_back({.kind = Step::Kind::receive, .peer = 1, .to = {Buffer::scratch, 0, 1}});
  EXPECT_THAT(refusal(all, all_reduce_goal(2, 3)), HasSubstr("a send for it on the other rank"));
}

TEST(Verifier, RefusesMessagesOfAnotherSize) {
  auto all = pair();
  all[0].steps[0].from.count = 2;
  EXPECT_THAT(refusal(all, all_reduce_goal(2, 3)), HasSubstr("equal sizes"));
}

TEST(Verifier, RefusesRanksAndRegionsThatAreNotThere) {
  auto all = pair();
  all[0].steps[0].peer = 2;
  EXPECT_THAT(refusal(all, all_reduce_goal(2, 3)), HasSubstr("another rank of the 2"));
  all = pair();
  all[1].steps[2].from.offset = 1;
  EXPECT_THAT(refusal(all, all_reduce_goal(2, 3)), HasSubstr("elements of a buffer of 3"));
  all = pair();
  all[1].dependencies[0] = 2;
  EXPECT_THAT(refusal(all, all_reduce_goal(2, 3)), HasSubstr("an earlier step"));
}

TEST(Verifier, RefusesStepsThatRace) {
  auto all = pair();
  // The sum may overwrite what is still being sent.
  ASSERT_THAT(all[0].dependencies, ElementsAre(0, 1));
  all[0].steps[2].first_dependency = 1;
  all[0].steps[2].num_dependencies = 1;
  EXPECT_THAT(refusal(all, all_reduce_goal(2, 3)), HasSubstr("may run before step 0"));
}

TEST(Verifier, RefusesADeadlockThatBufferingWouldHide) {
  std::vector<Schedule> all;
  for (int r = 0; r < 2; ++r) {
    Builder b(r);
    const Region data = b.output(3), theirs = b.scratch(3);
    b.send(1 - r, data);
    b.fence();  // both send first and wait until the other has taken it
    b.receive(1 - r, theirs);
    b.reduce(theirs, data, Operands::to_first);
    all.push_back(b.finish());
  }
  EXPECT_THAT(refusal(all, all_reduce_goal(2, 3)), HasSubstr("never completes"));
}

/// All combine their block in everybody's memory; `before` and `after`: whether messages say that all may, and have.
std::vector<Schedule> in_shared_memory(int size, Index count, bool before, bool after) {
  std::vector<Schedule> all;
  for (int r = 0; r < size; ++r) {
    Builder b(r);
    const Team team = Team::all(r, size);
    const Region data = b.output(count), copy = b.scratch(count);
    b.copy(data, copy);  // something that uses the data first
    b.fence();
    b.expose(data, team.ranks());
    if (before) dissemination_barrier(b, team);
    b.combine(block_of(data, r, size), block_of(data, r, size).offset);
    b.fence();
    if (after) dissemination_barrier(b, team);
    b.copy(data, copy);
    all.push_back(b.finish());
  }
  return all;
}

TEST(Verifier, RefusesToCombineInMemoryThatItsOwnerMayUse) {
  EXPECT_NO_THROW(verify(in_shared_memory(3, 7, true, true), all_reduce_goal(3, 7)));
  EXPECT_THAT(refusal(in_shared_memory(3, 7, false, true), all_reduce_goal(3, 7)), HasSubstr("at the same time"));
  EXPECT_THAT(refusal(in_shared_memory(3, 7, true, false), all_reduce_goal(3, 7)), HasSubstr("at the same time"));
}

TEST(Verifier, RefusesCombinationsThatDoNotFitTheOthers) {
  auto all = in_shared_memory(2, 7, true, true);
  for (Step& s : all[1].steps) {
    if (s.kind == Step::Kind::combine) s.place += 1;
  }
  EXPECT_THAT(refusal(all, all_reduce_goal(2, 7)), HasSubstr("that it exposes"));
  all = in_shared_memory(2, 7, true, true);
  all[0].exposed_to = {1, 0};
  EXPECT_THAT(refusal(all, all_reduce_goal(2, 7)), HasSubstr("the same ranks in one order"));
}

TEST(Verifier, RefusesAContributionThatIsAddedTwice) {
  std::vector<Schedule> all;
  for (int r = 0; r < 2; ++r) {
    Builder b(r);
    const Region data = b.output(3), theirs = b.scratch(3);
    b.send(1 - r, data);
    b.receive(1 - r, theirs);
    b.reduce(theirs, data, Operands::to_first);
    b.reduce(theirs, data, Operands::to_first);
    all.push_back(b.finish());
  }
  EXPECT_THAT(refusal(all, all_reduce_goal(2, 3)), HasSubstr("each contribution once"));
}

TEST(Verifier, RefusesAnElementAddedToAnother) {
  auto all = pair();
  for (auto& s : all) {
    s.scratch = 4;
    s.steps[1].to.offset = 1;  // one element further than where the sum looks
  }
  EXPECT_THAT(refusal(all, all_reduce_goal(2, 3)), HasSubstr("without a value"));
}

TEST(Verifier, RefusesAResultThatLacksARank) {
  auto all = pair();
  all[1].steps.pop_back();
  EXPECT_THAT(refusal(all, all_reduce_goal(2, 3)), HasSubstr("output[0] of rank 1"));
  EXPECT_THAT(refusal(all, all_reduce_goal(2, 3)), HasSubstr("of ranks {0, 1}"));
}

TEST(Verifier, RefusesABarrierThatDoesNotWaitForAll) {
  std::vector<Schedule> all;
  for (int r = 0; r < 3; ++r) {
    Builder b(r);
    const Region nothing{Buffer::scratch, 0, 0};
    b.send((r + 1) % 3, nothing);
    b.receive((r + 2) % 3, nothing);
    all.push_back(b.finish());
  }
  EXPECT_THAT(refusal(all, barrier_goal(3)), HasSubstr("has begun"));
}

TEST(Verifier, FindsEveryStepThatIsLeftOut) {
  const auto good = ring(4, 9);
  ASSERT_NO_THROW(verify(good, all_reduce_goal(4, 9)));
  for (std::size_t i = 0; i < good[2].steps.size(); ++i) {
    auto bad = good;
    // In its place one that touches nothing; a message has to be taken out on the other side too to be missed.
    bad[2].steps[i].from.count = bad[2].steps[i].to.count = 0;
    EXPECT_THROW(verify(bad, all_reduce_goal(4, 9)), InvalidArgument) << "step " << i;
  }
}

TEST(Verifier, FindsEveryDependencyThatIsLeftOut) {
  const auto good = ring(4, 9);
  for (std::size_t i = 0; i < good[1].steps.size(); ++i) {
    for (int d = 0; d < good[1].steps[i].num_dependencies; ++d) {
      auto bad = good;
      Step& s = bad[1].steps[i];
      auto& list = bad[1].dependencies;
      // Dependencies are listed by step: moving the others to the front drops this one.
      std::swap(list[static_cast<std::size_t>(s.first_dependency + d)],
                list[static_cast<std::size_t>(s.first_dependency + s.num_dependencies - 1)]);
      --s.num_dependencies;
      EXPECT_THROW(verify(bad, all_reduce_goal(4, 9)), InvalidArgument) << "step " << i << " without dependency " << d;
    }
  }
}

}  // namespace test_schedule
}  // namespace aloni::comm

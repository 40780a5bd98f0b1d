// Values that all ranks must have equal: what differs is found and named, with its ranks, on all ranks.
#include "support/transport.hpp"

#include <aloni/core/comm/agreement.hpp>
#include <aloni/core/comm/communicator.hpp>
#include <aloni/core/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace test_agreement {

using namespace aloni::comm;
using testing::HasSubstr;

std::string error_of(const Communicator& comm, const std::string& operation, const ReplicatedValues& values) {
  try {
    check_equal(comm, operation, values);
  } catch (const aloni::InvalidArgument& e) {
    return e.what();
  }
  return "no error";
}

TEST(Agreement, NamesRanksAsLists) {
  EXPECT_EQ(name_ranks({3}), "rank 3");
  EXPECT_EQ(name_ranks({2, 3}), "ranks 2, 3");
  EXPECT_EQ(name_ranks({0, 2, 5, 6, 7, 9}), "ranks 0, 2, 5 to 7, 9");
}

TEST(Agreement, KeepsAllBitsOfNumbers) {
  ReplicatedValues values;
  values.add("a", 0.1)
      .add("b", std::nextafter(0.1, 1.0))
      .add("c", 1.0 / 3)
      .add("d", true)
      .add("e", std::uint64_t{1} << 63);
  EXPECT_EQ(values.values()[0].text, "0.1");
  EXPECT_EQ(values.values()[1].text, "0.10000000000000002");
  EXPECT_EQ(values.values()[2].text, "0.33333333333333331");
  EXPECT_EQ(values.values()[3].text, "true");
  EXPECT_EQ(values.values()[4].text, "9223372036854775808");
}

TEST(Agreement, AcceptsEqualValues) {
  const auto comm = aloni::test::make_communicator();
  EXPECT_EQ(error_of(comm, "f", {}), "no error");
  ReplicatedValues values;
  values.add("seed", 3).add("name", std::string("x"));
  EXPECT_EQ(error_of(comm, "f", values), "no error");
}

TEST(Agreement, NamesTheFirstValueThatDiffersAndTheRanksOfEachValue) {
  const auto comm = aloni::test::make_communicator();
  std::mt19937 random(5);  // the same on all ranks
  for (int trial = 0; trial < 50 && comm.size() > 1; ++trial) {
    const int fields = std::uniform_int_distribution(1, 9)(random);
    const int wrong = std::uniform_int_distribution(0, fields - 1)(random);
    std::vector<int> value(static_cast<std::size_t>(comm.size()));  // of each rank
    for (int& v : value) v = std::uniform_int_distribution(0, 2)(random);
    value.back() = (value.front() + 1) % 3;
    ReplicatedValues values;
    for (int i = 0; i < fields; ++i) {
      const int mine = value[static_cast<std::size_t>(comm.rank())];
      values.add("field" + std::to_string(i), i < wrong ? 7 : mine);  // later ones differ too
    }
    const std::string text = error_of(comm, "f", values);
    EXPECT_THAT(text, HasSubstr("f: field" + std::to_string(wrong) + " = "));
    for (int v = 0; v < 3; ++v) {
      std::vector<int> ranks;
      for (int r = 0; r < comm.size(); ++r) {
        if (value[static_cast<std::size_t>(r)] == v) ranks.push_back(r);
      }
      if (!ranks.empty()) {
        EXPECT_THAT(text, HasSubstr(std::to_string(v) + " on " + name_ranks(ranks)));
      }
    }
  }
}

TEST(Agreement, NamesAMissingValueAndADifferentCall) {
  const auto comm = aloni::test::make_communicator();
  if (comm.size() == 1) return;
  const bool last = comm.rank() == comm.size() - 1;
  ReplicatedValues values;
  values.add("a", 1);
  if (!last) values.add("b", 2);
  EXPECT_THAT(error_of(comm, "f", values), testing::AllOf(HasSubstr("b = 2 on rank"), HasSubstr("nothing on rank")));
  const std::string call = error_of(comm, last ? "g" : "f", {});
  EXPECT_THAT(call, testing::AllOf(HasSubstr("call = f on rank"), HasSubstr("g on rank")));
}

TEST(Agreement, ComparesNamesAndTheirEnds) {
  const auto comm = aloni::test::make_communicator();
  if (comm.size() == 1) return;
  const bool last = comm.rank() == comm.size() - 1;
  ReplicatedValues other, shifted;
  other.add(last ? "a" : "b", 1);
  EXPECT_THAT(error_of(comm, "f", other), testing::AllOf(HasSubstr("1 on rank"), HasSubstr("a = 1 on rank")));
  shifted.add(last ? "ab" : "a", std::string(last ? "c" : "bc"));
  EXPECT_THAT(error_of(comm, "f", shifted), testing::AllOf(HasSubstr("bc on rank"), HasSubstr("ab = c on rank")));
}

TEST(Agreement, ShowsTheDifferenceOfLongTexts) {
  const auto comm = aloni::test::make_communicator();
  if (comm.size() == 1) return;
  const bool last = comm.rank() == comm.size() - 1;
  ReplicatedValues values;
  values.add("text", std::string(1000, 'x') + (last ? "left" : "right") + std::string(1000, 'y'));
  const std::string text = error_of(comm, "f", values);
  EXPECT_THAT(text, testing::AllOf(HasSubstr("xleft"), HasSubstr("xright")));
  EXPECT_LT(text.size(), 400u);
}

TEST(Agreement, FindsOneChangedBit) {
  const auto comm = aloni::test::make_communicator();
  if (comm.size() == 1) return;
  std::vector<std::byte> bytes(100'000);
  if (comm.rank() == 1) bytes[70'000] = std::byte{4};
  ReplicatedValues values;
  values.add("data", std::span<const std::byte>(bytes));
  EXPECT_THAT(error_of(comm, "f", values), testing::AllOf(HasSubstr("data = 100000 bytes"), HasSubstr("on rank 1")));
}

}  // namespace test_agreement

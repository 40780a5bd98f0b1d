#include <aloni/core/error.hpp>

#include <gtest/gtest.h>

#include <string>

namespace test_error {

using namespace aloni;

TEST(Error, NamesOperationArgumentValueAndExpectationInOneLine) {
  const InvalidArgument error("aloni::nn::Strategy", "layer", "\"conv9\"", "the name of a layer");
  EXPECT_STREQ(error.what(), "aloni::nn::Strategy: layer = \"conv9\": expected the name of a layer");
  EXPECT_EQ(error.operation(), "aloni::nn::Strategy");
  EXPECT_EQ(error.argument(), "layer");
  EXPECT_EQ(error.value(), "\"conv9\"");
  EXPECT_EQ(error.expectation(), "the name of a layer");
}

TEST(Error, LeavesOutEmptyFields) {
  EXPECT_STREQ(FileError("aloni::nn::read_idx", "/data/x", "", "").what(), "aloni::nn::read_idx: /data/x");
  EXPECT_STREQ(Unsupported("f", "", "3", "2").what(), "f: 3: expected 2");
}

TEST(Error, EscapesControlCharactersInItsLineOnly) {
  const FileError error("f", "a\033[2J", "b\nc\x7f\x9b\xc2\x85", "≥ 0 …");
  EXPECT_STREQ(error.what(), "f: a\\x1b[2J = b\\nc\\x7f\\x9b\\xc2\\x85: expected ≥ 0 …");
  EXPECT_EQ(error.argument(), "a\033[2J");
  EXPECT_STREQ(PeerFailed("f", 1, "m\r").what(), "f: rank 1 failed: m\\r");
  EXPECT_STREQ(FileError("f", "", "\xe2\x89", "").what(), "f: \\xe2\\x89") << "half a character";
}

TEST(Error, AllTypesAreCaughtAsErrorAndAsRuntimeError) {
  EXPECT_THROW(throw StaleGhosts("f", "a", "b", "c"), Error);
  EXPECT_THROW(throw CommunicationError("f", "a", "b", "c"), std::runtime_error);
  EXPECT_THROW(throw PeerFailed("f", 1, "m"), Error);
}

TEST(PeerFailed, NamesTheRankAndItsMessage) {
  const PeerFailed error("aloni::comm::all_reduce", 3, "no such file");
  EXPECT_STREQ(error.what(), "aloni::comm::all_reduce: rank 3 failed: no such file");
  EXPECT_EQ(error.rank(), 3);
  EXPECT_EQ(error.root_rank(), 3);
  EXPECT_EQ(error.value(), "no such file");
}

TEST(PeerFailed, NamesTheRankOfTheRootCommunicatorIfItDiffers) {
  const PeerFailed member("f", 1, "m", 5), stranger("f", -1, "m", 5), same("f", 2, "m", 2);
  EXPECT_STREQ(member.what(), "f: rank 1 (rank 5 of the root communicator) failed: m");
  EXPECT_STREQ(stranger.what(), "f: rank 5 of the root communicator failed: m");
  EXPECT_STREQ(same.what(), "f: rank 2 failed: m");
  EXPECT_STREQ(PeerFailed("f", -1, "m").what(), "f: a rank failed: m");
  EXPECT_EQ(stranger.rank(), -1);
  EXPECT_EQ(stranger.root_rank(), 5);
}

}  // namespace test_error

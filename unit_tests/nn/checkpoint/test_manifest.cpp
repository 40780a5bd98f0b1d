// The manifest of a checkpoint: its text form, and texts that it refuses.
#include <aloni/core/comm/transport/crc32c.hpp>
#include <aloni/core/error.hpp>
#include <aloni/nn/checkpoint/manifest.hpp>

#include <gmock/gmock.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <string>

namespace aloni::nn::checkpoint {
namespace test_manifest {

Manifest example() {
  Manifest m;
  m.step = 1200;
  m.state.integers = {{"step", 1200}, {"least", std::numeric_limits<std::int64_t>::min()}};
  m.state.numbers = {{"learning_rate", 0.1}, {"best", std::numeric_limits<double>::infinity()}, {"tiny", 5e-324}};
  m.state.texts = {{"optimiser", "adam"}, {"odd", "a \"quote\"\n and ü"}};
  m.tensors = {
      {"conv.weight",
       ElementType::float32,
       {{4, 1, 3, 3, 2}},
       {{{{0, 0, 0, 0, 0}, {2, 1, 3, 3, 2}}, "rank-0.bin", 0, 144, 0xffffffffu},
        {{{2, 0, 0, 0, 0}, {4, 1, 3, 3, 2}}, "rank-1.bin", 0, 144, 7}}},
      {"conv.bias", ElementType::float64, {{1, 1, 1, 1, 4}}, {{{{}, {1, 1, 1, 1, 4}}, "rank-1.bin", 144, 32, 1}}},
      {"none", ElementType::float64, {{1, 1, 1, 1, 0}}, {}}};
  return m;
}

std::string refusal_of(const std::string& text) {
  try {
    parse_manifest(text, "manifest.json");
  } catch (const FileError& e) {
    return e.what();
  }
  return "";
}

/// The text with `from` replaced, and the checksum made right again.
std::string with(std::string text, const std::string& from, const std::string& to) {
  const auto at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  text.replace(at, from.size(), to);
  const auto end = text.rfind(",\"crc32c\":\"");
  char digits[9];
  std::snprintf(digits, sizeof digits, "%08x", comm::detail::crc32c(text.data(), end));
  return text.substr(0, end) + ",\"crc32c\":\"" + digits + "\"}\n";
}

TEST(Manifest, IsReadAsItWasWritten) {
  EXPECT_EQ(parse_manifest(to_json(example()), "manifest.json"), example());
  Manifest m = example();
  m.state.numbers = {{"loss", std::nan("")}, {"worst", -std::numeric_limits<double>::infinity()}};
  const Manifest read = parse_manifest(to_json(m), "manifest.json");
  EXPECT_TRUE(std::isnan(read.state.numbers.at("loss")));
  EXPECT_EQ(read.state.numbers.at("worst"), -std::numeric_limits<double>::infinity());
}

TEST(Manifest, RefusesEachFlippedBit) {
  std::string text = to_json(example());
  for (std::size_t i = 0; i < text.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      text[i] = static_cast<char>(text[i] ^ 1 << bit);
      ASSERT_NE(refusal_of(text), "") << "byte " << i << ", bit " << bit;
      text[i] = static_cast<char>(text[i] ^ 1 << bit);
    }
  }
}

TEST(Manifest, RefusesEachTruncation) {
  const std::string text = to_json(example());
  for (std::size_t length = 0; length < text.size(); ++length)
    ASSERT_NE(refusal_of(text.substr(0, length)), "") << length << " bytes";
  EXPECT_NE(refusal_of(text + " "), "");
}

TEST(Manifest, RefusesWrongValuesWithARightChecksum) {
  const std::string text = to_json(example());
  ASSERT_EQ(refusal_of(text), "");
  const auto refusal = [&](const std::string& from, const std::string& to) { return refusal_of(with(text, from, to)); };
  using testing::HasSubstr;
  EXPECT_THAT(refusal("aloni checkpoint", "another format"), HasSubstr("another format"));
  EXPECT_THAT(refusal("\"version\":1", "\"version\":2"), HasSubstr("version is 2"));
  EXPECT_THAT(refusal("\"step\":1200,\"state\"", "\"step\":-1,\"state\""), HasSubstr("at least 0"));
  EXPECT_THAT(refusal("\"step\":1200,\"state\"", "\"step\":1e3,\"state\""), HasSubstr("an integer of 64 bits"));
  EXPECT_THAT(refusal("conv.bias", "conv.weight"), HasSubstr("two tensors conv.weight"));
  EXPECT_THAT(refusal("float64", "complex"), HasSubstr("complex"));
  EXPECT_THAT(refusal("[4,1,3,3,2]", "[5,1,3,3,2]"), HasSubstr("72 elements: expected 90"));
  EXPECT_THAT(refusal("[4,1,3,3,2]", "[-4,1,3,3,2]"), HasSubstr("at least 0"));
  EXPECT_THAT(refusal("[4,1,3,3,2]", "[4611686018427387904,4611686018427387904,3,3,2]"), HasSubstr("extents"));
  EXPECT_THAT(refusal("[2,0,0,0,0]", "[1,0,0,0,0]"), HasSubstr("144 bytes: expected 216"));
  EXPECT_THAT(refusal("[[2,0,0,0,0],[4,", "[[1,0,0,0,0],[3,"), HasSubstr("overlaps with block 0"));
  EXPECT_THAT(refusal("[[2,0,0,0,0],[4,", "[[3,0,0,0,0],[5,"), HasSubstr("has the box"));
  EXPECT_THAT(refusal("\"offset\":144", "\"offset\":140"), HasSubstr("overlap in rank-1.bin at byte 140"));
  EXPECT_THAT(refusal("\"crc32c\":4294967295", "\"crc32c\":4294967296"), HasSubstr("2^32"));
  EXPECT_THAT(refusal("rank-0.bin", "../../secret"), HasSubstr("rank-N.bin"));
  EXPECT_THAT(refusal("rank-0.bin", "rank-\\u001b.bin"), HasSubstr("\\x1b"));
  EXPECT_THAT(refusal("\"tensors\":", "\"senators\":"), HasSubstr("no member tensors"));
  EXPECT_THAT(refusal("\"numbers\":{", "\"numbers\":{\"x\":true,"), HasSubstr("state.numbers.x is true"));
  EXPECT_THAT(refusal("\"state\":{", "\"state\":["), HasSubstr("no JSON"));
  const std::string deep(100000, '[');
  EXPECT_THAT(refusal("\"texts\":", "\"texts\":" + deep), HasSubstr("no JSON"));
}

TEST(Manifest, MergesTheBlocksOfRanks) {
  Manifest first = example(), second = example();
  first.tensors[0].blocks.pop_back();
  second.tensors[0].blocks.erase(second.tensors[0].blocks.begin());
  second.tensors[1].blocks.clear();
  const std::string part = to_json(second);
  EXPECT_NE(refusal_of(part), "");
  merge(first, parse_part(part, "part"));
  EXPECT_EQ(first, example());
}

}  // namespace test_manifest
}  // namespace aloni::nn::checkpoint

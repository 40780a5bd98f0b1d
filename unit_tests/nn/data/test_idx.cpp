#include <aloni/core/config.hpp>
#include <aloni/core/error.hpp>
#include <aloni/nn/data/idx.hpp>

#include <gmock/gmock.h>

#include <fstream>
#include <support/temporary_folder.hpp>

namespace aloni::nn {
namespace test_idx {

using testing::AllOf;
using testing::HasSubstr;

using Bytes = std::string;

Bytes big_endian(std::uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16), static_cast<char>(value >> 8),
          static_cast<char>(value)};
}

Bytes idx(const std::vector<std::uint32_t>& extents, const Bytes& values, char type = 0x08) {
  Bytes bytes{'\0', '\0', type, static_cast<char>(extents.size())};
  for (auto e : extents) bytes += big_endian(e);
  return bytes + values;
}

class Idx : public testing::Test {
 protected:
  std::string write(const Bytes& bytes) {
    const std::string path = folder_.path("file-idx");
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  IdxArray read(const Bytes& bytes) { return read_idx(write(bytes)); }
  std::string refusal(const std::string& path) {
    try {
      read_idx(path);
    } catch (const FileError& e) {
      EXPECT_EQ(e.argument(), path);
      return e.what();
    }
    return "not refused";
  }
  std::string refusal_of(const Bytes& bytes) { return refusal(write(bytes)); }

  aloni::test::TemporaryFolder folder_;
};

TEST_F(Idx, ReadsExtentsAndValues) {
  const auto array = read(idx({2, 3}, "abc\xff\x80g"));
  EXPECT_EQ(array.extents, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(array.values, (std::vector<std::uint8_t>{'a', 'b', 'c', 0xff, 0x80, 'g'}));
}

TEST_F(Idx, ReadsOneDimensionAndNoElements) {
  EXPECT_EQ(read(idx({4}, "wxyz")).values.size(), 4u);
  EXPECT_TRUE(read(idx({0}, "")).values.empty());
  EXPECT_TRUE(read(idx({7, 0, 0xffffffff}, "")).values.empty());
}

TEST_F(Idx, RefusesMissingFilesAndFolders) {
  EXPECT_THAT(refusal(folder_.path("nothing")), HasSubstr("missing"));
  EXPECT_THAT(refusal(folder_.path("")), HasSubstr("not a regular file"));
}

TEST_F(Idx, RefusesEveryPrefixOfAFile) {
  const Bytes whole = idx({2, 3}, "abcdef");
  for (std::size_t n = 0; n < whole.size(); ++n) {
    EXPECT_THAT(refusal_of(whole.substr(0, n)), HasSubstr(n < 12 ? "truncated in its header" : "truncated after")) << n;
  }
}

TEST_F(Idx, ErrorGivesTheNumberOfElementsRead) {
  EXPECT_THAT(refusal_of(idx({2, 3}, "abcd")), AllOf(HasSubstr("truncated after 4 elements"), HasSubstr("6 (2x3)")));
}

TEST_F(Idx, RefusesTrailingBytes) {
  EXPECT_THAT(refusal_of(idx({2, 3}, "abcdefg")), AllOf(HasSubstr("trailing bytes"), HasSubstr("2x3")));
}

TEST_F(Idx, RefusesWrongMagicNumbers) {
  EXPECT_THAT(refusal_of("PNG\x01 and more"), HasSubstr("wrong magic number 0x504e4701"));
  EXPECT_THAT(refusal_of(idx({}, "")), HasSubstr("wrong magic number 0x00000800"));
  EXPECT_THAT(refusal_of(idx({1}, "abcd", 0x0d)), HasSubstr("element type 0x0d"));
}

TEST_F(Idx, DoesNotAllocateMoreThanTheFileHas) {
  EXPECT_THAT(refusal_of(idx({0xffffffff, 0xffffffff, 0xffffffff}, "abc")), HasSubstr("absurd extents"));
  EXPECT_THAT(refusal_of(idx({0xffffffff, 0x20000000}, "abc")), HasSubstr("truncated after 3 elements"));
}

TEST_F(Idx, GzipFilesAreUnsupportedWithoutZlib) {
  const std::string path = write("\x1f\x8b\x08 and more");
  if (config::has_zlib) {
    EXPECT_THAT(refusal(path), HasSubstr("gzip"));
  } else {
    EXPECT_THROW(read_idx(path), Unsupported);
  }
}

}  // namespace test_idx
}  // namespace aloni::nn

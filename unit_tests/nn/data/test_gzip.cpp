#include <aloni/core/error.hpp>
#include <aloni/nn/data/detail/stored_bytes.hpp>
#include <aloni/nn/data/idx.hpp>
#include <aloni/nn/data/idx_array.hpp>

#include <gmock/gmock.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <support/temporary_folder.hpp>

namespace aloni::nn {
namespace test_gzip {

using testing::HasSubstr;

// gzip -9 -n of the IDX file with extents 2, 3 and values "abcdef"
const std::string zipped(
    "\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\x63\x60\xe0\x60\x62\x60\x60\x00\x61\xe6\xc4\xa4\xe4\x94\xd4\x34\x00"
    "\x83\xda\x46\x2f\x12\x00\x00\x00",
    35);

class ZippedIdx : public testing::Test {
 protected:
  IdxArray read(const std::string& bytes) {
    std::ofstream(path_, std::ios::binary) << bytes;
    return read_idx(path_);
  }
  std::string refusal_of(const std::string& bytes) {
    try {
      read(bytes);
    } catch (const FileError& e) {
      EXPECT_EQ(e.argument(), path_);
      return e.what();
    }
    return "not refused";
  }

  aloni::test::TemporaryFolder folder_;
  std::string path_ = folder_.path("file-idx");
};

TEST_F(ZippedIdx, IsReadUnderAnyName) {
  const auto array = read(zipped);
  EXPECT_EQ(array.extents, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(array.values, (std::vector<std::uint8_t>{'a', 'b', 'c', 'd', 'e', 'f'}));
}

TEST_F(ZippedIdx, RefusesEveryPrefixOfAStream) {
  for (std::size_t n = 2; n < zipped.size(); ++n) {
    EXPECT_THAT(refusal_of(zipped.substr(0, n)), HasSubstr("truncated")) << n;
  }
}

TEST_F(ZippedIdx, RefusesDamageAnywhere) {
  for (std::size_t n = 10; n < zipped.size(); ++n) {
    std::string damaged = zipped;
    damaged[n] ^= 0x10;
    EXPECT_NE(refusal_of(damaged), "not refused") << n;
  }
}

TEST_F(ZippedIdx, RefusesBytesAfterTheStream) {
  EXPECT_THAT(refusal_of(zipped + "junk"), HasSubstr("damaged gzip data"));
  EXPECT_THAT(refusal_of(zipped + zipped), HasSubstr("trailing bytes"));
}

/// A gzip file of blocks that are not compressed (RFC 1951, section 3.2.4, and RFC 1952).
std::string gzip_of(const std::string& content) {
  const auto number = [](std::uint64_t value, int bytes) {
    std::string text;
    for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i) & 255);
    return text;
  };
  std::string file = zipped.substr(0, 10);
  for (std::size_t first = 0; first == 0 || first < content.size(); first += 65535) {
    const std::string block = content.substr(first, 65535);
    file +=
        number(first + 65535 >= content.size() ? 1 : 0, 1) + number(block.size(), 2) + number(~block.size(), 2) + block;
  }
  std::uint32_t crc = 0xffffffffU;
  for (const char c : content) {
    crc ^= static_cast<std::uint8_t>(c);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320U : 0);
  }
  return file + number(~crc, 4) + number(content.size(), 4);
}

class Inflated : public testing::Test {
 protected:
  std::string write(const std::string& content) {
    std::ofstream(path_, std::ios::binary) << gzip_of(content);
    return path_;
  }
  static std::string numbers(std::size_t bytes) {
    std::string text(bytes, 0);
    for (std::size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>(i * i >> 7);
    return text;
  }

  aloni::test::TemporaryFolder folder_;
  std::string path_ = folder_.path("file.gz");
  static constexpr std::uint64_t most = std::uint64_t{1} << 30;
};

TEST_F(Inflated, IsTheSameInMemoryAndInATemporaryFile) {
  const std::string content = numbers(9'000'000);  // several chunks
  write(content);
  const auto memory = detail::inflate_stored_bytes("test", path_, most);
  const auto file = detail::inflate_stored_bytes("test", path_, most, 1000);
  for (const auto& bytes : {memory, file}) {
    EXPECT_EQ(bytes->size(), content.size());
    for (const std::size_t offset : {0u, 1u, 4'194'303u, 8'999'000u}) {
      std::string part(1000, 0);
      bytes->read(offset, std::as_writable_bytes(std::span(part)));
      EXPECT_EQ(part, content.substr(offset, 1000)) << offset;
    }
  }
  EXPECT_EQ(memory->digest(), file->digest());
}

TEST_F(Inflated, LeavesNoFile) {
  write(numbers(5000));
  ASSERT_EQ(setenv("TMPDIR", folder_.path("").c_str(), 1), 0);
  {
    const auto file = detail::inflate_stored_bytes("test", path_, most, 10);
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_.path("")), {}), 1);  // the gzip file
    EXPECT_EQ(file->size(), 5000u);
  }
  unsetenv("TMPDIR");
}

TEST_F(Inflated, NamesTheFolderThatCannotHoldIt) {
  write(numbers(5000));
  ASSERT_EQ(setenv("TMPDIR", folder_.path("none").c_str(), 1), 0);
  try {
    detail::inflate_stored_bytes("test", path_, most, 10);
    ADD_FAILURE() << "no error";
  } catch (const FileError& e) {
    EXPECT_EQ(e.argument(), folder_.path("none"));
    EXPECT_THAT(e.what(), testing::AllOf(HasSubstr(path_), HasSubstr("TMPDIR"), HasSubstr("No such file")));
  }
  EXPECT_NO_THROW(detail::inflate_stored_bytes("test", path_, most));  // needs no file
  unsetenv("TMPDIR");
}

TEST_F(Inflated, HasAtMostTheGivenSize) {
  write(numbers(5000));
  for (const std::uint64_t in_memory : {10u, 10'000u}) {
    EXPECT_NO_THROW(detail::inflate_stored_bytes("test", path_, 5000, in_memory));
    EXPECT_THROW(detail::inflate_stored_bytes("test", path_, 4999, in_memory), FileError);
  }
}

TEST_F(Inflated, IdxHasAsManyElementsAsItsHeaderSays) {
  const std::string header("\0\0\x08\x01\0\0\0\x06", 8);
  const auto refusal = [&](const std::string& content) -> std::string {
    try {
      open_idx(write(content));
    } catch (const FileError& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(refusal(header + "abcdef"), "");
  EXPECT_THAT(refusal(header + "abcde"), HasSubstr("13 bytes"));
  EXPECT_THAT(refusal(header + "abcdefg"), HasSubstr("more than 14 bytes"));
}

}  // namespace test_gzip
}  // namespace aloni::nn

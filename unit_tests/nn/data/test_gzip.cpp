#include <aloni/core/error.hpp>
#include <aloni/nn/data/idx.hpp>

#include <gmock/gmock.h>

#include <fstream>
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

  test::TemporaryFolder folder_;
  std::string path_ = folder_.path("file-idx");
};

TEST_F(ZippedIdx, IsReadWhateverItsName) {
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

}  // namespace test_gzip
}  // namespace aloni::nn

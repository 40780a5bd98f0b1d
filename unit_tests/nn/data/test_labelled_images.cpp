#include <aloni/core/error.hpp>
#include <aloni/nn/data/labelled_images.hpp>

#include <gmock/gmock.h>

#include <fstream>
#include <support/temporary_folder.hpp>

namespace aloni::nn {
namespace test_labelled_images {

using testing::AllOf;
using testing::HasSubstr;

// Three training and two test images of 2 x 3 pixels.
class ReadMnist : public testing::Test {
 protected:
  void SetUp() override {
    write("train-images-idx3-ubyte", 3, {3, 2, 3}, "abcdefghijklmnopqr");
    write("train-labels-idx1-ubyte", 1, {3}, std::string("\0\x09\x05", 3));
    write("t10k-images-idx3-ubyte", 3, {2, 2, 3}, "ABCDEFGHIJKL");
    write("t10k-labels-idx1-ubyte", 1, {2}, std::string("\x01\x02", 2));
  }

  void write(const std::string& name, char dimensions, const std::vector<int>& extents, const std::string& values) {
    std::ofstream file(folder_.path(name), std::ios::binary);
    file << '\0' << '\0' << '\x08' << dimensions;
    for (int e : extents) file << '\0' << '\0' << '\0' << static_cast<char>(e);
    file << values;
  }

  std::string refusal() {
    try {
      read_mnist(folder_.path(""));
    } catch (const FileError& e) {
      return e.what();
    }
    return "not refused";
  }

  aloni::test::TemporaryFolder folder_;
};

TEST_F(ReadMnist, ReadsBothSets) {
  const auto data = read_mnist(folder_.path(""));
  EXPECT_EQ(data.train.image, (views::Extents{{1, 1, 2, 3, 1}}));
  EXPECT_EQ(data.train.size(), 3);
  EXPECT_EQ(data.train.labels, (std::vector<std::uint8_t>{0, 9, 5}));
  EXPECT_EQ(data.train.pixels.size(), 18u);
  EXPECT_EQ(data.train.pixels[7], 'h');
  EXPECT_EQ(data.train.classes, 10);
  EXPECT_EQ(data.test.size(), 2);
  EXPECT_EQ(data.test.pixels[0], 'A');
}

TEST_F(ReadMnist, NamesTheMissingFile) {
  std::filesystem::remove(folder_.path("t10k-labels-idx1-ubyte"));
  EXPECT_THAT(refusal(), AllOf(HasSubstr("t10k-labels-idx1-ubyte"), HasSubstr("missing"), HasSubstr(".gz")));
  std::filesystem::remove_all(folder_.path(""));
  EXPECT_THAT(refusal(), HasSubstr("train-images-idx3-ubyte"));
}

TEST_F(ReadMnist, FindsFilesNamedWithGz) {
  std::filesystem::rename(folder_.path("t10k-labels-idx1-ubyte"), folder_.path("t10k-labels-idx1-ubyte.gz"));
  EXPECT_EQ(refusal(), "not refused");
}

TEST_F(ReadMnist, NamesALabelOutOfRange) {
  write("train-labels-idx1-ubyte", 1, {3}, std::string("\0\x0a\x05", 3));
  EXPECT_THAT(refusal(),
              AllOf(HasSubstr("train-labels-idx1-ubyte"), HasSubstr("label 10 of image 1"), HasSubstr("0 to 9")));
}

TEST_F(ReadMnist, NamesDifferentNumbersOfImagesAndLabels) {
  write("t10k-labels-idx1-ubyte", 1, {3}, std::string("\0\0\0", 3));
  EXPECT_THAT(refusal(), AllOf(HasSubstr("t10k-labels"), HasSubstr("3 labels"), HasSubstr("2, as there are images")));
}

TEST_F(ReadMnist, RefusesLabelsInPlaceOfImages) {
  write("train-images-idx3-ubyte", 1, {3}, "abc");
  EXPECT_THAT(refusal(), AllOf(HasSubstr("train-images"), HasSubstr("wrong magic number: 1 dimensions")));
}

TEST_F(ReadMnist, RefusesEmptySets) {
  write("train-images-idx3-ubyte", 3, {0, 2, 3}, "");
  write("train-labels-idx1-ubyte", 1, {0}, "");
  EXPECT_THAT(refusal(), AllOf(HasSubstr("train-images"), HasSubstr("empty")));
}

TEST_F(ReadMnist, RefusesTestImagesOfAnotherSize) {
  write("t10k-images-idx3-ubyte", 3, {2, 3, 2}, "ABCDEFGHIJKL");
  EXPECT_THAT(refusal(), HasSubstr("test images 1x1x3x2x1"));
}

TEST_F(ReadMnist, PassesOnErrorsOfAFile) {
  write("t10k-images-idx3-ubyte", 3, {2, 2, 3}, "ABCDEFGHIJK");
  EXPECT_THAT(refusal(), AllOf(HasSubstr("t10k-images"), HasSubstr("truncated after 11")));
}

}  // namespace test_labelled_images
}  // namespace aloni::nn

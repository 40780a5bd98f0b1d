// A folder says by its file names which data sets it has.
#include "data_files.hpp"

#include <aloni/nn/data/data_sets.hpp>
#include <aloni/nn/data/labelled_images.hpp>
#include <aloni/nn/data/memory_array.hpp>

namespace aloni::nn {
namespace test_data_sets {

using aloni::test::counted;
using aloni::test::elements_of;
using aloni::test::npy;
using testing::AllOf;
using testing::HasSubstr;

class DataSets : public testing::Test {
 protected:
  void write(const std::string& name, const std::string& bytes) { write_file(folder_, name, bytes); }
  void write_npy(const std::string& name, const std::string& shape, Index count, const std::string& descr = "|u1") {
    write(name, npy(descr, shape, elements_of(counted<std::uint8_t>(count))));
  }
  TrainAndTestSets open() { return open_data_sets(folder_.path("")); }
  std::string refusal() {
    try {
      open();
    } catch (const FileError& e) {
      return e.what();
    }
    return "not refused";
  }

  aloni::test::TemporaryFolder folder_;
};

TEST_F(DataSets, OpenMnist) {
  for (const char* set : {"train", "t10k"}) {
    write(set + std::string("-images-idx3-ubyte"), aloni::test::idx({3, 4, 5}, elements_of(counted<std::uint8_t>(60))));
    write(set + std::string("-labels-idx1-ubyte"), aloni::test::idx({3}, "\x01\x02\x09"));
  }
  const auto sets = open();
  EXPECT_EQ(sets.train.inputs->extents(), (views::Extents{{1, 1, 4, 5, 1}}));
  EXPECT_EQ(sets.train.classes, 10);
  EXPECT_EQ(sets.train.normalisation.mean, std::vector<double>{0.1307});
  ASSERT_TRUE(sets.test);
  EXPECT_EQ(sets.test->size(), 3);
}

TEST_F(DataSets, OpenCifar10WithAndWithoutTestSet) {
  const std::string record(3073, '\x05');
  write("data_batch_1.bin", record);
  write("data_batch_2.bin", record + record);
  EXPECT_EQ(open().train.size(), 3);
  EXPECT_FALSE(open().test);
  write("test_batch.bin", record);
  EXPECT_EQ(open().test->size(), 1);
}

TEST_F(DataSets, OpenOwnArraysWithEachKindOfTargets) {
  write_npy("images.npy", "3, 4, 5, 2", 120);
  EXPECT_THAT(refusal(), HasSubstr("no targets"));
  write("labels.npy", npy("<i4", "3,", elements_of(std::vector<std::int32_t>{0, 6, 2})));
  EXPECT_EQ(open().train.target_kind, TargetKind::sample_labels);
  EXPECT_EQ(open().train.classes, 7);
  EXPECT_EQ(open().train.normalisation.scale, 1.0 / 255);
  write_npy("masks.npy", "3, 4, 5", 60);
  EXPECT_THAT(refusal(), AllOf(HasSubstr("both labels and masks")));
  std::filesystem::remove(folder_.path("labels.npy"));
  EXPECT_EQ(open().train.target_kind, TargetKind::pixel_labels);
  std::filesystem::rename(folder_.path("masks.npy"), folder_.path("targets.npy"));
  EXPECT_EQ(open().train.target_kind, TargetKind::elements);
}

TEST_F(DataSets, OpenARawTestSetBesideNpy) {
  write_npy("train-images.npy", "3, 4, 5, 2", 120);
  write_npy("train-masks.npy", "3, 4, 5", 60);
  write("t.raw", std::string(40, 'x'));
  write("test-images.json", R"({"file": "t.raw", "type": "uint8", "samples": 1, "extents": [4, 5, 2]})");
  write_npy("test-masks.npy", "1, 4, 5", 20);
  ASSERT_TRUE(open().test);
  EXPECT_EQ(open().test->size(), 1);
}

TEST_F(DataSets, RefuseContradictions) {
  EXPECT_THAT(refusal(), AllOf(HasSubstr("no data set"), HasSubstr("images.npy")));
  write_npy("images.npy", "3, 4, 5, 2", 120);
  write_npy("labels.npy", "4,", 4);
  EXPECT_THAT(refusal(), AllOf(HasSubstr("targets 4"), HasSubstr("3, as there are samples")));
  write("labels.npy", npy("<f4", "3,", elements_of(std::vector<float>{0, 1, 2})));
  EXPECT_THAT(refusal(), HasSubstr("integers, as the targets are labels"));
  write("labels.npy", npy("|i1", "3,", std::string("\x01\xff\x01")));
  EXPECT_THAT(refusal(), HasSubstr("label -1 of sample 1"));
  write_npy("labels.npy", "3,", 3);
  write_npy("train-images.npy", "3, 4, 5, 2", 120);
  EXPECT_THAT(refusal(), HasSubstr("both train-images.npy and images.npy"));
  std::filesystem::remove(folder_.path("train-images.npy"));
  write_npy("test-images.npy", "1, 5, 4, 2", 40);
  write_npy("test-labels.npy", "1,", 1);
  EXPECT_THAT(refusal(), HasSubstr("test samples of 1x1x5x4x2"));
}

TEST_F(DataSets, SuggestTheNameThatAFileWasMeantToHave) {
  std::ofstream(folder_.path("image.npy")) << "";
  EXPECT_THAT(refusal(), HasSubstr("image.npy: did you mean images.npy?"));
}

TEST_F(DataSets, RefuseNoFolder) {
  EXPECT_THROW(open_data_sets(folder_.path("nothing")), FileError);
  write("file", "x");
  EXPECT_THROW(open_data_sets(folder_.path("file")), FileError);
}

TEST(Dataset, LabelledImagesAreADataset) {
  LabelledImages images;
  images.image = {{1, 1, 2, 3, 1}};
  images.pixels = counted<std::uint8_t>(12);
  images.labels = {4, 7};
  const Dataset set = as_dataset(images);
  check(set, "test");
  std::vector<std::byte> one(6);
  set.inputs->read(1, whole(images.image), one);
  EXPECT_EQ(one[0], std::byte{6});
  EXPECT_EQ(set.size(), 2);
}

TEST(Dataset, ChecksItsMembers) {
  Dataset set;
  EXPECT_THROW(check(set, "test"), InvalidArgument);
  set.inputs = memory_array("values", counted<float>(24), {{1, 1, 2, 2, 3}});
  check(set, "test");
  set.target_kind = TargetKind::elements;
  EXPECT_THROW(check(set, "test"), InvalidArgument);
  set.targets = memory_array("targets", counted<float>(2), {{1, 1, 1, 1, 1}});
  check(set, "test");
  set.normalisation.mean = {1, 2};
  EXPECT_THROW(check(set, "test"), InvalidArgument);
  set.normalisation = {.deviation = {0}};
  EXPECT_THROW(check(set, "test"), InvalidArgument);
}

}  // namespace test_data_sets
}  // namespace aloni::nn

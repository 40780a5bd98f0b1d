// Data sets of HDF5 files: any box, every type and layout, and errors that name the data set.
#include "data_files.hpp"

#include <aloni/nn/data/data_sets.hpp>
#include <aloni/nn/data/hdf5_array.hpp>

#include <hdf5.h>

#include <algorithm>
#include <iterator>
#include <random>
#include <thread>

namespace aloni::nn {
namespace test_hdf5_array {

using aloni::test::counted;
using testing::AllOf;
using testing::HasSubstr;
using views::Box;

class Hdf5 : public testing::Test {
 protected:
  /// Adds a data set to the file. With `chunk` samples in a chunk it is chunked.
  template <class T>
  void write(const std::string& name, const std::vector<hsize_t>& shape, hid_t stored, hid_t native,
             const std::vector<T>& values, hsize_t chunk = 0) {
    const bool exists = std::filesystem::exists(path_);
    const hid_t file = exists ? H5Fopen(path_.c_str(), H5F_ACC_RDWR, H5P_DEFAULT)
                              : H5Fcreate(path_.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    const hid_t space = H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr);
    const hid_t layout = H5Pcreate(H5P_DATASET_CREATE);
    std::vector<hsize_t> chunks = shape;
    chunks[0] = chunk;
    if (chunk > 0) H5Pset_chunk(layout, static_cast<int>(shape.size()), chunks.data());
    const hid_t set = H5Dcreate2(file, name.c_str(), stored, space, H5P_DEFAULT, layout, H5P_DEFAULT);
    if (!values.empty()) {
      ASSERT_GE(H5Dwrite(set, native, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()), 0);
    }
    H5Dclose(set);
    H5Pclose(layout);
    H5Sclose(space);
    H5Fclose(file);
  }

  template <class T>
  void expect_boxes(const std::string& name, const std::vector<T>& all) {
    SCOPED_TRACE(name);
    const auto array = open_hdf5(path_, name);
    const auto& e = array->extents().values;
    ASSERT_EQ(array->size() * array->extents().size(), std::ssize(all));
    std::mt19937 engine(3);
    for (int i = 0; i < 50; ++i) {
      const Index sample = static_cast<Index>(engine() % static_cast<std::uint64_t>(array->size()));
      Box box = whole(array->extents());
      for (int d = 1; d < views::num_dims; ++d) {
        box.lo[d] = static_cast<Index>(engine() % static_cast<std::uint64_t>(e[d]));
        box.hi[d] = box.lo[d] + 1 + static_cast<Index>(engine() % static_cast<std::uint64_t>(e[d] - box.lo[d]));
      }
      std::vector<T> got(static_cast<std::size_t>(box.size()));
      array->read(sample, box, std::as_writable_bytes(std::span(got)));
      std::size_t k = 0;
      for (Index d = box.lo[1]; d < box.hi[1]; ++d)
        for (Index h = box.lo[2]; h < box.hi[2]; ++h)
          for (Index w = box.lo[3]; w < box.hi[3]; ++w)
            for (Index c = box.lo[4]; c < box.hi[4]; ++c, ++k)
              ASSERT_EQ(got[k], all[static_cast<std::size_t>((((sample * e[1] + d) * e[2] + h) * e[3] + w) * e[4] + c)])
                  << to_string(box);
    }
  }

  std::string refusal(const std::string& name) {
    return aloni::test::refusal_of([&](const std::string& path) { return open_hdf5(path, name); }, path_);
  }

  aloni::test::TemporaryFolder folder_;
  std::string path_ = folder_.path("data.h5");
};

TEST_F(Hdf5, ReadsAnyBoxOfEachTypeAndLayout) {
  const auto bytes = counted<std::uint8_t>(3 * 4 * 5 * 6 * 2);
  write("bytes", {3, 4, 5, 6, 2}, H5T_STD_U8LE, H5T_NATIVE_UINT8, bytes);
  expect_boxes("bytes", bytes);
  const auto integers = counted<std::int32_t>(6 * 7 * 5 * 3);
  write("integers", {6, 7, 5, 3}, H5T_STD_I32BE, H5T_NATIVE_INT32, integers, 2);
  expect_boxes("integers", integers);
  const auto floats = counted<float>(6 * 7 * 5);
  write("floats", {6, 7, 5}, H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, floats, 4);
  expect_boxes("floats", floats);
  const auto doubles = counted<double>(11);
  write("doubles", {11}, H5T_IEEE_F64BE, H5T_NATIVE_DOUBLE, doubles);
  expect_boxes("doubles", doubles);
  EXPECT_EQ(hdf5_names(path_), (std::vector<std::string>{"bytes", "doubles", "floats", "integers"}));
}

TEST_F(Hdf5, ThreadsReadAtOnce) {
  const auto values = counted<float>(40 * 8 * 8);
  write("values", {40, 8, 8}, H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, values, 4);
  const auto array = open_hdf5(path_, "values");
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::vector<float> sample(64);
      for (Index n = 0; n < 40; ++n) {
        array->read(n, whole(array->extents()), std::as_writable_bytes(std::span(sample)));
        wrong[static_cast<std::size_t>(t)] += std::equal(sample.begin(), sample.end(), values.begin() + n * 64) ? 0 : 1;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

TEST_F(Hdf5, AFileHasTrainingAndTestSet) {
  write("images", {3, 4, 5, 2}, H5T_STD_U8LE, H5T_NATIVE_UINT8, counted<std::uint8_t>(120));
  EXPECT_THROW(open_data_sets(path_), FileError) << "no targets";
  write("masks", {3, 4, 5}, H5T_STD_U8LE, H5T_NATIVE_UINT8, counted<std::uint8_t>(60));
  EXPECT_EQ(open_data_sets(path_).train.target_kind, TargetKind::pixel_labels);
  EXPECT_FALSE(open_data_sets(path_).test);
  write("test-images", {1, 4, 5, 2}, H5T_STD_U8LE, H5T_NATIVE_UINT8, counted<std::uint8_t>(40));
  write("test-masks", {1, 4, 5}, H5T_STD_U8LE, H5T_NATIVE_UINT8, counted<std::uint8_t>(20));
  ASSERT_TRUE(open_data_sets(path_).test);
  EXPECT_EQ(open_data_sets(path_).test->size(), 1);
}

TEST_F(Hdf5, ErrorsNameTheDataSet) {
  EXPECT_THAT(refusal("images"), HasSubstr("missing"));
  write("values", {2, 3, 4}, H5T_STD_U16LE, H5T_NATIVE_UINT8, counted<std::uint8_t>(24));
  EXPECT_THAT(refusal("images"), HasSubstr("no data set images"));
  EXPECT_THAT(refusal("values"), AllOf(HasSubstr("another type of 2 bytes"), HasSubstr("int16")));
  write("flat", {2, 3}, H5T_STD_U8LE, H5T_NATIVE_UINT8, counted<std::uint8_t>(6));
  EXPECT_THAT(refusal("flat"), HasSubstr("2 dimensions"));
  write("empty", {2, 3, 4}, H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, std::vector<float>{}, 1);
  EXPECT_THAT(refusal("empty"), HasSubstr("no stored elements"));
}

/// Deflate, and the result deflated again: a small file that HDF5 would expand to one chunk of 80 MiB.
TEST_F(Hdf5, RefusesChunksThatTheFileCannotHold) {
  const std::vector<hsize_t> shape{1, 80, 1024, 1024};
  const hid_t file = H5Fcreate(path_.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  const hid_t space = H5Screate_simple(4, shape.data(), nullptr);
  const hid_t layout = H5Pcreate(H5P_DATASET_CREATE);
  H5Pset_chunk(layout, 4, shape.data());
  for (int times = 0; times < 2; ++times) H5Pset_deflate(layout, 1);
  const hid_t set = H5Dcreate2(file, "zeros", H5T_STD_U8LE, space, H5P_DEFAULT, layout, H5P_DEFAULT);
  const std::vector<std::uint8_t> zeros(std::size_t{80} << 20);
  ASSERT_GE(H5Dwrite(set, H5T_NATIVE_UINT8, H5S_ALL, H5S_ALL, H5P_DEFAULT, zeros.data()), 0);
  H5Dclose(set);
  H5Pclose(layout);
  H5Sclose(space);
  H5Fclose(file);
  ASSERT_LT(std::filesystem::file_size(path_), 60000);
  EXPECT_THAT(refusal("zeros"), AllOf(HasSubstr("zeros has chunks of 83886080 bytes"), HasSubstr("at most 64 MiB")));
}

TEST_F(Hdf5, RefusesTruncatedFilesAndOtherFormats) {
  write("values", {2, 3, 4}, H5T_STD_U8LE, H5T_NATIVE_UINT8, counted<std::uint8_t>(24));
  std::ifstream file(path_, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  for (std::size_t n = 0; n < bytes.size(); n += 37) {
    std::ofstream(path_, std::ios::binary) << bytes.substr(0, n);
    ASSERT_NE(refusal("values"), "not refused") << n;
  }
  std::ofstream(path_, std::ios::binary) << std::string(5000, 'x');
  EXPECT_THAT(refusal("values"), HasSubstr("no whole file of HDF5"));
}

}  // namespace test_hdf5_array
}  // namespace aloni::nn

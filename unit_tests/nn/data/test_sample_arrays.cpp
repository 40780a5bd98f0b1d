// Any box of any sample, from every kind of array, equals the same box of the whole sample.
#include "data_files.hpp"

#include <aloni/nn/data/cifar10.hpp>
#include <aloni/nn/data/idx_array.hpp>
#include <aloni/nn/data/memory_array.hpp>
#include <aloni/nn/data/npy.hpp>
#include <aloni/nn/data/raw_array.hpp>
#include <aloni/nn/data/synthetic_array.hpp>

#include <random>
#include <support/random_cases.hpp>

namespace aloni::nn {
namespace test_sample_arrays {

using aloni::test::counted;
using aloni::test::elements_of;
using aloni::test::write_file;
using testing::HasSubstr;
using views::Box;
using views::Extents;

template <class T>
std::vector<T> read(const SampleArray& array, Index sample, const Box& box) {
  std::vector<T> values(static_cast<std::size_t>(box.size()));
  array.read(sample, box, std::as_writable_bytes(std::span(values)));
  return values;
}

Box random_box(std::mt19937& engine, const Extents& e) {
  Box box = whole(e);
  for (int d = 1; d < views::num_dims; ++d) {
    if (engine() % 3 == 0) continue;  // the whole dimension
    box.lo[d] = static_cast<Index>(engine() % static_cast<std::uint64_t>(e.values[d]));
    box.hi[d] = box.lo[d] + 1 + static_cast<Index>(engine() % static_cast<std::uint64_t>(e.values[d] - box.lo[d]));
  }
  return box;
}

/// `all`: the elements of all samples, dense.
template <class T>
void expect_boxes(const SampleArray& array, const std::vector<T>& all) {
  SCOPED_TRACE(array.name());
  const auto& e = array.extents().values;
  ASSERT_EQ(array.size() * array.extents().size(), std::ssize(all));
  std::mt19937 engine(7);
  for (int i = 0; i < aloni::test::random_cases(200); ++i) {
    const Index sample = static_cast<Index>(engine() % static_cast<std::uint64_t>(array.size()));
    const Box box = random_box(engine, array.extents());
    std::vector<T> expected;
    for (Index d = box.lo[1]; d < box.hi[1]; ++d)
      for (Index h = box.lo[2]; h < box.hi[2]; ++h)
        for (Index w = box.lo[3]; w < box.hi[3]; ++w)
          for (Index c = box.lo[4]; c < box.hi[4]; ++c) {
            const Index at = (((sample * e[1] + d) * e[2] + h) * e[3] + w) * e[4] + c;
            expected.push_back(all[static_cast<std::size_t>(at)]);
          }
    ASSERT_EQ(read<T>(array, sample, box), expected) << "sample " << sample << " " << to_string(box);
  }
}

class SampleArrays : public testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& bytes) { return write_file(folder_, name, bytes); }
  aloni::test::TemporaryFolder folder_;
};

TEST_F(SampleArrays, ReadAnyBoxFromNpy) {
  const auto check = [&]<class T>(std::type_identity<T>, const char* descr) {
    const auto all = counted<T>(3 * 4 * 5 * 6 * 2);
    expect_boxes(*open_npy(write("5d.npy", aloni::test::npy(descr, "3, 4, 5, 6, 2", elements_of(all)))), all);
    expect_boxes(*open_npy(write("4d.npy", aloni::test::npy(descr, "12, 5, 6, 2", elements_of(all), 2))), all);
    expect_boxes(*open_npy(write("3d.npy", aloni::test::npy(descr, "12, 5, 12", elements_of(all), 3))), all);
    expect_boxes(*open_npy(write("1d.npy", aloni::test::npy(descr, "720,", elements_of(all)))), all);
  };
  check(std::type_identity<std::uint8_t>{}, "|u1");
  check(std::type_identity<std::int8_t>{}, "|i1");
  check(std::type_identity<std::int16_t>{}, "<i2");
  check(std::type_identity<std::int32_t>{}, "<i4");
  check(std::type_identity<std::int64_t>{}, "<i8");
  check(std::type_identity<float>{}, "<f4");
  check(std::type_identity<double>{}, "<f8");
}

TEST_F(SampleArrays, ReadAnyBoxFromIdx) {
  const auto all = counted<std::uint8_t>(4 * 6 * 5);
  expect_boxes(*open_idx(write("images", aloni::test::idx({4, 6, 5}, elements_of(all)))), all);
  expect_boxes(*open_idx(write("labels", aloni::test::idx({120}, elements_of(all)))), all);
}

TEST_F(SampleArrays, ReadAnyBoxFromRawFiles) {
  const auto all = counted<float>(2 * 3 * 4 * 5 * 3);
  write("elements.raw", "header" + elements_of(all));
  const std::string description = R"({"file": "elements.raw", "type": "float32", "samples": 2, "offset": 6,
      "extents": [3, 4, 5, 3], "order": "channels last"})";
  expect_boxes(*open_raw(write("elements.json", description)), all);
}

TEST_F(SampleArrays, ReadAnyBoxFromMemory) {
  const auto all = counted<std::int16_t>(5 * 7 * 3 * 4);
  expect_boxes(*memory_array("values", all, {{1, 1, 7, 3, 4}}), all);
}

TEST_F(SampleArrays, ReadAnyBoxOfSyntheticSamples) {
  const auto values = synthetic_values(3, {{1, 2, 3, 4, 5}}, 11);
  std::vector<float> all;
  for (Index n = 0; n < 3; ++n)
    for (const float v : read<float>(*values, n, whole(values->extents()))) all.push_back(v);
  expect_boxes(*values, all);
  for (const float v : all) EXPECT_TRUE(v >= 0 && v < 1) << v;
  EXPECT_NE(all[0], all[60]) << "samples must differ";
}

TEST_F(SampleArrays, ReadAnyBoxFromCifar10) {
  std::string file;
  std::vector<std::uint8_t> images;
  for (Index n = 0; n < 5; ++n) {
    const auto planes = counted<std::uint8_t>(3072, 1000 * n);
    file += static_cast<char>(9 - n);
    file += elements_of(planes);
    for (std::size_t p = 0; p < 1024; ++p)
      for (std::size_t c = 0; c < 3; ++c) images.push_back(planes[c * 1024 + p]);
  }
  const auto first = write("data_batch_1.bin", file.substr(0, 2 * 3073));
  const auto second = write("data_batch_2.bin", file.substr(2 * 3073));
  const Dataset set = open_cifar10({first, second});
  expect_boxes(*set.inputs, images);
  expect_boxes<std::uint8_t>(*set.targets, {9, 8, 7, 6, 5});
}

TEST_F(SampleArrays, RefuseWrongArguments) {
  const auto array = memory_array("values", counted<float>(24), {{1, 1, 2, 3, 2}});
  std::vector<std::byte> into(48);
  const Box all = whole(array->extents());
  EXPECT_THROW(array->read(2, all, into), InvalidArgument);
  EXPECT_THROW(array->read(-1, all, into), InvalidArgument);
  EXPECT_THROW(array->read(0, all, std::span(into).first(47)), InvalidArgument);
  Box beyond = all;
  beyond.set(views::Dim::width, 0, 4);
  EXPECT_THROW(array->read(0, beyond, into), InvalidArgument);
  EXPECT_THROW(memory_array("values", counted<float>(25), {{1, 1, 2, 3, 2}}), FileError);
}

TEST_F(SampleArrays, FingerprintsTellSizeTypeAndContentApart) {
  const auto all = counted<std::uint8_t>(64 * 4096 + 32);
  auto changed = all;
  changed.back() ^= 1;  // in the last block, which the digest covers
  const auto print = [](const auto& values) { return memory_array("x", values, {{1, 1, 8, 4, 1}})->fingerprint(); };
  EXPECT_EQ(print(all), print(all));
  EXPECT_NE(print(all), print(changed));
  EXPECT_NE(print(all), print(counted<std::uint8_t>(64 * 4096)));
  EXPECT_THAT(print(all), HasSubstr("8193 samples of 1x1x8x4x1 uint8"));
}

TEST_F(SampleArrays, ReportAFileThatHasBecomeShorter) {
  const auto path = write("short.npy", aloni::test::npy("|u1", "2, 3, 4", elements_of(counted<std::uint8_t>(24))));
  const auto array = open_npy(path);
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  std::vector<std::byte> into(12);
  array->read(0, whole(array->extents()), into);
  EXPECT_THROW(array->read(1, whole(array->extents()), into), FileError);
}

}  // namespace test_sample_arrays
}  // namespace aloni::nn

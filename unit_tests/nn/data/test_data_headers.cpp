// Headers of data files: what is accepted, and the message of each defect.
#include "data_files.hpp"

#include <aloni/nn/data/cifar10.hpp>
#include <aloni/nn/data/idx_array.hpp>
#include <aloni/nn/data/npy.hpp>
#include <aloni/nn/data/raw_array.hpp>

namespace aloni::nn {
namespace test_data_headers {

using aloni::test::npy;
using testing::AllOf;
using testing::HasSubstr;

const std::string elements(24, 'x');

class DataHeaders : public testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& bytes) { return write_file(folder_, name, bytes); }
  std::string npy_refusal(const std::string& bytes) { return aloni::test::refusal_of(open_npy, write("x.npy", bytes)); }
  std::string raw_refusal(const std::string& text) { return aloni::test::refusal_of(open_raw, write("x.json", text)); }
  aloni::test::TemporaryFolder folder_;
};

/// The file with another text in its header of equal length.
std::string with_text(std::string bytes, const std::string& from, const std::string& to) {
  EXPECT_EQ(from.size(), to.size());
  return bytes.replace(bytes.find(from), from.size(), to);
}

TEST_F(DataHeaders, NpyIsRobust) {
  const std::string file = npy("|u1", "2, 3, 4", elements);
  aloni::test::expect_robust(open_npy, folder_, file, file.size() - elements.size());
}

TEST_F(DataHeaders, IdxIsRobust) {
  aloni::test::expect_robust(open_idx, folder_, aloni::test::idx({2, 3, 4}, elements), 16);
}

TEST_F(DataHeaders, RawDescriptionsAreRobust) {
  write("e.raw", elements);
  const std::string text = R"({"file": "e.raw", "type": "uint8", "samples": 2, "extents": [3, 4], "offset": 0})";
  // A changed name of the file is missing; the error then names that file.
  const auto open = [&](const std::string& path) {
    try {
      return open_raw(path);
    } catch (const FileError& e) {
      if (e.argument() == path) throw;
      throw FileError(e.operation(), path, e.value(), e.expectation());
    }
  };
  aloni::test::expect_robust(open, folder_, text, text.size());
}

TEST_F(DataHeaders, Cifar10FilesAreWholeRecords) {
  const auto open = [&](const std::string& path) { return open_cifar10({path}).inputs; };
  const std::string record(3073, 'x');
  EXPECT_EQ(open(write("x.bin", record + record))->size(), 2);
  for (const std::size_t n : {0, 1, 3072, 3074, 6145}) {
    EXPECT_THAT(aloni::test::refusal_of(open, write("x.bin", (record + record).substr(0, n))),
                AllOf(HasSubstr(std::to_string(n) + " bytes"), HasSubstr("records of 3073 bytes")));
  }
}

TEST_F(DataHeaders, NpyAcceptsItsKeysInAnyOrder) {
  const std::string text = "{\"shape\":(2,3,4),'fortran_order' : False,  'descr': '<u1'}\n";
  std::string file("\x93NUMPY\x01\0", 8);
  file += static_cast<char>(text.size());
  file += '\0';
  EXPECT_EQ(open_npy(write("x.npy", file + text + elements))->extents(), (views::Extents{{1, 1, 3, 4, 1}}));
}

TEST_F(DataHeaders, NpyErrorsNameFieldValueAndExpectation) {
  const std::string good = npy("<i2", "2, 3, 2", elements);
  EXPECT_THAT(npy_refusal("PK\x03\x04 and more than ten bytes"), HasSubstr("wrong magic string"));
  EXPECT_THAT(npy_refusal(npy("<i2", "2, 3, 2", elements, 4)), HasSubstr("version 4.0"));
  EXPECT_THAT(npy_refusal(npy(">i2", "2, 3, 2", elements)), AllOf(HasSubstr("descr '>i2'"), HasSubstr("'<i2'")));
  EXPECT_THAT(npy_refusal(npy("<c8", "2, 3, 2", elements)), HasSubstr("descr '<c8'"));
  EXPECT_THAT(npy_refusal(with_text(good, "'fortran_order': False", "'fortran_order': True ")),
              HasSubstr("fortran_order True"));
  EXPECT_THAT(npy_refusal(with_text(good, "'shape'", "'shqpe'")), HasSubstr("key 'shqpe'"));
  EXPECT_THAT(npy_refusal(npy("<i2", "4, 3", elements)), HasSubstr("2 dimensions"));
  EXPECT_THAT(npy_refusal(npy("<i2', 'descr': '<i2", "2, 3, 2", elements)), HasSubstr("'descr' a second time"));
  EXPECT_THAT(npy_refusal(npy("<i2", "2, 3, 2), 'shape': (2, 3, 2", elements)), HasSubstr("'shape' a second time"));
  EXPECT_THAT(npy_refusal(npy("<i2", "2, 3, 3", elements)), AllOf(HasSubstr("152 bytes"), HasSubstr("164")));
  EXPECT_THAT(npy_refusal(npy("<i2", "2, 0, 2", "")), HasSubstr("at least 1 in each dimension"));
  EXPECT_THAT(npy_refusal(npy("<i2", "0, 2, 2", "")), HasSubstr("number of samples 0"));
  EXPECT_THAT(npy_refusal(npy("<i2", "9223372036854775807, 4, 3", elements)), HasSubstr("absurd extents"));
  EXPECT_THAT(npy_refusal(npy("<i2", "99999999999999999999, 4, 3", elements)), HasSubstr("more than 63 bits"));
}

TEST_F(DataHeaders, RawErrorsNameKeyValueAndExpectation) {
  write("e.raw", elements);
  const std::string start = R"({"file": "e.raw", "samples": 2, )";
  EXPECT_THAT(raw_refusal(start + R"("type": "uint8"})"), HasSubstr("no key \"extents\""));
  EXPECT_THAT(raw_refusal(start + R"("type": "half", "extents": [3, 4]})"),
              AllOf(HasSubstr("type \"half\""), HasSubstr("float32")));
  EXPECT_THAT(raw_refusal(start + R"("samples": 2})"), HasSubstr("\"samples\" a second time"));
  EXPECT_THAT(raw_refusal(start + R"("sample": 2})"), HasSubstr("key \"sample\""));
  EXPECT_THAT(raw_refusal(start + R"("type": "uint8", "extents": [3, 4], "order": "channels first"})"),
              AllOf(HasSubstr("channels first"), HasSubstr("\"channels last\"")));
  EXPECT_THAT(raw_refusal("[]"), HasSubstr("\"{\""));
  EXPECT_THROW(open_raw(write("x.json", start + R"("type": "uint8", "extents": [3, 5]})")), FileError);
}

}  // namespace test_data_headers
}  // namespace aloni::nn

// Files in the format safetensors: written, read, and malformed ones.
#include <aloni/core/error.hpp>
#include <aloni/nn/safetensors.hpp>

#include <gmock/gmock.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <support/simulated_files.hpp>
#include <vector>

namespace aloni::nn {
namespace test_safetensors {

using aloni::test::SimulatedFiles;
using testing::HasSubstr;

/// A file with this header and so many bytes of data.
void make_file(SimulatedFiles& files, const std::string& header, std::size_t data_bytes) {
  std::string text(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) text[i] = static_cast<char>(header.size() >> (8 * i) & 0xff);
  text += header + std::string(data_bytes, 'x');
  const auto file = files.create("file");
  file->write(std::as_bytes(std::span(text.data(), text.size())));
}

std::string refusal(SimulatedFiles& files) {
  try {
    const Safetensors file(files, "file");
  } catch (const FileError& e) {
    return e.what();
  }
  return "";
}

std::string refusal(const std::string& header, std::size_t data_bytes) {
  SimulatedFiles files;
  make_file(files, header, data_bytes);
  return refusal(files);
}

TEST(Safetensors, AreReadAsTheyWereWritten) {
  SimulatedFiles files;
  const std::vector<float> a{1, -2, 3, 4, 5, 6};
  const std::vector<double> b{0.1};
  const std::vector<std::uint16_t> c{0x3f80, 0xc000};
  const auto bytes = [](const auto& values) { return std::as_bytes(std::span(values)); };
  write_safetensors(files, "file",
                    {{"a", ElementType::float32, {2, 3}, bytes(a)},
                     {"b", ElementType::float64, {}, bytes(b)},
                     {"c", ElementType::bfloat16, {2, 1}, bytes(c)},
                     {"none", ElementType::float32, {0, 7}, {}}},
                    {{"author", "ü"}});
  const Safetensors file(files, "file");
  EXPECT_EQ(file.entries().size(), 4u);
  EXPECT_THAT(file.entries().at("a").shape, testing::ElementsAre(2, 3));
  EXPECT_EQ(file.entries().at("a").offset % 8, 0);
  EXPECT_EQ(file.entries().at("c").type, "BF16");
  EXPECT_EQ(file.metadata().at("author"), "ü");
  std::vector<float> read(6);
  file.read("a", std::as_writable_bytes(std::span(read)));
  EXPECT_EQ(read, a);
  std::vector<double> one(1);
  file.read("b", std::as_writable_bytes(std::span(one)));
  EXPECT_EQ(one, b);
}

TEST(Safetensors, HaveTheBytesOfTheFormat) {
  SimulatedFiles files;
  const std::vector<float> a{1};
  write_safetensors(files, "file", {{"a", ElementType::float32, {1}, std::as_bytes(std::span(a))}});
  const auto& bytes = files.contents("file");
  const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const std::string header = R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  EXPECT_EQ(text.substr(0, 8), std::string("\x38\0\0\0\0\0\0\0", 8));  // 54 characters and two spaces
  EXPECT_EQ(text.substr(8), header + "  " + std::string("\0\0\x80\x3f", 4));
}

TEST(Safetensors, AreRefusedIfMalformed) {
  const std::string a = R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  EXPECT_EQ(refusal("{" + a + "}", 8), "");
  EXPECT_EQ(refusal("{}", 0), "");
  EXPECT_THAT(refusal("{" + a + "}", 7), HasSubstr("as its header says"));
  EXPECT_THAT(refusal("{" + a + "}", 9), HasSubstr("as its header says"));
  EXPECT_THAT(refusal("[" + a + "]", 8), HasSubstr("no JSON object"));
  EXPECT_THAT(refusal(R"({"a":3})", 0), HasSubstr("no dtype"));
  EXPECT_THAT(refusal(R"({"__metadata__":3})", 0), HasSubstr("__metadata__"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F31","shape":[2],"data_offsets":[0,8]}})", 8), HasSubstr("F31"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8), HasSubstr("wrong shape"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[1.5],"data_offsets":[0,8]}})", 8), HasSubstr("wrong shape"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8), HasSubstr("expected 12"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8), HasSubstr("data_offsets"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296,2],"data_offsets":[0,8]}})", 8),
              HasSubstr("as its shape says"));
  EXPECT_THAT(refusal("{" + a + R"(,"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})", 12), HasSubstr("begins"));
  EXPECT_THAT(refusal("{" + a + R"(,"b":{"dtype":"F32","shape":[1],"data_offsets":[12,16]}})", 16),
              HasSubstr("begins"));
}

TEST(Safetensors, AreRefusedIfTruncated) {
  SimulatedFiles files;
  make_file(files, R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8);
  auto& bytes = files.contents("file");
  while (!bytes.empty()) {
    bytes.pop_back();
    ASSERT_NE(refusal(files), "") << bytes.size() << " bytes";
  }
  files.remove("file");
  EXPECT_THAT(refusal(files), HasSubstr("missing"));
  make_file(files, "{}", 0);
  files.contents("file")[6] = std::byte{1};  // a header of 2^48 bytes
  EXPECT_THAT(refusal(files), HasSubstr("header of 281474976710658 bytes"));
}

}  // namespace test_safetensors
}  // namespace aloni::nn

#include <aloni/core/error.hpp>
#include <aloni/tools/result_file.hpp>

#include <gmock/gmock.h>

#include <fstream>
#include <sstream>
#include <support/temporary_folder.hpp>

namespace aloni::tools {
namespace test_result_file {

namespace fs = std::filesystem;

std::string content(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

class JsonFile : public testing::Test {
 protected:
  std::size_t files() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder_.path("")), fs::directory_iterator()));
  }
  std::string refusal(const std::string& path) {
    std::string check, write;
    try {
      check_result_file_can_be_written(path);
    } catch (const FileError& e) {
      check = e.what();
    }
    try {
      write_result_file(path, "{}");
    } catch (const FileError& e) {
      write = e.what();
    }
    EXPECT_EQ(check, write);
    return write;
  }

  test::TemporaryFolder folder_;
};

TEST_F(JsonFile, IsWrittenWhole) {
  const auto path = folder_.path("out.json");
  check_result_file_can_be_written(path);
  EXPECT_EQ(files(), 0u);
  write_result_file(path, "{\"a\": 1}\n");
  EXPECT_EQ(content(path), "{\"a\": 1}\n");
  EXPECT_EQ(files(), 1u);
}

TEST_F(JsonFile, ReplacesAnOlderOne) {
  const auto path = folder_.path("out.json");
  std::ofstream(path) << "something much longer than what comes after it";
  check_result_file_can_be_written(path);
  EXPECT_EQ(content(path).size(), 46u);
  write_result_file(path, "new");
  EXPECT_EQ(content(path), "new");
}

TEST_F(JsonFile, HasTheRightsOfAnOrdinaryFile) {
  write_result_file(folder_.path("out.json"), "x");
  std::ofstream(folder_.path("other")) << "x";
  EXPECT_EQ(fs::status(folder_.path("out.json")).permissions(), fs::status(folder_.path("other")).permissions());
}

TEST_F(JsonFile, FollowsASymbolicLink) {
  std::ofstream(folder_.path("target")) << "old";
  fs::create_symlink(folder_.path("target"), folder_.path("link"));
  write_result_file(folder_.path("link"), "new");
  EXPECT_TRUE(fs::is_symlink(folder_.path("link")));
  EXPECT_EQ(content(folder_.path("target")), "new");
}

TEST_F(JsonFile, GoesStraightIntoADevice) {
  check_result_file_can_be_written("/dev/null");
  write_result_file("/dev/null", "x");
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
}

TEST_F(JsonFile, RefusesPathsThatCannotBeWritten) {
  EXPECT_THAT(refusal(folder_.path("nowhere/out.json")), testing::HasSubstr("nowhere/out.json"));
  EXPECT_THAT(refusal(folder_.path("")), testing::HasSubstr("a folder"));
  EXPECT_THAT(refusal(""), testing::HasSubstr("empty path"));
  std::ofstream(folder_.path("file")) << "x";
  EXPECT_NE(refusal(folder_.path("file/out.json")), "");
}

TEST_F(JsonFile, SaysThatTheDeviceIsFull) {
  if (!fs::exists("/dev/full")) return;
  try {
    write_result_file("/dev/full", "x");
    FAIL() << "not refused";
  } catch (const FileError& e) {
    EXPECT_EQ(e.argument(), "/dev/full");
  }
}

}  // namespace test_result_file
}  // namespace aloni::tools

#include <aloni/core/error.hpp>
#include <aloni/tools/result_file.hpp>

#include <gmock/gmock.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <sstream>
#include <support/temporary_folder.hpp>
#include <vector>

namespace {

std::vector<std::string> calls;  // of the functions below

}  // namespace

// These replace the functions of the C library in this program, and note their calls.
extern "C" int fsync(int descriptor) {
  struct stat status {};
  fstat(descriptor, &status);
  calls.emplace_back(S_ISDIR(status.st_mode) ? "fsync folder" : "fsync " + std::to_string(status.st_size) + " bytes");
  return static_cast<int>(syscall(SYS_fsync, descriptor));
}
extern "C" int rename(const char* from, const char* to) noexcept {
  calls.emplace_back("rename");
  return static_cast<int>(syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}

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

TEST_F(JsonFile, IsWrittenCompletely) {
  const auto path = folder_.path("out.json");
  check_result_file_can_be_written(path);
  EXPECT_EQ(files(), 0u);
  write_result_file(path, "{\"a\": 1}\n");
  EXPECT_EQ(content(path), "{\"a\": 1}\n");
  EXPECT_EQ(files(), 1u);
}

TEST_F(JsonFile, ReplacesAnOlderFile) {
  const auto path = folder_.path("out.json");
  std::ofstream(path) << "something much longer than the text after this";
  check_result_file_can_be_written(path);
  EXPECT_EQ(content(path).size(), 46u);
  write_result_file(path, "new");
  EXPECT_EQ(content(path), "new");
}

TEST_F(JsonFile, IsOnTheDiskBeforeItReplacesAnOlderFile) {
  std::ofstream(folder_.path("out.json")) << "old";
  calls.clear();
  write_result_file(folder_.path("out.json"), "new text");
  EXPECT_THAT(calls, testing::ElementsAre("fsync 8 bytes", "rename", "fsync folder"));
}

TEST_F(JsonFile, HasThePermissionsOfAnOrdinaryFile) {
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

TEST_F(JsonFile, FollowsASymbolicLinkWhoseFileIsMissing) {
  fs::create_directory(folder_.path("sub"));
  fs::create_symlink("sub/second", folder_.path("link"));
  fs::create_symlink("target", folder_.path("sub/second"));
  check_result_file_can_be_written(folder_.path("link"));
  write_result_file(folder_.path("link"), "new");
  EXPECT_TRUE(fs::is_symlink(folder_.path("link")));
  EXPECT_TRUE(fs::is_symlink(folder_.path("sub/second")));
  EXPECT_EQ(content(folder_.path("sub/target")), "new");
}

TEST_F(JsonFile, RefusesALoopOfSymbolicLinks) {
  fs::create_symlink(folder_.path("a"), folder_.path("b"));
  fs::create_symlink(folder_.path("b"), folder_.path("a"));
  EXPECT_THAT(refusal(folder_.path("a")), testing::HasSubstr("loop"));
  EXPECT_TRUE(fs::is_symlink(folder_.path("a")));
}

TEST_F(JsonFile, RefusesDevicesAndPipesWithoutWaiting) {
  const auto pipe = folder_.path("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(refusal(pipe), testing::HasSubstr("not a regular file"));
  EXPECT_THAT(refusal("/dev/null"), testing::HasSubstr("not a regular file"));
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
}

TEST_F(JsonFile, RefusesPathsThatCannotBeWritten) {
  EXPECT_THAT(refusal(folder_.path("nowhere/out.json")), testing::HasSubstr("nowhere/out.json"));
  EXPECT_THAT(refusal(folder_.path("")), testing::HasSubstr("a folder"));
  EXPECT_THAT(refusal(""), testing::HasSubstr("empty path"));
  std::ofstream(folder_.path("file")) << "x";
  EXPECT_NE(refusal(folder_.path("file/out.json")), "");
}

}  // namespace test_result_file
}  // namespace aloni::tools

// Files of the operating system through io::FileSystem. tools/test_result_file.cpp tests the order of the calls.
#include <aloni/core/error.hpp>
#include <aloni/core/io/file_system.hpp>

#include <gmock/gmock.h>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <support/temporary_folder.hpp>
#include <vector>

namespace aloni::io {
namespace test_file_system {

class RealFiles : public testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) {
    const auto file = files_.create(folder_.path(name));
    file->write(std::as_bytes(std::span(text)));
    file->sync();
    file->close();
  }
  std::string read(const std::string& name, Index offset, std::size_t bytes) {
    std::string text(bytes, '\0');
    files_.read(folder_.path(name), offset, std::as_writable_bytes(std::span(text)));
    return text;
  }
  template <class F>
  std::string refusal(F&& f) {
    try {
      f();
    } catch (const FileError& e) {
      return e.what();
    }
    return "";
  }

  test::TemporaryFolder folder_;
  FileSystem& files_ = real_file_system();
};

TEST_F(RealFiles, AreReadFromAnOffset) {
  write("file", "something long");
  EXPECT_EQ(files_.size(folder_.path("file")), 14);
  EXPECT_EQ(read("file", 10, 4), "long");
  write("file", "short");
  EXPECT_EQ(read("file", 0, 5), "short");
  EXPECT_THAT(refusal([&] { read("file", 3, 3); }), testing::HasSubstr("ends after 5 bytes: expected at least 6"));
  EXPECT_THAT(refusal([&] { read("none", 0, 1); }), testing::HasSubstr("missing"));
  EXPECT_EQ(files_.size(folder_.path("none")), -1);
}

TEST_F(RealFiles, ScratchFilesHaveNoName) {
  const auto file = files_.create_scratch(folder_.path("tiles"));
  EXPECT_THAT(files_.list(folder_.path("")), testing::IsEmpty());
  EXPECT_THAT(file->path(), testing::StartsWith(folder_.path("tiles")));
  const std::string_view text = "some text";
  file->write_at(3, std::as_bytes(std::span(text.data(), text.size())));
  std::string found(4, 'x');
  const auto read = [&](Index offset) { file->read_at(offset, std::as_writable_bytes(std::span(found))); };
  read(8);
  EXPECT_EQ(found, "text");
  read(1);
  EXPECT_EQ(found, std::string(2, '\0') + "so");
  EXPECT_THAT(refusal([&] { read(9); }), testing::HasSubstr("ends after 12 bytes: expected at least 13"));
  EXPECT_THAT(refusal([&] { files_.create_scratch(folder_.path("none/tiles")); }),
              testing::HasSubstr("cannot be created"));
}

TEST_F(RealFiles, AreWrittenAtAPositionByEachThatOpensThem) {
  const std::string path = folder_.path("file");
  const auto bytes = [](std::string_view text) { return std::as_bytes(std::span(text.data(), text.size())); };
  const auto first = files_.create(path), second = files_.open(path);
  second->write_at(6, bytes("end"));
  first->write(bytes("begin"));
  first->write_at(1, bytes("E"));
  first->close();
  second->sync();
  second->close();
  EXPECT_EQ(read("file", 0, 9), std::string("bEgin\0end", 9));
  EXPECT_THAT(refusal([&] { files_.open(folder_.path("none")); }), testing::HasSubstr("none = cannot be opened (No"));
  EXPECT_THAT(refusal([&] { files_.open("/dev/full")->write_at(0, bytes("x")); }), testing::HasSubstr("No space left"));
}

TEST_F(RealFiles, AreListedInOrder) {
  EXPECT_TRUE(files_.list(folder_.path("none")).empty());
  write("b", "");
  write("a", "");
  files_.make_folder(folder_.path("c"));
  files_.make_folder(folder_.path("c"));
  EXPECT_THAT(files_.list(folder_.path("")), testing::ElementsAre("a", "b", "c"));
  EXPECT_THAT(refusal([&] { files_.list(folder_.path("a")); }), testing::HasSubstr("cannot be listed"));
  EXPECT_EQ(files_.size(folder_.path("c")), -1);
}

TEST_F(RealFiles, AreRenamedAndRemoved) {
  write("a", "new");
  write("b", "old");
  files_.rename(folder_.path("a"), folder_.path("b"));
  files_.sync_folder(folder_.path(""));
  EXPECT_EQ(read("b", 0, 3), "new");
  files_.remove(folder_.path("a"));  // is gone already
  files_.make_folder(folder_.path("c"));
  files_.rename(folder_.path("b"), folder_.path("c/b"));
  EXPECT_THAT(refusal([&] { files_.remove_folder(folder_.path("c")); }), testing::HasSubstr("cannot be removed"));
  files_.remove(folder_.path("c/b"));
  files_.remove_folder(folder_.path("c"));
  files_.remove_folder(folder_.path("c"));
  EXPECT_TRUE(files_.list(folder_.path("")).empty());
}

TEST_F(RealFiles, NameThePathAndTheReasonOfAFailure) {
  using testing::HasSubstr;
  EXPECT_THAT(refusal([&] { files_.create(folder_.path("none/file")); }),
              HasSubstr("none/file = cannot be created (No"));
  EXPECT_THAT(refusal([&] { files_.make_folder(folder_.path("none/folder")); }), HasSubstr("none/folder"));
  EXPECT_THAT(refusal([&] { files_.rename(folder_.path("x"), folder_.path("y")); }), HasSubstr("/y"));
  write("file", "");
  EXPECT_THAT(refusal([&] { files_.make_folder(folder_.path("file")); }), HasSubstr("File exists"));
  const auto full = files_.create("/dev/full");
  EXPECT_THAT(refusal([&] { full->write(std::vector<std::byte>(10)); }), HasSubstr("No space left on device"));
}

TEST_F(RealFiles, HaveNewNamesIfTheyAreTemporary) {
  const auto first = files_.create_temporary(folder_.path("file")),
             second = files_.create_temporary(folder_.path("file"));
  EXPECT_NE(first->path(), second->path());
  EXPECT_EQ(folder_of(first->path()), folder_of(folder_.path("file")));
  EXPECT_EQ(files_.list(folder_.path("")).size(), 2u);
  EXPECT_THAT(refusal([&] { files_.create_temporary(folder_.path("none/file")); }), testing::HasSubstr("none/file = "));
}

TEST_F(RealFiles, HaveAFolder) {
  EXPECT_EQ(folder_of("a/b/c"), "a/b");
  EXPECT_EQ(folder_of("c"), ".");
  EXPECT_EQ(folder_of("/c"), "/");
}

}  // namespace test_file_system
}  // namespace aloni::io

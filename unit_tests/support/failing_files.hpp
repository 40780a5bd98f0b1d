#pragma once
// The file system of the machine, apart from one call that fails. Reading never fails.
#include <aloni/core/error.hpp>
#include <aloni/core/io/file_system.hpp>

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace aloni::test {

class FailingFiles : public io::FileSystem {
 public:
  /// The `call`-th call from now on fails; 0: none.
  void fail_at(int call) { left_ = call; }
  /// Calls since the beginning that write or change names.
  int calls() const { return calls_; }

  std::unique_ptr<io::OutputFile> create(const std::string& path) override {
    count(path);
    return std::make_unique<File>(*this, files_.create(path));
  }
  std::unique_ptr<io::OutputFile> create_temporary(const std::string& path) override {
    count(path);
    return std::make_unique<File>(*this, files_.create_temporary(path));
  }
  std::unique_ptr<io::ScratchFile> create_scratch(const std::string& path) override {
    count(path);
    return std::make_unique<Scratch>(*this, files_.create_scratch(path));
  }
  std::unique_ptr<io::OutputFile> open(const std::string& path) override {
    count(path);
    return std::make_unique<File>(*this, files_.open(path));
  }
  void rename(const std::string& from, const std::string& to) override {
    count(to);
    files_.rename(from, to);
  }
  void remove(const std::string& path) override {
    count(path);
    files_.remove(path);
  }
  void make_folder(const std::string& path) override {
    count(path);
    files_.make_folder(path);
  }
  void remove_folder(const std::string& path) override {
    count(path);
    files_.remove_folder(path);
  }
  void sync_folder(const std::string& path) override {
    count(path);
    files_.sync_folder(path);
  }
  std::vector<std::string> list(const std::string& folder) override { return files_.list(folder); }
  Index size(const std::string& path) override { return files_.size(path); }
  void read(const std::string& path, Index offset, std::span<std::byte> bytes) override {
    files_.read(path, offset, bytes);
  }

 private:
  class File : public io::OutputFile {
   public:
    File(FailingFiles& files, std::unique_ptr<io::OutputFile> file) : files_(files), file_(std::move(file)) {}
    const std::string& path() const override { return file_->path(); }
    void write(std::span<const std::byte> bytes) override {
      files_.count(path());
      file_->write(bytes);
    }
    void write_at(Index offset, std::span<const std::byte> bytes) override {
      files_.count(path());
      file_->write_at(offset, bytes);
    }
    void sync() override {
      files_.count(path());
      file_->sync();
    }
    void close() override {
      files_.count(path());
      file_->close();
    }

   private:
    FailingFiles& files_;
    std::unique_ptr<io::OutputFile> file_;
  };

  class Scratch : public io::ScratchFile {
   public:
    Scratch(FailingFiles& files, std::unique_ptr<io::ScratchFile> file) : files_(files), file_(std::move(file)) {}
    const std::string& path() const override { return file_->path(); }
    void write_at(Index offset, std::span<const std::byte> bytes) override {
      files_.count(path());
      file_->write_at(offset, bytes);
    }
    void read_at(Index offset, std::span<std::byte> bytes) override { file_->read_at(offset, bytes); }

   private:
    FailingFiles& files_;
    std::unique_ptr<io::ScratchFile> file_;
  };

  void count(const std::string& path) {
    ++calls_;
    if (--left_ == 0) throw FileError("FailingFiles", path, "fails", "no fault");
  }

  io::FileSystem& files_ = io::real_file_system();
  std::atomic<int> calls_{0}, left_{0};
};

}  // namespace aloni::test

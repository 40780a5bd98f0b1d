#pragma once
// Files in memory that fail, or lose power, at a chosen call. Models the promises of a file system, and no more:
// contents are safe after sync(), names after sync_folder().
//
//   SimulatedFiles files;
//   files.fail_at(3);          // the third call from now on throws, as on a full disk
//   files.lose_power_at(5);    // the fifth call and all later ones throw
//   files.restart(seed);       // the contents of the disk after that
#include <aloni/core/error.hpp>
#include <aloni/core/io/file_system.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace aloni::test {

class SimulatedFiles : public io::FileSystem {
 public:
  using Bytes = std::vector<std::byte>;

  /// Number of calls so far that write or change names.
  int calls() const { return calls_; }
  void fail_at(int call) { fails_ = calls_ + call; }
  /// As a disk that stays full.
  void fail_from(int call) { fails_from_ = calls_ + call; }
  void lose_power_at(int call) { power_until_ = calls_ + call; }

  /// Of the changes since the last synchronisation any may be lost, and contents may be truncated.
  void restart(std::uint64_t seed) {
    std::mt19937_64 chance(seed);
    fails_ = fails_from_ = power_until_ = never;
    std::map<std::string, Node> disk;
    std::set<std::string> names;
    for (const auto& [name, node] : now_) names.insert(name);
    for (const auto& [name, node] : safe_) names.insert(name);
    for (const std::string& name : names) {
      const auto now = now_.find(name), safe = safe_.find(name);
      const bool is_new = chance() % 2 == 0;
      if (is_new ? now != now_.end() : safe != safe_.end()) disk.insert(is_new ? *now : *safe);
    }
    // Files in folders that are gone are gone too.
    now_.clear();
    for (const auto& [name, node] : disk)
      if (disk.contains(io::folder_of(name)) || io::folder_of(name) == ".") now_.insert({name, node});
    std::set<Contents*> seen;
    for (auto& [name, node] : now_) {
      if (!node || !seen.insert(node.get()).second) continue;
      if (node->now != node->safe && chance() % 2 == 0) {
        node->now = node->safe;
      } else if (node->now.size() > node->safe.size()) {
        node->now.resize(node->safe.size() + chance() % (node->now.size() - node->safe.size() + 1));
      }
      node->safe = node->now;
    }
    safe_ = now_;
  }

  Bytes& contents(const std::string& path) { return now_.at(path)->now; }
  bool exists(const std::string& path) const { return now_.contains(path); }

  std::unique_ptr<io::OutputFile> create(const std::string& path) override {
    call("create", path);
    const std::lock_guard lock(mutex_);
    auto& node = now_[path];
    if (!node) node = std::make_shared<Contents>();
    node->now.clear();
    return std::make_unique<File>(*this, path, node);
  }
  std::unique_ptr<io::OutputFile> create_temporary(const std::string& path) override {
    return create(path + ".tmp" + std::to_string(calls_));
  }
  std::unique_ptr<io::ScratchFile> create_scratch(const std::string& path) override {
    throw Unsupported("SimulatedFiles", path, "a scratch file", "a file that survives a restart");
  }
  std::unique_ptr<io::OutputFile> open(const std::string& path) override {
    call("open", path);
    const std::lock_guard lock(mutex_);
    const auto found = now_.find(path);
    if (found == now_.end() || !found->second) refuse(path, "missing");
    return std::make_unique<File>(*this, path, found->second);
  }
  void rename(const std::string& from, const std::string& to) override {
    call("rename", to);
    const std::lock_guard lock(mutex_);
    now_[to] = now_.at(from);
    now_.erase(from);
  }
  void remove(const std::string& path) override {
    call("remove", path);
    const std::lock_guard lock(mutex_);
    now_.erase(path);
  }
  void make_folder(const std::string& path) override {
    call("make_folder", path);
    const std::lock_guard lock(mutex_);
    now_.insert({path, nullptr});
  }
  void remove_folder(const std::string& path) override {
    call("remove_folder", path);
    if (!list(path).empty()) refuse(path, "not empty");
    const std::lock_guard lock(mutex_);
    now_.erase(path);
  }
  void sync_folder(const std::string& path) override {
    call("sync_folder", path);
    const std::lock_guard lock(mutex_);
    std::erase_if(safe_, [&](const auto& entry) { return io::folder_of(entry.first) == path; });
    for (const auto& [name, node] : now_)
      if (io::folder_of(name) == path) safe_[name] = node;
  }

  std::vector<std::string> list(const std::string& folder) override {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> names;
    for (const auto& [name, node] : now_)
      if (io::folder_of(name) == folder) names.push_back(name.substr(folder.size() + 1));
    return names;
  }
  Index size(const std::string& path) override {
    const std::lock_guard lock(mutex_);
    const auto found = now_.find(path);
    return found == now_.end() || !found->second ? -1 : static_cast<Index>(found->second->now.size());
  }
  void read(const std::string& path, Index offset, std::span<std::byte> bytes) override {
    const std::lock_guard lock(mutex_);
    const Bytes& from = now_.at(path)->now;
    if (offset + std::ssize(bytes) > std::ssize(from)) refuse(path, "ends after " + std::to_string(from.size()));
    std::copy_n(from.begin() + offset, bytes.size(), bytes.begin());
  }

 private:
  struct Contents {
    Bytes now, safe;
  };
  using Node = std::shared_ptr<Contents>;  // null: a folder
  static constexpr int never = 1 << 30;

  class File : public io::OutputFile {
   public:
    File(SimulatedFiles& files, std::string path, Node node)
        : files_(files), path_(std::move(path)), node_(std::move(node)) {}
    const std::string& path() const override { return path_; }
    void write(std::span<const std::byte> bytes) override {
      try {
        files_.call("write", path_);
      } catch (const FileError&) {
        node_->now.insert(node_->now.end(), bytes.begin(), bytes.begin() + std::ssize(bytes) / 2);
        throw;
      }
      node_->now.insert(node_->now.end(), bytes.begin(), bytes.end());
    }
    void write_at(Index offset, std::span<const std::byte> bytes) override {
      files_.call("write_at", path_);
      const auto end = static_cast<std::size_t>(offset) + bytes.size();
      if (node_->now.size() < end) node_->now.resize(end);
      std::ranges::copy(bytes, node_->now.begin() + offset);
    }
    void sync() override {
      files_.call("sync", path_);
      node_->safe = node_->now;
    }
    void close() override { files_.call("close", path_); }

   private:
    SimulatedFiles& files_;
    std::string path_;
    Node node_;
  };

  [[noreturn]] static void refuse(const std::string& path, const std::string& value) {
    throw FileError("SimulatedFiles", path, value, "no fault");
  }
  void call(const std::string& name, const std::string& path) {
    const std::lock_guard lock(mutex_);
    ++calls_;
    if (calls_ >= power_until_) refuse(path, name + ": no power");
    if (calls_ == fails_ || calls_ >= fails_from_) refuse(path, name + ": no space left on device");
  }

  std::mutex mutex_;
  std::map<std::string, Node> now_, safe_;
  int calls_ = 0, fails_ = never, fails_from_ = never, power_until_ = never;
};

}  // namespace aloni::test

#pragma once
// A temporary folder that all ranks of a communicator see; rank 0 makes and removes it.
#include "temporary_folder.hpp"

#include <aloni/core/comm/communicator.hpp>

#include <optional>
#include <string>

namespace aloni::test {

class SharedFolder {
 public:
  /// Collective. @pre the communicator outlives this object
  explicit SharedFolder(const comm::Communicator& comm) : comm_(comm) {
    if (comm.rank() == 0) {
      folder_.emplace();
      path_ = folder_->path("");
    }
    comm.broadcast(path_, 0);
  }
  /// Collective: no rank uses the folder any more.
  ~SharedFolder() { comm_.barrier(); }

  std::string path(const std::string& name) const { return path_ + name; }

 private:
  const comm::Communicator& comm_;
  std::optional<TemporaryFolder> folder_;
  std::string path_;
};

}  // namespace aloni::test

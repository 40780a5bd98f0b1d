#pragma once
// Writes checkpoints beside the training: a copy is taken at once, and a thread of each rank writes it to its file.
//
//   CheckpointWriter writer(comm, io::real_file_system(), "run1", 3);
//   writer.begin(manifest, tensors);               // afterwards the tensors may change
//   …                                              // steps; when no rank is working any more:
//   if (writer.is_busy() && !any_rank_is_working) writer.advance();
//   writer.finish();                               // before the end
//
// Threads only use files, never the communicator: one thread at a time uses a family of communicators. So the ranks
// agree in advance() and finish(), which the training calls between steps. Rank 0 writes the manifest after the data
// files of all ranks are durable.
//
// A failure removes the unfinished checkpoint and is kept as a text; older checkpoints stay. The caller decides whether
// the training goes on.
#include <aloni/core/comm/communicator.hpp>
#include <aloni/core/io/file_system.hpp>
#include <aloni/nn/checkpoint/files.hpp>

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>

namespace aloni::nn::checkpoint {

class CheckpointWriter {
 public:
  /// `keep`: number of checkpoints that stay; 0: all. Collective. @pre `files` outlives this object
  CheckpointWriter(const comm::Communicator& comm, io::FileSystem& files, std::string directory, int keep);
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;
  /// Waits for the thread of this rank. A checkpoint that is not finished then stays unfinished.
  ~CheckpointWriter();

  /// Takes a copy and starts to write it. Finishes an earlier checkpoint first. `head`: step and state; its tensors are
  /// not used. Collective. All ranks pass the same step and state. Throws PeerFailed.
  void begin(Manifest head, std::span<const TensorSource> tensors);
  /// Whether a checkpoint is being written. Equal on all ranks.
  bool is_busy() const { return phase_ != Phase::idle; }
  /// Whether the thread of this rank still writes. Not collective.
  bool is_working() const { return working_; }
  /// Waits for the threads, then starts the manifest or ends the checkpoint. Collective. @pre is_busy()
  /// Throws PeerFailed.
  void advance();
  /// Waits until no checkpoint is being written. Collective. Throws PeerFailed.
  void finish();

  /// Step of the newest checkpoint that is whole and durable; -1: none by this object. Equal on all ranks.
  std::int64_t newest() const { return newest_; }
  /// Why a checkpoint failed since the last call; empty if none did. Equal on all ranks. Not collective.
  std::string take_failure() { return std::exchange(failure_, {}); }

 private:
  enum class Phase : std::uint8_t { idle, data, manifest };

  void start(std::function<void()> work);
  std::string agreed_failure();
  std::string gather_parts();
  void remove_older_ones();

  comm::Communicator comm_;
  io::FileSystem& files_;
  std::string directory_;
  int keep_;
  Phase phase_ = Phase::idle;
  Manifest head_;
  RankPart part_;
  std::thread thread_;
  std::atomic<bool> working_{false};
  std::string thread_failure_;
  std::int64_t newest_ = -1;
  std::string failure_;
};

}  // namespace aloni::nn::checkpoint

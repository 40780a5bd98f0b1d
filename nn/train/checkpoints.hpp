#pragma once
// The checkpoints of a training: when one is due, and from which one it resumes.
#include <aloni/core/comm/communicator.hpp>
#include <aloni/nn/checkpoint/archive.hpp>
#include <aloni/nn/checkpoint/reader.hpp>
#include <aloni/nn/checkpoint/writer.hpp>
#include <aloni/nn/trainer.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>

namespace aloni::nn {

class Checkpoints {
 public:
  /// Collective. @pre the arguments outlive this object; options.folder is not empty
  Checkpoints(const comm::Communicator& comm, const CheckpointOptions& options);

  /// The checkpoint to resume from: the newest whole one. None if the folder has none. Tells of refused ones by
  /// notices.
  /// Collective. Throws InvalidArgument on all ranks if the folder has checkpoints and options.resume is false.
  /// Throws FileError on all ranks if all finished checkpoints are refused. Throws FileError on rank 0, and PeerFailed
  /// on the others, if the folder cannot be made or listed.
  std::optional<checkpoint::Checkpoint> find() const;

  /// To be called after each step. Starts a checkpoint if one is due, and goes on with an earlier one. `step`: steps
  /// done. `is_last`: the training ends with this step. `save` adds the state; collective.
  /// Returns whether the training must stop: the caller has asked for it on a rank. After the last step, or if the
  /// training must stop, the checkpoint is whole on return.
  /// Collective; the result is equal on all ranks. Throws FileError on all ranks if this last checkpoint fails. An
  /// earlier one that fails is a notice on rank 0. Throws PeerFailed.
  bool after_step(std::int64_t step, bool is_last, const std::function<void(checkpoint::Archive&)>& save);

 private:
  void begin(std::int64_t step, const std::function<void(checkpoint::Archive&)>& save);
  void tell_failure();
  void end(std::int64_t step);

  const comm::Communicator& comm_;
  const CheckpointOptions& options_;
  checkpoint::CheckpointWriter writer_;
  std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();  ///< the newest checkpoint
  std::int64_t step_ = 0;                                                           ///< of the newest checkpoint
};

}  // namespace aloni::nn

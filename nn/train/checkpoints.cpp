#include <aloni/nn/train/checkpoints.hpp>

#include <aloni/core/error.hpp>
#include <aloni/core/io/file_system.hpp>
#include <aloni/core/notice.hpp>

#include <algorithm>
#include <array>
#include <span>
#include <string>

namespace aloni::nn {

namespace {

constexpr const char* operation = "aloni::nn::train";

}  // namespace

Checkpoints::Checkpoints(const comm::Communicator& comm, const CheckpointOptions& options)
    : comm_(comm), options_(options), writer_(comm, io::real_file_system(), options.folder, options.keep) {}

std::optional<checkpoint::Checkpoint> Checkpoints::find() const {
  io::FileSystem& files = io::real_file_system();
  // Now, not after hours.
  comm::collectively(comm_, operation, [&] {
    if (comm_.rank() == 0) files.make_folder(options_.folder);
  });
  if (!options_.resume) {
    const bool is_used = comm::collectively(
        comm_, operation, [&] { return comm_.rank() == 0 && !checkpoint::steps_in(files, options_.folder).empty(); });
    if (comm_.all_reduce(std::int64_t{is_used}, comm::Reduction::max) > 0)
      throw InvalidArgument(operation, "checkpoint folder", options_.folder,
                            "a folder without checkpoints, or to resume from the newest one");
    return std::nullopt;
  }
  checkpoint::Newest found = checkpoint::find_newest(comm_, files, options_.folder);
  if (comm_.rank() == 0) {
    for (const checkpoint::Refusal& refusal : found.refused)
      notice("checkpoint of step " + std::to_string(refusal.step) + " refused: " + refusal.reason);
    notice(found.checkpoint ? "resumes from " + found.checkpoint->folder()
                            : "starts from the beginning: no checkpoint in " + options_.folder);
  }
  const auto lost = std::ranges::count_if(found.refused, [](const auto& r) { return !r.is_unfinished; });
  if (!found.checkpoint && lost > 0)
    throw FileError(operation, options_.folder, "all " + std::to_string(lost) + " finished checkpoints refused",
                    "a whole checkpoint, or to remove the refused ones and to start from the beginning");
  return std::move(found.checkpoint);
}

bool Checkpoints::after_step(std::int64_t step, bool is_last, const std::function<void(checkpoint::Archive&)>& save) {
  const std::chrono::duration<double> since = std::chrono::steady_clock::now() - begun_;
  const bool by_time = comm_.rank() == 0 && options_.every_seconds > 0 && since.count() >= options_.every_seconds;
  std::array<std::int64_t, 3> flags{by_time, options_.stop && options_.stop(), writer_.is_working()};
  comm_.all_reduce(std::span(flags), comm::Reduction::max);
  const bool stops = flags[1] != 0, is_working = flags[2] != 0;
  if (writer_.is_busy() && !is_working) {
    writer_.advance();
    tell_failure();
  }
  const bool by_steps = options_.every_steps > 0 && step % options_.every_steps == 0;
  if (by_steps || flags[0] != 0 || stops || is_last) begin(step, save);
  if (stops || is_last) end(step);
  return stops;
}

void Checkpoints::begin(std::int64_t step, const std::function<void(checkpoint::Archive&)>& save) {
  writer_.finish();
  tell_failure();
  begun_ = std::chrono::steady_clock::now();
  step_ = step;
  checkpoint::Saver saver;
  save(saver);
  writer_.begin(saver.head(step), saver.tensors());
}

void Checkpoints::tell_failure() {
  const std::string failure = writer_.take_failure();
  if (failure.empty() || comm_.rank() != 0) return;
  notice("checkpoint of step " + std::to_string(step_) + " failed, the training goes on: " + failure);
}

void Checkpoints::end(std::int64_t step) {
  writer_.finish();
  const std::string failure = writer_.take_failure();
  if (!failure.empty())
    throw FileError(operation, "checkpoint of step " + std::to_string(step), failure,
                    "a folder that can be written; older checkpoints are whole");
}

}  // namespace aloni::nn

#include <aloni/nn/checkpoint/writer.hpp>

#include <aloni/core/notice.hpp>

#include <exception>
#include <utility>
#include <vector>

namespace aloni::nn::checkpoint {

CheckpointWriter::CheckpointWriter(const comm::Communicator& comm, io::FileSystem& files, std::string directory,
                                   int keep)
    : comm_(comm.split(0, comm.rank())), files_(files), directory_(std::move(directory)), keep_(keep) {}

CheckpointWriter::~CheckpointWriter() {
  if (thread_.joinable()) thread_.join();
}

void CheckpointWriter::start(std::function<void()> work) {
  working_ = true;
  thread_ = std::thread([this, work = std::move(work)] {
    try {
      work();
    } catch (const std::exception& e) {
      thread_failure_ = e.what();
    }
    working_ = false;
  });
}

void CheckpointWriter::begin(Manifest head, std::span<const TensorSource> tensors) {
  finish();
  failure_.clear();
  head_ = std::move(head);
  head_.tensors.clear();
  try {
    part_ = copy_part(tensors, comm_.rank(), comm_.size());
    // No rank writes into the folder before it is empty.
    if (comm_.rank() == 0) begin_folder(files_, directory_, head_.step);
  } catch (const std::exception& e) {
    thread_failure_ = e.what();
  }
  phase_ = Phase::data;
  if (failure_ = agreed_failure(); !failure_.empty()) {
    phase_ = Phase::idle;
    return;
  }
  start([this] { write_part(files_, directory_ + "/" + folder_name(head_.step), part_); });
}

/// The failure of the lowest rank that has one. Collective.
std::string CheckpointWriter::agreed_failure() {
  const std::int64_t none = comm_.size();
  const auto rank = comm_.all_reduce(thread_failure_.empty() ? none : std::int64_t{comm_.rank()}, comm::Reduction::min);
  if (rank == none) return "";
  std::string text = thread_failure_;
  comm_.broadcast(text, static_cast<int>(rank));
  thread_failure_.clear();
  return text;
}

/// On rank 0: adds the blocks of all ranks to the manifest. Collective. Returns a failure, equal on all ranks.
std::string CheckpointWriter::gather_parts() {
  constexpr int tag = 0;
  std::string text = to_json(part_.blocks);
  const std::vector<std::int64_t> sizes = comm_.all_gather(static_cast<std::int64_t>(text.size()));
  if (comm_.rank() != 0) {
    comm_.wait(comm_.send(std::as_bytes(std::span(text)), 0, tag));
    return agreed_failure();
  }
  merge(head_, part_.blocks);
  for (int r = 1; r < comm_.size(); ++r) {
    std::string other(static_cast<std::size_t>(sizes[static_cast<std::size_t>(r)]), '\0');
    comm_.wait(comm_.receive(std::as_writable_bytes(std::span(other)), r, tag));
    try {
      merge(head_, parse_part(other, "the part of rank " + std::to_string(r)));
    } catch (const std::exception& e) {
      thread_failure_ = e.what();
    }
  }
  return agreed_failure();
}

void CheckpointWriter::advance() {
  if (thread_.joinable()) thread_.join();
  failure_ = agreed_failure();
  if (failure_.empty() && phase_ == Phase::data) {
    failure_ = gather_parts();
    part_ = {};
    if (failure_.empty()) {
      phase_ = Phase::manifest;
      if (comm_.rank() != 0) return;
      start([this] {
        const std::string text = to_json(head_);
        parse_manifest(text, "the manifest");  // covers all tensors, before older checkpoints go
        finish_folder(files_, directory_, head_);
        if (keep_ > 0) remove_older_ones();
      });
      return;
    }
  }
  phase_ = Phase::idle;
  part_ = {};
  if (!failure_.empty()) {
    if (comm_.rank() == 0) abandon_folder(files_, directory_, head_.step);
    return;
  }
  newest_ = head_.step;
}

void CheckpointWriter::remove_older_ones() {
  try {
    remove_older(files_, directory_, head_.step, keep_);
  } catch (const std::exception& e) {
    notice(std::string("older checkpoints stay: ") + e.what());  // the new one is whole
  }
}

void CheckpointWriter::finish() {
  while (is_busy()) advance();
}

}  // namespace aloni::nn::checkpoint

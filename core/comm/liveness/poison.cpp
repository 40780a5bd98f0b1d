#include <aloni/core/comm/liveness/poison.hpp>

#include <aloni/core/comm/mpi.hpp>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>

namespace aloni::comm::detail {

namespace {

constexpr int poison_tag = 0, question_tag = 1, answer_tag = 2;
constexpr std::size_t most_stuck = 100;  // in one answer

std::atomic<bool> any_failed{false};

bool mpi_is_up() {
  int initialized = 0, finalized = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  return initialized && !finalized;
}

}  // namespace

bool any_family_failed() noexcept { return any_failed.load(std::memory_order_relaxed); }

PoisonBoard::PoisonBoard(MPI_Comm comm) : comm_(comm), text_(sizeof(int) + max_message_bytes) {
  int size = 0;
  check_mpi(MPI_Comm_rank(comm_, &rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(comm_, &size), "MPI_Comm_size");
  requests_.assign(static_cast<std::size_t>(size), MPI_REQUEST_NULL);
  questions_.resize(requests_.size());
  answers_.resize(requests_.size());
  answered_.assign(requests_.size(), false);
}

void PoisonBoard::send(Word& word, std::span<const int> values, int rank, int tag) {
  int sent = 1;
  check_mpi(MPI_Test(&word.request, &sent, MPI_STATUS_IGNORE), "MPI_Test");
  if (!sent) return;  // the rank receives nothing at present; the earlier word will do
  word.values.assign(values.begin(), values.end());
  check_mpi(
      MPI_Isend(word.values.data(), static_cast<int>(word.values.size()), MPI_INT, rank, tag, comm_, &word.request),
      "MPI_Isend");
}

PoisonBoard::~PoisonBoard() {
  if (!mpi_is_up()) return;
  for (auto* const words : {&questions_, &answers_}) {
    for (Word& word : *words) {
      int sent = 0;
      MPI_Test(&word.request, &sent, MPI_STATUS_IGNORE);
      if (sent) continue;
      MPI_Request_free(&word.request);
      new std::vector<int>(std::move(word.values));  // NOLINT(bugprone-unused-raii): leaked, the send refers to it
    }
  }
  if (!poisoned()) {
    MPI_Comm_free(&comm_);
    return;
  }
  // Pending requests still refer to the text.
  int sent = 0;
  MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &sent, MPI_STATUSES_IGNORE);
  if (!sent) new std::vector<char>(std::move(text_));  // NOLINT(bugprone-unused-raii): leaked by design
}

void PoisonBoard::become_poisoned(int rank) noexcept {
  failed_rank_ = rank;
  any_failed.store(true, std::memory_order_relaxed);
  if (when_poisoned_) when_poisoned_();
}

void PoisonBoard::write(std::string_view message, int failed_rank) noexcept {
  text_bytes_ = std::min(message.size(), max_message_bytes);
  std::memcpy(text_.data(), &failed_rank, sizeof failed_rank);
  std::copy_n(message.data(), text_bytes_, text_.data() + sizeof failed_rank);
}

void PoisonBoard::hear(std::string_view message, int failed_rank) noexcept {
  if (poisoned()) return;
  write(message, failed_rank);
  become_poisoned(failed_rank);
}

void PoisonBoard::poison(std::string_view message, int failed_rank) noexcept {
  if (poisoned() || !mpi_is_up()) return;
  write(message, failed_rank);
  for (int peer = 0; peer < static_cast<int>(requests_.size()); ++peer) {
    if (peer == rank_) continue;
    MPI_Isend(text_.data(), static_cast<int>(sizeof failed_rank + text_bytes_), MPI_BYTE, peer, poison_tag, comm_,
              &requests_[static_cast<std::size_t>(peer)]);
  }
  // The sends need no receiver, but some networks need a few calls of MPI before a small message has left.
  int sent = 0;
  for (int attempt = 0; attempt < 1000 && !sent; ++attempt) {
    MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &sent, MPI_STATUSES_IGNORE);
  }
  become_poisoned(failed_rank);
}

void PoisonBoard::look() {
  while (!poisoned()) {
    int found = 0, bytes = 0;
    MPI_Status status;
    check_mpi(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm_, &found, &status), "MPI_Iprobe");
    if (!found) return;
    const int source = status.MPI_SOURCE, tag = status.MPI_TAG;
    check_mpi(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count");
    check_mpi(MPI_Recv(text_.data(), static_cast<int>(text_.size()), MPI_BYTE, source, tag, comm_, MPI_STATUS_IGNORE),
              "MPI_Recv");
    if (tag == question_tag) {
      std::vector<int> stuck = when_asked_ ? when_asked_() : std::vector<int>();
      stuck.resize(std::min(stuck.size(), most_stuck));
      send(answers_[static_cast<std::size_t>(source)], stuck, source, answer_tag);
    } else if (tag == answer_tag) {
      answered_[static_cast<std::size_t>(source)] = true;
      std::vector<int> ranks(static_cast<std::size_t>(bytes) / sizeof(int));
      if (!ranks.empty()) std::memcpy(ranks.data(), text_.data(), ranks.size() * sizeof(int));
      stuck_.insert(stuck_.end(), ranks.begin(), ranks.end());
    } else {
      text_bytes_ = static_cast<std::size_t>(bytes) - sizeof(int);
      int failed_rank = source;
      std::memcpy(&failed_rank, text_.data(), sizeof failed_rank);
      become_poisoned(failed_rank);
    }
  }
}

void PoisonBoard::ask(std::span<const int> ranks) {
  answered_.assign(requests_.size(), false);
  stuck_.clear();
  for (const int rank : ranks) send(questions_[static_cast<std::size_t>(rank)], {}, rank, question_tag);
}

}  // namespace aloni::comm::detail

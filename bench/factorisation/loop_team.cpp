#include "factorisation/loop_team.hpp"

#include <aloni/core/blas_library.hpp>
#include <aloni/core/error.hpp>

#include <string>

namespace aloni::bench {

LoopTeam::LoopTeam(int threads) {
  if (threads < 1)
    throw InvalidArgument("aloni::bench::LoopTeam", "threads", std::to_string(threads), "at least 1 thread");
  for (int t = 1; t < threads; ++t)
    threads_.emplace_back([this] {
      const OneBlasThread one;
      for (std::uint32_t seen = 0;;) {
        loop_.wait(seen);
        seen = loop_.load();
        if (ends_.load()) return;
        take_numbers();
        if (busy_.fetch_sub(1) == 1) busy_.notify_one();
      }
    });
}

LoopTeam::~LoopTeam() {
  ends_ = true;
  ++loop_;
  loop_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void LoopTeam::run(Index count, const std::function<void(Index)>& body) {
  if (count == 0) return;
  body_ = &body;
  count_ = count;
  next_ = 0;
  busy_ = static_cast<std::uint32_t>(threads_.size());
  ++loop_;
  loop_.notify_all();
  const OneBlasThread one;
  take_numbers();
  for (std::uint32_t busy = busy_.load(); busy > 0; busy = busy_.load()) busy_.wait(busy);
}

void LoopTeam::take_numbers() {
  for (Index i = next_.fetch_add(1); i < count_; i = next_.fetch_add(1)) (*body_)(i);
}

}  // namespace aloni::bench

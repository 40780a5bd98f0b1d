#pragma once
// Where the wall-clock time of this rank went.
//
//   aloni::Stopwatch stopwatch;
//   {
//     auto time = stopwatch.measure(aloni::Stopwatch::Phase::compute);
//     …
//     {
//       auto wait = stopwatch.measure(aloni::Stopwatch::Phase::halo);   // `compute` pauses meanwhile
//       …
//     }
//   }
//   report(stopwatch.seconds(aloni::Stopwatch::Phase::halo));
//
// Times are exclusive: an inner phase pauses the outer one, so that the sum never exceeds the time that passed.
// Asynchronous kernels are counted where the host waits for them. One thread per stopwatch.
#include <array>
#include <chrono>
#include <cstddef>
#include <string_view>

namespace aloni {

class Stopwatch {
 public:
  enum class Phase : unsigned char { compute, halo, collective, input };
  static constexpr std::size_t phase_count = 4;
  static constexpr std::array<std::string_view, phase_count> phase_names{"compute", "halo", "collective", "input"};

  /// Counts for its phase until it goes out of scope. Scopes nest; the stopwatch must outlive them.
  class [[nodiscard]] Scope {
   public:
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    ~Scope() { stopwatch_.switch_to(outer_); }

   private:
    friend Stopwatch;
    Scope(Stopwatch& stopwatch, std::size_t phase) : stopwatch_(stopwatch), outer_(stopwatch.current_) {
      stopwatch_.switch_to(phase);
    }
    Stopwatch& stopwatch_;
    std::size_t outer_;
  };

  Scope measure(Phase phase) { return Scope(*this, static_cast<std::size_t>(phase)); }

  /// Of all scopes that have ended, plus the running one up to the last switch of phases.
  double seconds(Phase phase) const {
    return std::chrono::duration<double>(spent_[static_cast<std::size_t>(phase)]).count();
  }
  /// Sets all times to zero; a scope that is open goes on from now.
  void reset() {
    spent_ = {};
    since_ = Clock::now();
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::size_t none = phase_count;

  void switch_to(std::size_t phase) {
    const auto now = Clock::now();
    if (current_ != none) spent_[current_] += now - since_;
    since_ = now;
    current_ = phase;
  }

  std::array<Clock::duration, phase_count> spent_{};
  Clock::time_point since_{};
  std::size_t current_ = none;
};

}  // namespace aloni

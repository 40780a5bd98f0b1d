#pragma once
// Measures how much wall-clock time this rank spends in each phase.
//
//   aloni::Stopwatch stopwatch;
//   {
//     auto time = stopwatch.measure(aloni::Stopwatch::Phase::compute);
//     …
//     {
//       auto wait = stopwatch.measure(aloni::Stopwatch::Phase::halo);   // pauses `compute`
//       …
//     }
//   }
//   report(stopwatch.seconds(aloni::Stopwatch::Phase::halo));
//
// Times are exclusive: an inner phase pauses the outer phase, so the sum never exceeds the elapsed time.
// Asynchronous kernels count in the phase in which the host waits for them. One thread per stopwatch.
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

  /// Measures its phase until the end of the scope. Scopes nest; the stopwatch must outlive them.
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

  /// Seconds spent in `phase`: all ended scopes, and the open scope up to the last change of phase.
  double seconds(Phase phase) const {
    return std::chrono::duration<double>(spent_[static_cast<std::size_t>(phase)]).count();
  }
  /// Sets all times to zero. An open scope counts from now on.
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

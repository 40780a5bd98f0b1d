#pragma once
// How far the work is, for people: one line that is drawn anew on a terminal, or a plain line now and then elsewhere (a
// log must not fill with carriage returns). Goes to stderr; results go to stdout.
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace aloni::tools {

enum class ProgressStyle {
  automatic,  ///< line when stderr is a terminal, plain otherwise
  line,       ///< redrawn in place, also through a launcher's pipe; the width is that of the controlling terminal
  plain,      ///< a line of its own at most every ten seconds
  none,
};

/// "3:07", "1:02:09"; "-:--" when it isn't known.
std::string clock_time(double seconds);

/// A bar and as many of `parts` (in order of importance) as fit in `width` columns, all ASCII; never longer than that.
std::string fit_line(double fraction, const std::vector<std::string>& parts, int width);

class Progress {
 public:
  explicit Progress(ProgressStyle style);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  /// Leaves no half-drawn line behind, also when an exception flies.
  ~Progress();

  /// Whether a call of show() now would show something; saves making the parts.
  bool due() const;
  void show(double fraction, const std::vector<std::string>& parts);
  /// Takes the drawn line away, so that other output can start at the left margin.
  void clear();

 private:
  using Clock = std::chrono::steady_clock;

  ProgressStyle style_;
  Clock::time_point last_;
  bool drawn_ = false;
};

}  // namespace aloni::tools

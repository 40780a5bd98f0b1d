#pragma once
// Shows the progress of a long run on stderr; results go to stdout. A terminal gets one line that is redrawn in place.
// A log gets a plain line now and then, because carriage returns would fill it.
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace aloni::tools {

enum class ProgressStyle {
  automatic,  ///< line when stderr is a terminal, plain otherwise
  line,       ///< redrawn in place, also through a launcher's pipe; as wide as the controlling terminal
  plain,      ///< a new line, at most every ten seconds
  none,
};

/// Text like "3:07" or "1:02:09"; "-:--" for negative, non-finite or huge `seconds`.
std::string clock_time(double seconds);

/// A bar and the first `parts` that fit in `width` columns. `parts` are ASCII, the most important first.
/// `fraction`: 0 to 1. The result has at most `width` characters.
std::string fit_line(double fraction, const std::vector<std::string>& parts, int width);

class Progress {
 public:
  explicit Progress(ProgressStyle style);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  /// Erases the drawn line, also during an exception.
  ~Progress();

  /// Whether show() would show anything now. Lets the caller skip building `parts`.
  bool due() const;
  void show(double fraction, const std::vector<std::string>& parts);
  /// Erases the drawn line, so that other output starts at the left margin.
  void clear();

 private:
  using Clock = std::chrono::steady_clock;

  ProgressStyle style_;
  Clock::time_point last_;
  bool drawn_ = false;
};

}  // namespace aloni::tools

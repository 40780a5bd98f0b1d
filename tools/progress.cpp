#include <aloni/tools/progress.hpp>

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <thread>

namespace aloni::tools {

namespace {

constexpr auto redraw_interval = std::chrono::milliseconds(100);
constexpr auto plain_interval = std::chrono::seconds(10);

int columns_of(int fd) {
  winsize size{};
  return ioctl(fd, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

// Queried for every drawing, because the user may resize the window. Under a launcher stderr is a pipe, but the
// user's terminal is still the controlling terminal.
int terminal_width() {
  constexpr int usual = 80;
  if (const int columns = columns_of(STDERR_FILENO); columns > 0) return columns;
  const int terminal = open("/dev/tty", O_RDONLY | O_NOCTTY | O_CLOEXEC);
  if (terminal >= 0) {
    const int columns = columns_of(terminal);
    close(terminal);
    if (columns > 0) return columns;
  }
  const char* columns = std::getenv("COLUMNS");
  const int given = columns != nullptr ? std::atoi(columns) : 0;
  return given > 0 ? given : usual;
}

ProgressStyle settled(ProgressStyle style) {
  if (style != ProgressStyle::automatic) return style;
  const char* terminal = std::getenv("TERM");
  const bool dumb = terminal != nullptr && std::string_view(terminal) == "dumb";
  return isatty(STDERR_FILENO) && !dumb ? ProgressStyle::line : ProgressStyle::plain;
}

}  // namespace

std::string clock_time(double seconds) {
  if (!(seconds >= 0 && seconds < 1e7)) return "-:--";
  const long all = std::lround(seconds);
  char text[32];
  if (all >= 3600) {
    std::snprintf(text, sizeof text, "%ld:%02ld:%02ld", all / 3600, all / 60 % 60, all % 60);
  } else {
    std::snprintf(text, sizeof text, "%ld:%02ld", all / 60, all % 60);
  }
  return text;
}

std::string fit_line(double fraction, const std::vector<std::string>& parts, int width) {
  constexpr int shortest_bar = 10, longest_bar = 40, frame = 2, gap = 2;
  fraction = std::clamp(std::isfinite(fraction) ? fraction : 0.0, 0.0, 1.0);
  const std::size_t room = static_cast<std::size_t>(std::max(width, 0));
  std::string line;
  for (const std::string& part : parts) {
    const std::size_t longer = line.size() + (line.empty() ? 0 : gap) + part.size();
    if (longer > room) break;
    if (!line.empty()) line.append(gap, ' ');
    line += part;
  }
  const int left = width - static_cast<int>(line.size()) - gap - frame;
  if (line.empty() || left < shortest_bar) return line;
  const int length = std::min(left, longest_bar);
  const int filled = static_cast<int>(fraction * length);
  return "[" + std::string(filled, '#') + std::string(length - filled, '.') + "]" + std::string(gap, ' ') + line;
}

Progress::Progress(ProgressStyle style) : style_(settled(style)), last_(Clock::now()) {}

Progress::~Progress() { clear(); }

bool Progress::due() const {
  switch (style_) {
    case ProgressStyle::line:
      return !drawn_ || Clock::now() - last_ >= redraw_interval;
    case ProgressStyle::plain:
      return Clock::now() - last_ >= plain_interval;
    default:
      return false;
  }
}

void Progress::show(double fraction, const std::vector<std::string>& parts) {
  if (!due()) return;
  last_ = Clock::now();
  if (style_ == ProgressStyle::plain) {
    std::string line;
    for (const auto& part : parts) line += (line.empty() ? "" : ", ") + part;
    std::fprintf(stderr, "%s\n", line.c_str());
  } else {
    // The last column stays free: many terminals wrap the line as soon as that column is written.
    std::fprintf(stderr, "\r%s\x1b[K", fit_line(fraction, parts, terminal_width() - 1).c_str());
    drawn_ = true;
  }
  std::fflush(stderr);
}

void Progress::clear() {
  if (!drawn_) return;
  std::fputs("\r\x1b[K", stderr);
  std::fflush(stderr);
  drawn_ = false;
  // A launcher forwards stdout and stderr separately. The pause keeps later output from overtaking the erasure.
  if (!isatty(STDERR_FILENO)) std::this_thread::sleep_for(std::chrono::milliseconds(50));
}

}  // namespace aloni::tools

#include <aloni/core/notice.hpp>

#include <atomic>

namespace aloni {

namespace {
std::atomic<NoticeHandler> current{nullptr};
}

void set_notice_handler(NoticeHandler handler) { current = handler; }

void notice(const std::string& line) {
  if (const NoticeHandler handler = current) handler(line);
}

}  // namespace aloni

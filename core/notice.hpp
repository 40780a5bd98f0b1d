#pragma once
// Notices: lines that a user of the program should read although nothing has failed, for example that a rank has waited
// for a minute. The library prints nothing itself; the program decides.
//
//   aloni::set_notice_handler([](const std::string& line) { std::cerr << line << '\n'; });
#include <string>

namespace aloni {

using NoticeHandler = void (*)(const std::string& line);

/// The function that receives notices of this process, from the thread that finds them; null (the default): they are
/// dropped. Not collective. Thread-safe.
void set_notice_handler(NoticeHandler handler);

/// Passes one line without a trailing newline to the handler.
void notice(const std::string& line);

}  // namespace aloni

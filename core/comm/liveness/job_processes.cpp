#include <aloni/core/comm/liveness/job_processes.hpp>

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>
#include <system_error>

namespace aloni::comm::detail {

namespace {

constexpr std::string_view job_variable = "PMIX_NAMESPACE=", rank_variable = "PMIX_RANK=";

/// The value of a variable in a block of "NAME=value" texts that end with zeros; empty if there is none.
std::string_view value_in(std::string_view block, std::string_view variable) {
  for (std::size_t at = 0; at < block.size();) {
    const std::size_t end = std::min(block.find('\0', at), block.size());
    if (const std::string_view entry = block.substr(at, end - at); entry.starts_with(variable))
      return entry.substr(variable.size());
    at = end + 1;
  }
  return {};
}

int number(std::string_view text) {
  int value = -1;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

// The kernel keeps 15 characters.
constexpr std::string_view name_of_informed = "aloni: informed", name_of_telling = "aloni: telling";

JobProcess look_at(int process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  return process_in_stat(process, text);
}

std::filesystem::path program_of(int process) {
  std::error_code none;
  return std::filesystem::read_symlink("/proc/" + std::to_string(process) + "/exe", none);
}

}  // namespace

JobProcess process_in_stat(int process, std::string_view text) {
  const auto name = text.find('('), end_of_name = text.rfind(')');  // a name may contain any character
  JobProcess p{.process = process};
  if (end_of_name == std::string_view::npos || end_of_name + 2 >= text.size()) return p;
  p.state = text[end_of_name + 2];
  const std::string_view called = text.substr(name + 1, end_of_name - name - 1);
  p.telling = called == name_of_telling;
  p.informed = p.telling || called == name_of_informed;
  return p;
}

std::string_view text_of_state(char state) {
  if (is_stopped(state)) return "is stopped";
  return state == 'R' ? "runs" : state == 'D' ? "waits for a disk" : "sleeps";
}

char state_of_process(int process) { return look_at(process).state; }

void mark_as_informed(bool telling) {
  std::ofstream("/proc/self/comm") << (telling ? name_of_telling : name_of_informed);
}

JobProcesses::JobProcesses() {
  if (const char* const job = std::getenv("PMIX_NAMESPACE")) job_ = job;
}

std::vector<JobProcess> JobProcesses::alive() const {
  std::vector<JobProcess> found;
  if (!known()) return found;
  std::error_code none;
  const auto program = program_of(getpid());
  for (const auto& entry : std::filesystem::directory_iterator("/proc", none)) {
    const std::string name = entry.path().filename();
    const int process = number(name);
    if (process <= 0) continue;
    std::ifstream file(entry.path() / "environ", std::ios::binary);  // of other users: cannot be opened
    const std::string block((std::istreambuf_iterator<char>(file)), {});
    if (value_in(block, job_variable) != job_) continue;
    JobProcess p = look_at(process);
    p.rank = number(value_in(block, rank_variable));
    if (p.rank < 0 || p.state == 'Z' || p.state == 'X' || p.state == '?') continue;
    // Processes that a rank has started inherit its variables, and so does a rank that a script has started. The rank
    // runs the program of this process; otherwise it is the process with the lowest number.
    const auto same = std::ranges::find(found, p.rank, &JobProcess::rank);
    if (same == found.end()) {
      found.push_back(p);
      continue;
    }
    const bool is_ours = program_of(p.process) == program, was_ours = program_of(same->process) == program;
    if (is_ours != was_ours ? is_ours : p.process < same->process) *same = p;
  }
  std::ranges::sort(found, {}, &JobProcess::rank);
  return found;
}

}  // namespace aloni::comm::detail

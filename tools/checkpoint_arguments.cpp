#include <aloni/tools/checkpoint_arguments.hpp>
#include <aloni/tools/option.hpp>
#include <aloni/tools/together.hpp>

#include <charconv>
#include <cmath>
#include <cstdint>
#include <optional>

namespace aloni::tools {

namespace {

constexpr std::int64_t most_kept = 1'000'000;

/// "100": steps. "600s": seconds. None for another text.
std::optional<nn::CheckpointOptions> parse_period(const std::string& text) {
  nn::CheckpointOptions options;
  const char *begin = text.data(), *end = begin + text.size();
  if (text.ends_with('s')) {
    const auto [last, error] = std::from_chars(begin, end - 1, options.every_seconds);
    const bool good = error == std::errc{} && last == end - 1 && options.every_seconds > 0;
    return good && std::isfinite(options.every_seconds) ? std::optional(options) : std::nullopt;
  }
  const auto [last, error] = std::from_chars(begin, end, options.every_steps);
  return error == std::errc{} && last == end && options.every_steps >= 0 ? std::optional(options) : std::nullopt;
}

}  // namespace

void CheckpointArguments::add_options(CLI::App& command) {
  command_ = &command;
  add_option(command, "--checkpoint", folder_,
             "Write checkpoints to this folder, at least after the last step. On SIGTERM or SIGUSR1 one is written and "
             "the command exits with code 3",
             "DIR");
  add_option(command, "--checkpoint-every", every_,
             "A checkpoint after each N steps, or after each N seconds (600s); 0: only the last one", "N|Ns");
  add_option(command, "--keep", keep_, "Number of checkpoints that stay; 0: all", "K");
  command.add_flag("--resume", resume_,
                   "Continue from the newest whole checkpoint, on any ranks and with any strategy; start from the "
                   "beginning if there is none");
}

void CheckpointArguments::check() const {
  if (command_->count("--checkpoint") > 0 && folder_.empty()) refuse("--checkpoint", "\"\"", "the path of a folder");
  for (const char* option : {"--checkpoint-every", "--keep", "--resume"})
    if (command_->count(option) > 0 && !given()) refuse(option, "given", "together with --checkpoint DIR or --run DIR");
  if (!parse_period(every_)) refuse("--checkpoint-every", every_, "a number of steps, as 100, or of seconds, as 600s");
  if (keep_ < 0 || keep_ > most_kept) refuse("--keep", std::to_string(keep_), "from 0 to " + std::to_string(most_kept));
}

void CheckpointArguments::add_to(comm::ReplicatedValues& values) const {
  values.add("--checkpoint", folder()).add("--checkpoint-every", every_).add("--keep", keep_).add("--resume", resume_);
}

nn::CheckpointOptions CheckpointArguments::options() const {
  if (!given()) return {};
  nn::CheckpointOptions options = *parse_period(every_);
  options.folder = folder();
  options.keep = static_cast<int>(keep_);
  options.resume = resume_;
  return options;
}

}  // namespace aloni::tools

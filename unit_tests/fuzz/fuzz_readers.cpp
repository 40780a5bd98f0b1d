// Feeds each reader with changed files for a while. A reader may accept an input, or throw an error of aloni. It may
// not crash, throw another exception, run for long, or use more heap than its target allows for an input of this size.
//
//   fuzz_readers [--seconds S] [--seed N] [--corpus DIR] [--keep DIR] [NAME…]     # without names: all, S seconds each
//   fuzz_readers --input FILE NAME                                                # one input, for example a find
//   fuzz_readers --names                                                          # prints the names
//
// Starts with the seeds of the target and the files of DIR/<name>. --keep writes the inputs that reach new code to
// DIR/<name>; needs a build with aloni_FUZZ_COVERAGE. A find is written to fuzz-find-<name> in the present folder.
#include "coverage.hpp"
#include "fuzz_target.hpp"
#include "heap_peak.hpp"
#include "mutator.hpp"

#include <aloni/core/error.hpp>

#include <fcntl.h>
#include <sanitizer/common_interface_defs.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <support/temporary_folder.hpp>

namespace aloni::test {

namespace {

constexpr std::size_t most_input_bytes = 8192, most_known = 4000, constant_heap = std::size_t{1} << 20;
constexpr unsigned longest_seconds = 20;

std::string find_path;
const std::string* present_input = nullptr;

/// Called where the process is about to end: keeps the input.
void keep_find() {
  if (present_input == nullptr) return;
  const int file = ::open(find_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (file < 0 || ::write(file, present_input->data(), present_input->size()) < 0) return;
  static constexpr char text[] = "the input is in the file ";
  if (::write(STDERR_FILENO, text, sizeof text - 1) < 0 ||
      ::write(STDERR_FILENO, find_path.data(), find_path.size()) < 0)
    return;
  static_cast<void>(::write(STDERR_FILENO, "\n", 1));
  present_input = nullptr;
}

void on_alarm(int) {
  static constexpr char text[] = "fuzz_readers: one input takes too long\n";
  static_cast<void>(::write(STDERR_FILENO, text, sizeof text - 1));
  keep_find();
  ::_exit(1);
}

[[noreturn]] void fail(const FuzzTarget& target, const std::string& reason) {
  std::fprintf(stderr, "fuzz_readers: %s: %s\n", target.name.c_str(), reason.c_str());
  keep_find();
  std::exit(1);
}

/// Whether the reader accepts the input.
bool run_once(const FuzzTarget& target, const std::string& input) {
  present_input = &input;
  ::alarm(longest_seconds);
  bool is_accepted = false;
  std::size_t heap = 0;
  begin_coverage();
  try {
    const HeapPeak peak;
    try {
      target.read(input);
      is_accepted = true;
    } catch (const Error&) {
    }
    heap = peak.bytes();
  } catch (const std::exception& e) {
    fail(target, std::string("an exception that is no error of aloni: ") + e.what());
  }
  if (const std::size_t most = constant_heap + target.heap_per_byte * input.size(); heap > most)
    fail(target, std::to_string(heap) + " bytes of heap for an input of " + std::to_string(input.size()) +
                     " bytes, at most " + std::to_string(most) + " expected");
  present_input = nullptr;
  ::alarm(0);
  return is_accepted;
}

std::string bytes_of_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

struct Options {
  double seconds = 1;
  std::uint64_t seed = 1;
  std::string corpus, keep, input;
  bool prints_names = false;
  std::vector<std::string> names;
};

class Fuzzing {
 public:
  Fuzzing(const FuzzTarget& target, const Options& options)
      : target_(target), options_(options), mutator_(options.seed) {}

  void run() {
    find_path = "fuzz-find-" + target_.name;
    for (const std::string& seed : target_.seeds) {
      try {
        target_.read(seed);
      } catch (const Error& e) {
        fail(target_, std::string("the reader refuses a seed: ") + e.what());
      }
      try_input(seed);
    }
    std::error_code missing;
    std::vector<std::filesystem::path> stored;
    for (const auto& entry : std::filesystem::directory_iterator(options_.corpus + "/" + target_.name, missing))
      stored.push_back(entry.path());
    std::ranges::sort(stored);  // the same inputs in the same order everywhere
    for (const auto& path : stored) try_input(bytes_of_file(path));
    using Clock = std::chrono::steady_clock;
    const auto end = Clock::now() + std::chrono::duration<double>(options_.seconds);
    while (Clock::now() < end) try_input(mutator_.input_of(known_, most_input_bytes));
    std::printf("%s: %ld inputs, %ld accepted, %zu kept, %zu edges\n", target_.name.c_str(), inputs_, accepted_,
                known_.size(), edges_reached());
    std::fflush(stdout);
  }

 private:
  /// Keeps inputs that reach new code; without coverage, some of the accepted ones.
  void try_input(const std::string& input) {
    ++inputs_;
    const bool is_accepted = run_once(target_, input);
    if (is_accepted) ++accepted_;
    const bool is_new = end_coverage();
    const bool is_first = known_.empty() || inputs_ <= std::ssize(target_.seeds);
    if (known_.size() >= most_known || !(is_first || is_new || (edges_reached() == 0 && is_accepted))) return;
    known_.push_back(input);
    if (options_.keep.empty() || !is_new) return;
    const std::filesystem::path folder = std::filesystem::path(options_.keep) / target_.name;
    std::filesystem::create_directories(folder);
    std::ofstream(folder / (std::to_string(std::hash<std::string>{}(input)) + ".bin"), std::ios::binary) << input;
  }

  const FuzzTarget& target_;
  const Options& options_;
  Mutator mutator_;
  std::vector<std::string> known_;
  long inputs_ = 0, accepted_ = 0;
};

Options options_of(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (!word.starts_with("--")) {
      options.names.push_back(word);
      continue;
    }
    if (word == "--names") {
      options.prints_names = true;
      continue;
    }
    const std::string value = i + 1 < argc ? argv[++i] : "";
    if (word == "--seconds")
      options.seconds = std::stod(value);
    else if (word == "--seed")
      options.seed = std::stoull(value);
    else if (word == "--corpus")
      options.corpus = value;
    else if (word == "--keep")
      options.keep = value;
    else if (word == "--input")
      options.input = value;
    else
      throw InvalidArgument("fuzz_readers", "option", word, "--seconds, --seed, --corpus, --keep, --input or --names");
  }
  return options;
}

int fuzz(const Options& options) {
  const TemporaryFolder folder;
  std::vector<FuzzTarget> targets;
  for (auto&& list :
       {data_targets(folder.path("")), hdf5_targets(folder.path("")), state_targets(), text_targets(folder.path(""))})
    targets.insert(targets.end(), list.begin(), list.end());
  for (const std::string& name : options.names) {
    if (std::ranges::find(targets, name, &FuzzTarget::name) != targets.end()) continue;
    throw InvalidArgument("fuzz_readers", "name", name, "a name that --names prints");
  }
  for (const FuzzTarget& target : targets) {
    if (!options.names.empty() && std::ranges::find(options.names, target.name) == options.names.end()) continue;
    if (options.prints_names) {
      std::printf("%s\n", target.name.c_str());
    } else if (options.input.empty()) {
      Fuzzing(target, options).run();
    } else {
      std::printf("%s\n", run_once(target, bytes_of_file(options.input)) ? "accepted" : "refused");
    }
  }
  return 0;
}

}  // namespace

}  // namespace aloni::test

int main(int argc, char** argv) {
  using namespace aloni::test;
  __sanitizer_set_death_callback(keep_find);
  std::signal(SIGALRM, on_alarm);
  try {
    return fuzz(options_of(argc, argv));
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 2;
  }
}

#pragma once
// The command line.
#include <aloni/core/error.hpp>
#include <aloni/core/index.hpp>

#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace cholesky {

using aloni::Index;

constexpr const char* usage =
    "cholesky: factorises a symmetric positive definite matrix, A = L L^T, by tasks on tiles\n"
    "  --n N             rows of a matrix that the program makes (2048)\n"
    "  --matrix FILE     read the matrix instead: Matrix Market (.mtx) or NumPy (.npy); only its lower triangle "
    "counts\n"
    "  --tile B          columns of a tile (chosen for the rows and the workers)\n"
    "  --tall H          rows of a tile, as a multiple of its columns (chosen)\n"
    "  --precision TYPE  double (default) or float\n"
    "  --workers W       threads of each rank (all processors, divided among the ranks)\n"
    "  --speeds S,S,...  ranks own tile columns in proportion to these speeds; measure: to speeds measured first\n"
    "  --repeat R        factorise R times and report the fastest (3)\n"
    "  --seed S          run the tasks in a random order that the dependences allow; the same bits\n"
    "  --json FILE       write the results as JSON\n"
    "  --svg FILE        draw the times of the tasks of rank 0 in the fastest run\n"
    "  --trace FILE      write them as Chrome trace events, for ui.perfetto.dev\n"
    "  --memory BYTES    keep so many bytes of tiles in memory on each rank, such as 1500000, 512M or 2G, the others\n"
    "                    in a file\n"
    "  --swap FOLDER     folder of that temporary file (default: TMPDIR, or /tmp), or \"memory\"\n"
    "  --evict RULE      which tile leaves memory: that whose next use is furthest (default), or lru\n"
    "  --device          factorise on the GPU, on one rank, in tiles of 1024 (unless --tile says otherwise) by 4\n"
    "                    workers (unless --workers does). --memory is then a limit of its memory, and the other tiles\n"
    "                    stay in host memory. Without --memory: its free memory\n";

struct Options {
  Index n = 2048, repeat = 3;
  Index tile = 0, tall = 0;  ///< 0: suggested_tile()
  int workers = 0;
  std::uint64_t seed = 0;
  bool single = false;  ///< float
  bool help = false;
  bool measure_speeds = false;
  std::vector<double> speeds;  ///< of the ranks; empty: equal
  Index memory = 0;            ///< bytes; 0: no limit
  bool lru = false;
  std::string swap;  ///< folder, or "memory"; empty: the folder of temporary files
  bool device = false;
  std::string matrix, json, svg, trace;
};

/// Throws InvalidArgument.
inline Options parse(int argc, char** argv) {
  const auto bad = [](std::string_view flag, std::string_view value, const char* expectation) {
    throw aloni::InvalidArgument("cholesky", std::string(flag), std::string(value), expectation);
  };
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag = argv[i];
    const auto value = [&]() -> std::string_view {
      if (i + 1 == argc) bad(flag, "", "a value behind it");
      return argv[++i];
    };
    const auto number = [&](Index most) {
      const std::string_view text = value();
      Index n = 0;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
      if (error != std::errc{} || end != text.data() + text.size() || n < 1 || n > most)
        bad(flag, text, ("a number from 1 to " + std::to_string(most)).c_str());
      return n;
    };
    const auto bytes = [&] {
      const std::string_view text = value();
      constexpr std::string_view letters = "KMGT";
      Index n = 0, unit = 1;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
      const std::string_view rest = text.substr(static_cast<std::size_t>(end - text.data()));
      const std::size_t power = rest.size() == 1 ? letters.find(rest[0]) : std::string_view::npos;
      if (power != std::string_view::npos) unit = Index{1} << 10 * (power + 1);
      if (error != std::errc{} || n < 1 || n > aloni::max_bytes / unit || (unit == 1 && !rest.empty()))
        bad(flag, text, "a number of bytes, such as 1500000, 512M or 2G");
      return n * unit;
    };
    if (flag == "--n") {
      options.n = number(1 << 20);
    } else if (flag == "--tile") {
      options.tile = number(1 << 15);
    } else if (flag == "--tall") {
      options.tall = number(1 << 10);
    } else if (flag == "--repeat") {
      options.repeat = number(1000);
    } else if (flag == "--workers") {
      options.workers = static_cast<int>(number(1024));
    } else if (flag == "--speeds") {
      const std::string_view text = value();
      options.measure_speeds = text == "measure";
      for (const char* at = text.data(); !options.measure_speeds;) {
        const char* const end_of_text = text.data() + text.size();
        const auto [end, error] = std::from_chars(at, end_of_text, options.speeds.emplace_back());
        if (error != std::errc{} || (end != end_of_text && *end != ','))
          bad(flag, text, "numbers with commas between them, or measure");
        if (end == end_of_text) break;
        at = end + 1;
      }
    } else if (flag == "--seed") {
      options.seed = static_cast<std::uint64_t>(number(Index{1} << 62));
    } else if (flag == "--precision") {
      const std::string_view type = value();
      if (type != "float" && type != "double") bad(flag, type, "float or double");
      options.single = type == "float";
    } else if (flag == "--matrix") {
      options.matrix = value();
    } else if (flag == "--json") {
      options.json = value();
    } else if (flag == "--svg") {
      options.svg = value();
    } else if (flag == "--trace") {
      options.trace = value();
    } else if (flag == "--memory") {
      options.memory = bytes();
    } else if (flag == "--swap") {
      options.swap = value();
      if (options.swap.empty()) bad(flag, "", "a folder, or memory");
    } else if (flag == "--evict") {
      const std::string_view rule = value();
      if (rule != "furthest" && rule != "lru") bad(flag, rule, "furthest or lru");
      options.lru = rule == "lru";
    } else if (flag == "--device") {
      options.device = true;
    } else if (flag == "--help") {
      options.help = true;
    } else {
      bad("argument", flag, "one of those that --help lists");
    }
  }
  if (options.device && !options.swap.empty())
    bad("--swap", options.swap, "no --device, as its other tiles stay in host memory");
  if (options.memory == 0 && (options.lru || !options.swap.empty()))
    bad(options.lru ? "--evict" : "--swap", options.lru ? "lru" : options.swap, "--memory, too");
  return options;
}

}  // namespace cholesky

#pragma once
// The command line, and the default split of the box.
#include <aloni/core/error.hpp>
#include <aloni/views/process_grid.hpp>

#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>
#include <tuple>

namespace stencil {

using aloni::Index;
using aloni::views::Dim;
using aloni::views::ProcessGrid;

constexpr const char* usage =
    "stencil: magnetised gas in a periodic box of SIZE³ cells, 8 quantities each\n"
    "  --size SIZE      cells in each direction (256)\n"
    "  --steps N        time steps of three substeps each (10)\n"
    "  --type TYPE      double (default) or float\n"
    "  --grid GRID      how the box is split: d2, h2w2, … (as evenly as possible, depth first)\n"
    "  --every K        one exchange in K substeps (1), of ghosts K times as wide, which are then computed twice; the\n"
    "                   same bits. Multiples of 3 send the least: a step begins without changes of the one before\n"
    "  --vtk NAME       write the end as NAME.pvti and NAME_<rank>.vti, for ParaView\n"
    "  --place          choose blocks and their ranks for the nodes of this machine: links are measured first. With\n"
    "                   --grid only the ranks are chosen\n"
    "  --tune           measure the methods of exchange, and take the fastest\n"
    "  --ranks-per-node N  treat every N ranks as a node, to try --place on one machine\n"
    "  --measure        time computation alone, exchanges alone and whole steps in turn, and compare the medians\n"
    "  --scaling        time steps on 1, 2, 4, … ranks, weak (SIZE³ cells per rank) and strong, and compare the bits\n"
    "  --plan           print messages and bytes per exchange on 1 to 64 ranks, from plans alone\n";

/// One block per rank, as close to a cube as possible. Depth is split first: its faces are contiguous in memory.
inline ProcessGrid even_grid(int ranks) {
  const auto grids = aloni::views::all_grids(ranks, {Dim::depth, Dim::height, Dim::width});
  return *std::min_element(grids.begin(), grids.end(), [](const ProcessGrid& a, const ProcessGrid& b) {
    const auto key = [](const ProcessGrid& g) {
      return std::tuple(std::max({g[Dim::depth], g[Dim::height], g[Dim::width]}), -g[Dim::depth], -g[Dim::height]);
    };
    return key(a) < key(b);
  });
}

struct Options {
  Index size = 256, steps = 10;
  int every = 1;        ///< substeps per exchange
  bool single = false;  ///< float
  ProcessGrid grid;     ///< for all ranks
  bool grid_given = false;
  int ranks_per_node = 0;  ///< 0: the machine's own nodes
  std::string vtk;
  bool measure = false, place = false, tune = false, scaling = false, plan = false, help = false;
};

/// Throws InvalidArgument (equal on all ranks).
inline Options parse(int argc, char** argv, int ranks) {
  const auto bad = [](std::string_view flag, std::string_view value, const char* expectation) {
    throw aloni::InvalidArgument("stencil", std::string(flag), std::string(value), expectation);
  };
  Options options;
  options.grid = even_grid(ranks);
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag = argv[i];
    const auto value = [&]() -> std::string_view {
      if (i + 1 == argc) bad(flag, "", "a value behind it");
      return argv[++i];
    };
    const auto number = [&] {
      const std::string_view text = value();
      Index n = 0;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
      if (error != std::errc{} || end != text.data() + text.size() || n < 1) bad(flag, text, "a number, at least 1");
      return n;
    };
    if (flag == "--size") {
      options.size = number();
    } else if (flag == "--steps") {
      options.steps = number();
    } else if (flag == "--type") {
      const std::string_view type = value();
      if (type != "float" && type != "double") bad(flag, type, "float or double");
      options.single = type == "float";
    } else if (flag == "--grid") {
      const std::string_view text = value();
      options.grid = ProcessGrid::parse(text);
      options.grid_given = true;
      if (options.grid.size() != ranks || options.grid.spatial_size() != ranks)
        bad(flag, text, "splits of depth, height and width (d, h, w) into as many blocks as there are ranks");
    } else if (flag == "--every") {
      const Index substeps = number();
      if (substeps > 100) bad(flag, std::to_string(substeps), "at most 100");
      options.every = static_cast<int>(substeps);
    } else if (flag == "--vtk") {
      options.vtk = value();
    } else if (flag == "--place") {
      options.place = true;
    } else if (flag == "--tune") {
      options.tune = true;
    } else if (flag == "--ranks-per-node") {
      const Index mates = number();
      if (mates > ranks) bad(flag, std::to_string(mates), "at most the number of ranks");
      options.ranks_per_node = static_cast<int>(mates);
    } else if (flag == "--measure") {
      options.measure = true;
    } else if (flag == "--scaling") {
      options.scaling = true;
    } else if (flag == "--plan") {
      options.plan = true;
    } else if (flag == "--help") {
      options.help = true;
    } else {
      bad("argument", flag, "one of those that --help lists");
    }
  }
  return options;
}

}  // namespace stencil

#include <aloni/core/error.hpp>
#include <aloni/core/trace.hpp>
#include <aloni/core/version.hpp>
#include <aloni/model/tile_kernel.hpp>
#include <aloni/tasks/cholesky.hpp>
#include <aloni/tasks/lu.hpp>
#include <aloni/tools/machine_argument.hpp>
#include <aloni/tools/model_argument.hpp>
#include <aloni/tools/option.hpp>
#include <aloni/tools/precision_argument.hpp>
#include <aloni/tools/quantity_text.hpp>
#include <aloni/tools/result_file.hpp>
#include <aloni/tools/simulate_command.hpp>
#include <aloni/tools/simulate_factorisation_command.hpp>
#include <aloni/tools/text_table.hpp>
#include <aloni/tools/together.hpp>
#include <aloni/views/tile_distribution.hpp>

#include <fmt/format.h>
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

namespace aloni::tools {

namespace {

constexpr const char* command_name = "aloni simulate-factorisation";
constexpr std::int64_t most_rows = std::int64_t{1} << 24, most_tile = std::int64_t{1} << 16;
constexpr std::int64_t most_factorising_ranks = 1 << 16, most_workers = 4096, most_tiles = 1024;
/// Beyond it the file would be too large for a viewer.
constexpr Index most_traced_tasks = 200'000;

struct Spread {
  double least = 0, mean = 0, most = 0;
};

/// Of the idle shares of all ranks.
Spread idle_of(const model::SimulatedTasks& result) {
  Spread idle{1, 0, 0};
  const int ranks = static_cast<int>(result.ranks.size());
  for (int r = 0; r < ranks; ++r) {
    const double share = result.idle_share(r);
    idle.least = std::min(idle.least, share);
    idle.most = std::max(idle.most, share);
    idle.mean += share / ranks;
  }
  return idle;
}

double most_copies(const model::SimulatedTasks& result) {
  return std::ranges::max_element(result.ranks, {}, &model::SimulatedTasks::Rank::most_copies)->most_copies;
}

std::string efficiency_text(double share) { return fmt::format("{:.1f} %", 100 * share); }

}  // namespace

SimulateFactorisationCommand::SimulateFactorisationCommand(CLI::App& app)
    : command_(app.add_subcommand(
          "simulate-factorisation",
          "Predict the time of a tile Cholesky or LU factorisation on a machine, for any numbers of ranks")) {
  const auto add = [&](const char* name, auto& value, const std::string& text, const char* type) {
    return add_option(*command_, name, value, text, type);
  };
  command_->add_option("--machine", machine_, machine_help())->type_name("NAME|FILE.json")->required()->take_last();
  add("--algorithm", algorithm_, "cholesky or lu", "NAME");
  add("--n", n_, "Rows of the matrix", "N")->required();
  add("--tile", tile_, "Columns of a tile; 0: as the library chooses", "B");
  add("--tall", tall_, "Rows of a tile, as a multiple of its columns; 0: as the library chooses", "H");
  add("--ranks", ranks_, "Ranks, which fill the nodes; not those of mpirun; several: 1,2,4", "P,P,...");
  add("--workers", workers_, "Threads of each rank that run tasks", "W");
  add("--ranks-per-node", ranks_per_node_, "Ranks of a node; 0: those of the machine", "K");
  add("--precision", precision_, "double or float", "TYPE");
  add("--json", json_, "Also write the results to this file, as JSON", "FILE");
  add("--trace", trace_, "Also write the time line of all ranks to this file, for ui.perfetto.dev", "FILE");
}

bool SimulateFactorisationCommand::chosen() const { return command_->parsed(); }

void SimulateFactorisationCommand::check() const {
  check_machine(machine_);
  if (algorithm_ != "cholesky" && algorithm_ != "lu") refuse("--algorithm", algorithm_, "cholesky or lu");
  check_range("--n", n_, 1, most_rows);
  check_range("--tile", tile_, 0, most_tile);
  if (tile_ > 0 && ceil_div(n_, tile_) > most_tiles) {
    refuse("--tile", std::to_string(tile_),
           fmt::format("at least {} columns: at most {} tile columns", ceil_div(n_, most_tiles), most_tiles));
  }
  check_range("--tall", tall_, 0, 1024);
  if (is_lu() && tall_ > 1) refuse("--tall", std::to_string(tall_), "1 for lu, whose tiles are square");
  check_range("--workers", workers_, 1, most_workers);
  check_range("--ranks-per-node", ranks_per_node_, 0, most_factorising_ranks);
  const auto ranks = parse_integers(ranks_, 1, most_factorising_ranks);
  if (!ranks) {
    refuse("--ranks", ranks_.empty() ? "\"\"" : ranks_,
           fmt::format("an integer from 1 to {}, or several of them: 1,2,4", most_factorising_ranks));
  }
  if (precision_ != "double" && precision_ != "float") refuse("--precision", precision_, "double or float");
  if (command_->count("--json") > 0 && json_.empty()) refuse("--json", "\"\"", "the path of a file");
  if (command_->count("--trace") > 0 && trace_.empty()) refuse("--trace", "\"\"", "the path of a file");
  if (!trace_.empty() && trace_ == json_) refuse("--trace", trace_, "a path that differs from --json");
  if (!trace_.empty() && ranks->size() > 1) refuse("--trace", trace_, "one number of ranks");
}

void SimulateFactorisationCommand::add_to(comm::ReplicatedValues& values) const {
  values.add("--machine", machine_)
      .add("--algorithm", algorithm_)
      .add("--n", n_)
      .add("--tile", tile_)
      .add("--tall", tall_);
  values.add("--ranks", ranks_).add("--workers", workers_).add("--ranks-per-node", ranks_per_node_);
  values.add("--precision", precision_);
  for (const auto& [option, path] : {std::pair("--json", json_), std::pair("--trace", trace_)})
    values.add(option, std::string(path.empty() ? "not given" : "given"));
}

views::TileShape SimulateFactorisationCommand::choose_tile(int workers) const {
  if (is_lu()) return tile_ > 0 ? tile_ : std::max(tasks::suggested_lu_tile(n_, workers), ceil_div(n_, most_tiles));
  views::TileShape tile = tasks::suggested_tile(n_, workers);
  if (const Index columns = tile_ > 0 ? tile_ : ceil_div(n_, most_tiles); tile_ > 0 || columns > tile.columns)
    tile = tasks::suggested_tile(n_, workers, columns);
  if (tall_ > 0) tile.rows = tall_ * tile.columns;
  return tile;
}

SimulateFactorisationCommand::Case SimulateFactorisationCommand::simulate(const model::Machine& machine,
                                                                          int ranks) const {
  const int workers = static_cast<int>(workers_);
  const views::TileShape tile = choose_tile(workers * ranks);
  const views::TileDistribution tiles(n_, n_, tile, views::squarest_grid(ranks));
  const std::unique_ptr<tasks::TaskRule> rule =
      is_lu() ? std::unique_ptr<tasks::TaskRule>(std::make_unique<tasks::LuRule>(tiles))
              : std::make_unique<tasks::CholeskyRule>(tiles);
  if (const Index t = tiles.tile_columns(); !trace_.empty() && t * t * t / (is_lu() ? 3 : 6) > most_traced_tasks) {
    throw InvalidArgument(command_name, "--trace", fmt::format("{} tile columns", t),
                          fmt::format("about {} tasks at most; use larger tiles", most_traced_tasks));
  }
  const nn::ElementType type = precision_of(precision_);
  const model::TileKernelTimes kernels(machine, std::min(ranks, machine.ranks_per_node), workers);
  const model::TasksOnRanks run = model::factorisation_on(tiles, type, kernels, workers);

  Case which{.ranks = ranks, .tile = tile};
  const double n = static_cast<double>(n_);
  which.flops = n * n * n * (is_lu() ? 2. : 1.) / 3;
  which.result = model::simulate_tasks(*rule, run, machine, {.timeline = !trace_.empty()});
  // All kernels of full tiles have the source of these, up to the few at the border.
  const auto last = static_cast<std::int32_t>(tiles.tile_rows() - 1);
  const tasks::Task task = rule->writer_of({{0, last, 0}, 1});
  which.measured = kernels.of(model::kernels_of(task, tiles, type).front()).source == model::KernelSource::measured;
  return which;
}

std::string SimulateFactorisationCommand::to_text(const model::Machine& machine, const std::vector<Case>& cases) const {
  const bool measured = cases.front().measured;
  std::string text =
      fmt::format("{} of {} rows, {}, {} on {} with {} per node; kernels {}\n\n", is_lu() ? "LU" : "Cholesky", n_,
                  precision_, count_text(workers_, "worker") + " per rank", machine.name,
                  count_text(machine.ranks_per_node, "rank"), measured ? "measured" : "by the roofline");
  std::vector<std::vector<std::string>> rows{
      {"ranks", "tile", "tasks", "time", "GFLOP/s", "efficiency", "idle, most", "sent", "messages", "critical path"}};
  for (const Case& c : cases) {
    const model::SimulatedTasks& r = c.result;
    const auto tiles = r.tiles();
    rows.push_back({std::to_string(c.ranks), to_string(c.tile), number_text(static_cast<double>(r.tasks)),
                    seconds_text(r.seconds), fmt::format("{:.4g}", 1e-9 * c.flops / r.seconds),
                    efficiency_text(r.parallel_efficiency()), efficiency_text(idle_of(r).most),
                    bytes_text(static_cast<Index>(r.bytes_sent())),
                    number_text(static_cast<double>(tiles.payloads + tiles.requests + tiles.forwarded)),
                    seconds_text(r.critical_path)});
  }
  text += text_table(rows, 0);
  text += "\nefficiency: time of all kernels divided among all workers, as a share of the predicted time\n";
  return text;
}

std::string SimulateFactorisationCommand::to_json(const model::Machine& machine, const std::vector<Case>& cases) const {
  nlohmann::ordered_json json;
  json["version"] = std::string(version());
  json["machine"] = machine.name;
  json["algorithm"] = algorithm_;
  json["n"] = n_;
  json["precision"] = precision_;
  json["workers"] = workers_;
  json["ranks_per_node"] = machine.ranks_per_node;
  for (const Case& c : cases) {
    const model::SimulatedTasks& r = c.result;
    const Spread idle = idle_of(r);
    const auto tiles = r.tiles();
    json["cases"].push_back({{"ranks", c.ranks},
                             {"tile_rows", c.tile.rows},
                             {"tile_columns", c.tile.columns},
                             {"tasks", r.tasks},
                             {"seconds", r.seconds},
                             {"gflops", 1e-9 * c.flops / r.seconds},
                             {"parallel_efficiency", r.parallel_efficiency()},
                             {"idle_share_least", idle.least},
                             {"idle_share_mean", idle.mean},
                             {"idle_share_most", idle.most},
                             {"kernel_seconds", r.kernels},
                             {"critical_path_seconds", r.critical_path},
                             {"kernels_measured", c.measured},
                             {"bytes_sent", r.bytes_sent()},
                             {"payloads", tiles.payloads},
                             {"requests", tiles.requests},
                             {"forwarded", tiles.forwarded},
                             {"most_copy_bytes_per_rank", most_copies(r)}});
  }
  return json.dump(2) + "\n";
}

std::string SimulateFactorisationCommand::trace_text(const Case& which) const {
  std::vector<std::string> events;
  for (std::size_t r = 0; r < which.result.reports.size(); ++r) {
    const int rank = static_cast<int>(r);
    events.push_back(trace_events(trace_of(which.result.reports[r], rank, fmt::format("rank {}", rank))));
  }
  const std::vector<TraceArgument> about{{"command", std::string(command_name)}, {"machine", machine_}};
  return trace_file(events, about);
}

void SimulateFactorisationCommand::run() const {
  for (const std::string& path : {json_, trace_})
    if (!path.empty()) check_result_file_can_be_written(path);
  model::Machine machine = read_machine_argument(machine_);
  if (ranks_per_node_ > 0) machine.ranks_per_node = static_cast<int>(ranks_per_node_);
  std::vector<Case> cases;
  const std::vector<std::int64_t> rank_counts = parse_integers(ranks_, 1, most_factorising_ranks).value();
  for (const std::int64_t ranks : rank_counts) cases.push_back(simulate(machine, static_cast<int>(ranks)));
  fmt::print("{}", to_text(machine, cases));
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    throw FileError(command_name, "standard output", "cannot be written", "a device with free space for the results");
  }
  if (!json_.empty()) write_result_file(json_, to_json(machine, cases));
  if (trace_.empty()) return;
  write_result_file(trace_, trace_text(cases.front()));
}

}  // namespace aloni::tools

#include <aloni/core/error.hpp>
#include <aloni/tools/machine_argument.hpp>
#include <aloni/tools/model_argument.hpp>
#include <aloni/tools/optimiser_kind_argument.hpp>
#include <aloni/tools/option.hpp>
#include <aloni/tools/precision_argument.hpp>
#include <aloni/tools/result_file.hpp>
#include <aloni/tools/simulate_command.hpp>
#include <aloni/tools/simulation_drawing.hpp>
#include <aloni/tools/together.hpp>

#include <fmt/format.h>
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include <charconv>
#include <cstddef>
#include <cstdio>
#include <limits>
#include <system_error>
#include <utility>

namespace aloni::tools {

namespace {

constexpr std::int64_t most_simulated_ranks = 1'000'000;
constexpr double least_factor = 1e-3, most_factor = 1e3;
constexpr std::size_t most_cases = 1000;
constexpr std::int64_t most_micro_batches = 1000;
constexpr double most_sigma = 3;
constexpr std::int64_t most_draws = 100'000;

template <class T>
std::optional<std::vector<T>> parse_list(const std::string& text, T least, T most) {
  std::vector<T> numbers;
  const char *place = text.data(), *const end = text.data() + text.size();
  while (true) {
    T number{};
    const auto [rest, error] = std::from_chars(place, end, number);
    if (error != std::errc() || !(number >= least && number <= most)) return std::nullopt;
    numbers.push_back(number);
    if (rest == end) return numbers;
    if (*rest != ',') return std::nullopt;
    place = rest + 1;
  }
}

void check_integers(const char* option, const std::string& text, std::int64_t most) {
  if (!parse_integers(text, 1, most))
    refuse(option, text.empty() ? "\"\"" : text,
           fmt::format("an integer from 1 to {}, or several of them: 1,2,4", most));
}

void check_factors(const char* option, const std::string& text) {
  if (!parse_numbers(text, least_factor, most_factor))
    refuse(option, text.empty() ? "\"\"" : text,
           fmt::format("a number from {} to {}, or several of them: 0.5,1,2", least_factor, most_factor));
}

}  // namespace

std::optional<std::vector<std::int64_t>> parse_integers(const std::string& text, std::int64_t least,
                                                        std::int64_t most) {
  return parse_list(text, least, most);
}

std::optional<std::vector<double>> parse_numbers(const std::string& text, double least, double most) {
  return parse_list(text, least, most);
}

std::optional<SlowLinks> parse_slow_links(const std::string& text) {
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos) return std::nullopt;
  const auto share = parse_numbers(text.substr(0, colon), 0, 1);
  const auto factor = parse_numbers(text.substr(colon + 1), 1, most_factor);
  if (!share || !factor || share->size() != 1 || factor->size() != 1) return std::nullopt;
  return SlowLinks{share->front(), factor->front()};
}

SimulateCommand::SimulateCommand(CLI::App& app)
    : command_(app.add_subcommand(
          "simulate",
          "Predict the time of a training step on a machine, for any numbers of ranks, without running it")) {
  const auto add = [&](const char* name, auto& value, const std::string& text, const char* type) {
    return add_option(*command_, name, value, text, type);
  };
  command_->add_option("--machine", machine_, machine_help())->type_name("NAME|FILE.json")->required()->take_last();
  network_.add_options(*command_);
  add("--batch", batch_, "Samples per step, summed over all ranks; several: 64,128", "N,N,...");
  add("--accumulate", accumulate_,
      "Micro-batches of a step, which are computed one after another in the memory of one; divides --batch", "N");
  add("--ranks", ranks_, "Ranks of the step, which fill the nodes; not those of mpirun; several: 1,2,4", "P,P,...");
  add("--ranks-per-node", ranks_per_node_, "Ranks of a node; 0: those of the machine", "K");
  strategy_.add_options(*command_, ", or auto, the fastest that the model finds");
  objective_.add_options(*command_);
  add("--precision", precision_, "Type of activations: " + listed(precisions), "TYPE");
  add_optimiser_kind_option(*command_, optimiser_);
  memory_.add_options(*command_);
  add("--flops-factor", flops_factor_, "Peak rate of arithmetic, as a multiple; several: 1,2,4", "X,X,...");
  add("--memory-bandwidth-factor", memory_bandwidth_factor_, "Bandwidth of main memory, as a multiple", "X,X,...");
  add("--link-bandwidth-factor", link_bandwidth_factor_, "Bandwidth between nodes and devices, as a multiple",
      "X,X,...");
  add("--stragglers", stragglers_,
      "Spread of the speed of ranks: sigma of a lognormal factor of kernels, new for each rank and step", "SIGMA");
  add("--slow-links", slow_links_, "Share of slow links between nodes, and the factor of the times of their messages",
      "SHARE:FACTOR");
  add("--draws", draws_, "Random steps for --stragglers and --slow-links", "N");
  add("--seed", seed_, "Seed of these steps", "N");
  add("--json", json_, "Also write the results to this file, as JSON", "FILE");
  add("--trace", trace_, "Also write the time line of the step to this file, for ui.perfetto.dev", "FILE");
  add("--draw", drawing_, "Also draw the times to this file, as SVG: a sweep as curves, a single step as bars",
      "FILE.svg");
}

bool SimulateCommand::chosen() const { return command_->parsed(); }

void SimulateCommand::check() const {
  check_machine(machine_);
  network_.check();
  check_integers("--batch", batch_, most_of_an_option);
  check_range("--accumulate", accumulate_, 1, most_micro_batches);
  const std::vector<std::int64_t> batches = parse_integers(batch_, 1, most_of_an_option).value();
  for (const std::int64_t batch : batches)
    if (batch % accumulate_ != 0)
      refuse("--accumulate", std::to_string(accumulate_),
             fmt::format("a divisor of --batch {}: micro-batches have equal sizes", batch));
  check_integers("--ranks", ranks_, most_simulated_ranks);
  check_range("--ranks-per-node", ranks_per_node_, 0, most_simulated_ranks);
  strategy_.check();
  if (strategy_.is_automatic()) strategy_.check_automatic();
  objective_.check(strategy_);
  precision_of(precision_);
  optimiser_kind_of(optimiser_);
  memory_.check();
  check_factors("--flops-factor", flops_factor_);
  check_factors("--memory-bandwidth-factor", memory_bandwidth_factor_);
  check_factors("--link-bandwidth-factor", link_bandwidth_factor_);
  if (!(stragglers_ >= 0 && stragglers_ <= most_sigma))
    refuse("--stragglers", fmt::format("{}", stragglers_), fmt::format("a number from 0 to {}", most_sigma));
  if (command_->count("--slow-links") > 0 && !parse_slow_links(slow_links_))
    refuse("--slow-links", slow_links_.empty() ? "\"\"" : slow_links_,
           fmt::format("SHARE:FACTOR with a share from 0 to 1 and a factor from 1 to {}: 0.01:4", most_factor));
  check_range("--draws", draws_, 1, most_draws);
  check_range("--seed", seed_, 0, std::numeric_limits<std::int64_t>::max());
  if (!variation()) {
    for (const char* option : {"--draws", "--seed"})
      if (command_->count(option) > 0) refuse(option, "given", "--stragglers or --slow-links beside it");
  }
  for (const auto& [option, path] :
       {std::pair("--json", &json_), std::pair("--trace", &trace_), std::pair("--draw", &drawing_)})
    if (command_->count(option) > 0 && path->empty()) refuse(option, "\"\"", "the path of a file");
  if (!trace_.empty() && trace_ == json_) refuse("--trace", trace_, "a path that differs from --json");
  if (!drawing_.empty() && (drawing_ == json_ || drawing_ == trace_))
    refuse("--draw", drawing_, "a path that differs from --json and --trace");
  std::size_t number = batches.size() * parse_integers(ranks_, 1, most_simulated_ranks)->size();
  for (const std::string& factors : {flops_factor_, memory_bandwidth_factor_, link_bandwidth_factor_})
    number *= parse_numbers(factors, least_factor, most_factor)->size();
  if (!trace_.empty() && number > 1)
    refuse("--trace", trace_, fmt::format("a single step; the lists have {} combinations", number));
  if (number > most_cases)
    refuse("--ranks", ranks_, fmt::format("at most {} combinations of all lists; these are {}", most_cases, number));
}

void SimulateCommand::add_to(comm::ReplicatedValues& values) const {
  values.add("--machine", machine_);
  network_.add_to(values);
  values.add("--batch", batch_)
      .add("--accumulate", accumulate_)
      .add("--ranks", ranks_)
      .add("--ranks-per-node", ranks_per_node_);
  strategy_.add_to(values);
  objective_.add_to(values);
  values.add("--precision", precision_).add("--optimiser", optimiser_);
  memory_.add_to(values);
  values.add("--flops-factor", flops_factor_).add("--memory-bandwidth-factor", memory_bandwidth_factor_);
  values.add("--link-bandwidth-factor", link_bandwidth_factor_);
  values.add("--stragglers", stragglers_).add("--slow-links", slow_links_);
  values.add("--draws", draws_).add("--seed", seed_);
  for (const auto& [option, path] :
       {std::pair("--json", json_), std::pair("--trace", trace_), std::pair("--draw", drawing_)})
    values.add(option, std::string(path.empty() ? "not given" : "given"));
}

std::optional<model::Variation> SimulateCommand::variation() const {
  if (command_->count("--stragglers") + command_->count("--slow-links") == 0) return std::nullopt;
  const SlowLinks slow = slow_links_.empty() ? SlowLinks{} : parse_slow_links(slow_links_).value();
  return model::Variation{.straggler_sigma = stragglers_,
                          .slow_link_share = slow.share,
                          .slow_link_factor = slow.factor,
                          .draws = static_cast<int>(draws_),
                          .seed = static_cast<std::uint64_t>(seed_)};
}

std::vector<SimulationCase> SimulateCommand::cases() const {
  const auto factors = [](const std::string& text) { return parse_numbers(text, least_factor, most_factor).value(); };
  const std::vector<std::int64_t> rank_counts = parse_integers(ranks_, 1, most_simulated_ranks).value();
  const std::vector<std::int64_t> batches = parse_integers(batch_, 1, most_of_an_option).value();
  const std::vector<double> flops_factors = factors(flops_factor_), link_factors = factors(link_bandwidth_factor_);
  const std::vector<double> memory_factors = factors(memory_bandwidth_factor_);
  std::vector<SimulationCase> all;
  for (const std::int64_t ranks : rank_counts) {
    std::optional<nn::Strategy> strategy;
    if (!strategy_.is_automatic()) strategy = strategy_.read(static_cast<int>(ranks));
    for (const std::int64_t batch : batches)
      for (const double flops : flops_factors)
        for (const double memory : memory_factors)
          for (const double link : link_factors)
            all.push_back({static_cast<int>(ranks), batch, strategy, {flops, memory, link}});
  }
  return all;
}

void SimulateCommand::run() const {
  for (const std::string& path : {json_, trace_, drawing_})
    if (!path.empty()) check_result_file_can_be_written(path);
  SimulationRequest request{.model = network_.model(),
                            .network = network_.network(),
                            .machine = read_machine_argument(machine_),
                            .activations = precision_of(precision_),
                            .optimiser = optimiser_kind_of(optimiser_),
                            .memory = memory_.wish(),
                            .accumulate = static_cast<int>(accumulate_),
                            .objective = objective_.value(),
                            .variation = variation(),
                            .cases = cases(),
                            .timeline = !trace_.empty(),
                            .messages = !json_.empty()};
  if (ranks_per_node_ > 0) request.machine.ranks_per_node = static_cast<int>(ranks_per_node_);
  std::vector<SimulatedCase> results;
  for (const SimulationCase& which : request.cases) results.push_back(simulate_case(request, which));
  fmt::print("{}", to_text(request, results));
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    throw FileError("aloni simulate", "standard output", "cannot be written",
                    "a device with free space for the results");
  }
  if (!json_.empty()) write_result_file(json_, to_json(request, results));
  if (!drawing_.empty()) write_result_file(drawing_, to_svg(request, results));
  if (trace_.empty()) return;
  if (!results.front().was_simulated())
    throw InvalidArgument("aloni simulate --trace", "strategy", results.front().strategy,
                          "one that fits into the memory of a rank");
  write_result_file(trace_, trace_text(request, request.cases.front(), results.front()));
}

}  // namespace aloni::tools

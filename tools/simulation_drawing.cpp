#include <aloni/tools/simulation_drawing.hpp>

#include <aloni/nn/step_times.hpp>
#include <aloni/tools/chart_panel.hpp>
#include <aloni/tools/quantity_text.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <utility>

namespace aloni::tools {

namespace {

constexpr std::size_t blue = 0, red = 1, green = 2, pink = 3, orange = 5, purple = 6;
constexpr std::size_t longest_line = 150;

/// A quantity that a sweep can vary.
struct SweptQuantity {
  const char* title;
  const char* name;  ///< before a value
  double (*value)(const SimulationCase&);
};

constexpr std::array swept_quantities{
    SweptQuantity{"ranks", "ranks", [](const SimulationCase& c) { return static_cast<double>(c.ranks); }},
    SweptQuantity{"mini-batch, samples", "batch", [](const SimulationCase& c) { return static_cast<double>(c.batch); }},
    SweptQuantity{"flop rate, multiple of the machine's", "flop rate ×",
                  [](const SimulationCase& c) { return c.factors.flops; }},
    SweptQuantity{"bandwidth of memory, multiple of the machine's", "memory ×",
                  [](const SimulationCase& c) { return c.factors.memory_bandwidth; }},
    SweptQuantity{"bandwidth of links, multiple of the machine's", "links ×",
                  [](const SimulationCase& c) { return c.factors.link_bandwidth; }}};

std::set<double> values_of(const SimulationRequest& request, const SweptQuantity& swept) {
  std::set<double> values;
  for (const SimulationCase& c : request.cases) values.insert(swept.value(c));
  return values;
}

/// Cases of a sweep that differ in the quantity of the horizontal axis only.
struct Combination {
  std::string name;
  std::vector<std::size_t> cases;  ///< positions in the request, by ascending value of the quantity
};

/// "batch 64, links × 2".
std::string combination_text(const SimulationRequest& request, const SimulationCase& which,
                             const SweptQuantity& along) {
  std::string text;
  for (const SweptQuantity& swept : swept_quantities) {
    if (swept.title == along.title || values_of(request, swept).size() < 2) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", swept.name, plain_text(swept.value(which)));
  }
  return text;
}

std::vector<Combination> combinations_of(const SimulationRequest& request, const SweptQuantity& along) {
  std::vector<Combination> all;
  for (std::size_t i = 0; i < request.cases.size(); ++i) {
    const std::string name = combination_text(request, request.cases[i], along);
    auto found = std::ranges::find(all, name, &Combination::name);
    if (found == all.end()) found = all.insert(all.end(), {.name = name, .cases = {}});
    found->cases.push_back(i);
  }
  for (Combination& c : all)
    std::ranges::stable_sort(c.cases, {}, [&](std::size_t i) { return along.value(request.cases[i]); });
  return all;
}

std::string drawing_heading(const SimulationRequest& request) {
  return fmt::format("{}, {}, on {} with {} per node{}", request.model, nn::name(request.activations),
                     request.machine.name, count_text(request.machine.ranks_per_node, "rank"),
                     request.accumulate > 1 ? fmt::format(", {} micro-batches", request.accumulate) : "");
}

class SweepDrawing {
 public:
  SweepDrawing(const SimulationRequest& request, const std::vector<SimulatedCase>& results)
      : request_(request), results_(results), along_(&swept_quantities[0]) {
    for (const SweptQuantity& swept : swept_quantities)
      if (values_of(request, swept).size() > values_of(request, *along_).size()) along_ = &swept;
  }

  std::string to_svg() const {
    std::vector<Combination> combinations = combinations_of(request_, *along_);
    const std::size_t all = combinations.size();
    combinations.resize(std::min(all, most_drawn_combinations));
    const std::set<double> values = values_of(request_, *along_);
    LinePanel panel{.title = "Time of a training step",
                    .note = "of the slowest rank",
                    .x_title = along_->title,
                    .y_title = "time of a step",
                    .y_text = time_text,
                    .x_values = {values.begin(), values.end()}};
    if (all > combinations.size())
      panel.note += fmt::format("; the first {} of {} combinations are drawn", combinations.size(), all);
    for (std::size_t c = 0; c < combinations.size(); ++c)
      if (all == 1) {
        add_parts(panel, combinations[c]);
      } else {
        add_curves(panel, combinations[c], c);
      }

    SvgPage page;
    page.text(SvgPage::margin, 40, "title", "Simulated training steps");
    page.text(SvgPage::margin, 62, "muted", drawing_heading(request_));
    double end = tools::draw(page, panel, {SvgPage::margin, 86, SvgPage::width - 2 * SvgPage::margin, 340}) + 10;
    const auto line = [&](const std::string& text) {
      end = page.lines_of_text(SvgPage::margin, end + 8, "small muted", text, longest_line);
    };
    line("Exposed communication: copies and waits, which no kernel hides.");
    const auto count = [&](auto is) { return std::ranges::count_if(results_, is); };
    if (count([](const SimulatedCase& r) { return r.was_simulated() && !r.reason.empty(); }) > 0)
      line("Hollow dots: the step needs more memory than a rank has.");
    if (const auto missing = count([](const SimulatedCase& r) { return !r.was_simulated(); }); missing > 0)
      line(fmt::format("Without a dot: {} of {} steps, for which no strategy fits into the memory of a rank.", missing,
                       results_.size()));
    return page.document("Simulated training steps", end + 12);
  }

 private:
  template <class F>
  ChartLine curve(std::string name, const Combination& c, std::size_t colour, ChartMarks marks,
                  const F& seconds) const {
    ChartLine line{.name = std::move(name), .colour = colour, .marks = marks};
    for (const std::size_t i : c.cases)
      if (results_[i].was_simulated())
        line.dots.push_back({along_->value(request_.cases[i]), seconds(results_[i]), !results_[i].reason.empty()});
    return line;
  }

  void add_parts(LinePanel& panel, const Combination& c) const {
    const auto add = [&](const char* name, std::size_t colour, ChartMarks marks, auto seconds) {
      panel.lines.push_back(curve(name, c, colour, marks, seconds));
    };
    constexpr ChartMarks whole = ChartMarks::line_and_dots, dashed = ChartMarks::dashed_line_and_dots;
    add("step", blue, whole, [](const SimulatedCase& r) { return r.step.seconds; });
    add("kernels", green, whole, [](const SimulatedCase& r) { return r.step.seconds - r.step.exposed_communication; });
    add("exposed communication", red, whole, [](const SimulatedCase& r) { return r.step.exposed_communication; });
    if (!request_.variation) return;
    add("mean with variation", purple, dashed, [](const SimulatedCase& r) { return r.varied.mean; });
    add("95 % of steps with variation", pink, dashed, [](const SimulatedCase& r) { return r.varied.percentile_95; });
  }

  void add_curves(LinePanel& panel, const Combination& c, std::size_t colour) const {
    const auto seconds = [&](const SimulatedCase& r) { return request_.variation ? r.varied.mean : r.step.seconds; };
    const char* const what = request_.variation ? "mean step" : "step";
    panel.lines.push_back(curve(fmt::format("{}, {}", c.name, what), c, colour, ChartMarks::line_and_dots, seconds));
    const auto exposed = [](const SimulatedCase& r) { return r.step.exposed_communication; };
    if (std::ranges::any_of(c.cases, [&](std::size_t i) { return exposed(results_[i]) > 0; }))
      panel.lines.push_back(curve(c.name + ", exposed", c, colour, ChartMarks::dashed_line_and_dots, exposed));
  }

  const SimulationRequest& request_;
  const std::vector<SimulatedCase>& results_;
  const SweptQuantity* along_;
};

// --- a single step ---

std::string share_of_step(double seconds, const model::SimulatedStep& step) {
  return fmt::format("{} ({:.1f} %)", time_text(seconds), step.seconds > 0 ? 100 * seconds / step.seconds : 0.0);
}

/// The step as one bar: kernels by phase, and the communication that they do not hide.
BarPanel panel_of_step(const model::SimulatedStep& step) {
  const auto kernels = [&](nn::StepPhase phase) { return step.phases[static_cast<std::size_t>(phase)].kernels; };
  return {.title = "Step",
          .axis_title = "time",
          .parts = {{"kernels of forward and loss", blue},
                    {"kernels of backward", green},
                    {"kernels of update", purple},
                    {"exposed communication", red}},
          .rows = {
              {.name = "training step",
               .values = {kernels(nn::StepPhase::forward) + kernels(nn::StepPhase::loss),
                          kernels(nn::StepPhase::backward), kernels(nn::StepPhase::update), step.exposed_communication},
               .text = time_text(step.seconds)}}};
}

BarPanel panel_of_times(const char* title) {
  return {
      .title = title, .axis_title = "time", .parts = {{"kernels", blue}, {"copies and sums", orange}, {"waits", red}}};
}

void add_time_row(BarPanel& panel, const std::string& name, const std::string& grid, const model::RankTime& time,
                  const model::SimulatedStep& step) {
  panel.rows.push_back({.name = name,
                        .note = grid,
                        .values = {time.kernels, time.copies, time.waits},
                        .text = share_of_step(time.sum(), step)});
}

std::string svg_of_step(const SimulationRequest& request, const SimulationCase& which, const SimulatedCase& result) {
  const std::string title = fmt::format("{} on {}", request.model, count_text(which.ranks, "rank"));
  SvgPage page;
  page.text(SvgPage::margin, 40, "title", "Simulated training step: " + title);
  page.text(SvgPage::margin, 62, "muted",
            fmt::format("{}, strategy {}, batch {}", drawing_heading(request), result.strategy, which.batch));
  double end = 84;
  if (!result.reason.empty())
    end = page.lines_of_text(SvgPage::margin, end, "strong", "infeasible: " + result.reason, longest_line) + 6;
  if (!result.was_simulated()) return page.document(title, end + 12);
  const model::SimulatedStep& step = result.step;
  end = tools::draw(page, panel_of_step(step), end) + 26;
  BarPanel phases = panel_of_times("Phases");
  for (std::size_t p = 0; p < step.phases.size(); ++p)
    add_time_row(phases, nn::name(static_cast<nn::StepPhase>(p)), "", step.phases[p], step);
  end = tools::draw(page, phases, end) + 26;
  BarPanel layers = panel_of_times("Layers");
  for (std::size_t i = 0; i < result.grids.size(); ++i)
    add_time_row(layers, request.network.layers[i].name, result.grids[i], step.layers[i], step);
  add_time_row(layers, "no layer", "", step.layers.back(), step);
  end = tools::draw(page, layers, end);
  page.text(SvgPage::margin, end + 20, "small muted",
            "Times of the slowest rank. Exposed communication: copies and waits, which no kernel hides.");
  return page.document(title, end + 32);
}

}  // namespace

std::string to_svg(const SimulationRequest& request, const std::vector<SimulatedCase>& results) {
  if (results.size() == 1) return svg_of_step(request, request.cases.front(), results.front());
  return SweepDrawing(request, results).to_svg();
}

}  // namespace aloni::tools

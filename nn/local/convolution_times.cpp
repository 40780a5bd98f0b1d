#include <aloni/nn/local/convolution_times.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <limits>
#include <utility>

namespace aloni::nn::local {

namespace {

constexpr std::array<std::pair<ElementType, std::string_view>, 4> type_names{{{ElementType::float32, "float32"},
                                                                              {ElementType::float64, "float64"},
                                                                              {ElementType::bfloat16, "bfloat16"},
                                                                              {ElementType::float16, "float16"}}};
constexpr std::array passes_by_number{ConvolutionPass::forward, ConvolutionPass::backward_data,
                                      ConvolutionPass::backward_filter};
constexpr std::string_view input_gaps_text = ", input with gaps", output_gaps_text = ", output with gaps";
constexpr std::string_view engine_text = " engine ";
constexpr std::size_t numbers_of_a_case = 26;

/// The numbers of a problem, in their order in the key.
template <class Problem, class F>
void for_numbers(Problem& p, const F& f) {
  for (auto* const n : {&p.samples, &p.channels, &p.filters, &p.groups}) f(*n);
  for (auto* const three : {&p.input, &p.output, &p.kernel, &p.stride, &p.dilation, &p.offset})
    for (auto& n : *three) f(n);
}

/// Its place in the table above; -1 for a type that convolutions do not have.
Index number_of(ElementType type) {
  const auto found = std::ranges::find(type_names, type, &decltype(type_names)::value_type::first);
  return found == type_names.end() ? -1 : found - type_names.begin();
}

bool is_valid(const ConvolutionProblem& p) {
  const auto all = [](const std::array<Index, 3>& values, Index least) {
    return std::ranges::all_of(values, [least](Index v) { return v >= least; });
  };
  return p.samples >= 0 && p.channels >= 0 && p.filters >= 0 && p.groups >= 1 && p.channels % p.groups == 0 &&
         p.filters % p.groups == 0 && all(p.input, 0) && all(p.output, 0) && all(p.kernel, 1) && all(p.stride, 1) &&
         all(p.dilation, 1);
}

/// Takes a text from its front to its end.
class TextReader {
 public:
  explicit TextReader(std::string_view text) : rest_(text) {}

  bool is_at_end() const { return rest_.empty(); }
  bool take(std::string_view expected) {
    if (!rest_.starts_with(expected)) return false;
    rest_.remove_prefix(expected.size());
    return true;
  }
  bool take(Index& number) {
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), number);
    if (error != std::errc()) return false;
    rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
    return true;
  }
  bool take(std::array<Index, 3>& three) {
    return take("(") && take(three[0]) && take(",") && take(three[1]) && take(",") && take(three[2]) && take(")");
  }

 private:
  std::string_view rest_;
};

/// The inverse of to_string(ConvolutionProblem).
bool take_problem(TextReader& text, ConvolutionProblem& p) {
  const bool sides = text.take(p.samples) && text.take("x") && text.take(p.input) && text.take("x") &&
                     text.take(p.channels) && text.take(" -> ") && text.take(p.output) && text.take("x") &&
                     text.take(p.filters);
  if (!sides || (text.take(", groups ") && (!text.take(p.groups) || p.groups == 1))) return false;
  return text.take(", kernel ") && text.take(p.kernel) && text.take(", stride ") && text.take(p.stride) &&
         text.take(", dilation ") && text.take(p.dilation) && text.take(", offset ") && text.take(p.offset) &&
         is_valid(p);
}

bool is_by_channel(const ConvolutionProblem& p) { return p.groups > 1 && p.channels == p.groups; }
bool fills_vectors(Index n) { return n % 16 == 0; }

bool have_one_kind(const ConvolutionCase& a, const ConvolutionCase& b) {
  const ConvolutionProblem &p = a.problem, &q = b.problem;
  return a.pass == b.pass && a.type == b.type && a.input_gaps == b.input_gaps && a.output_gaps == b.output_gaps &&
         p.kernel == q.kernel && p.stride == q.stride && p.dilation == q.dilation &&
         (p.groups == 1) == (q.groups == 1) && is_by_channel(p) == is_by_channel(q) &&
         fills_vectors(p.channels_per_group()) == fills_vectors(q.channels_per_group()) &&
         fills_vectors(p.filters_per_group()) == fills_vectors(q.filters_per_group());
}

}  // namespace

MeasuredImplementations::Problem numbers_of(const ConvolutionCase& c) {
  MeasuredImplementations::Problem numbers{static_cast<Index>(c.pass), number_of(c.type), c.input_gaps, c.output_gaps};
  numbers.reserve(numbers_of_a_case);
  for_numbers(c.problem, [&](Index n) { numbers.push_back(n); });
  return numbers;
}

std::optional<ConvolutionCase> convolution_case_of(const MeasuredImplementations::Problem& numbers) {
  const auto is_below = [](Index n, Index end) { return n >= 0 && n < end; };
  if (numbers.size() != numbers_of_a_case || !is_below(numbers[0], std::ssize(passes_by_number)) ||
      !is_below(numbers[1], std::ssize(type_names)) || !is_below(numbers[2], 2) || !is_below(numbers[3], 2))
    return std::nullopt;
  ConvolutionCase c{.pass = passes_by_number[static_cast<std::size_t>(numbers[0])],
                    .type = type_names[static_cast<std::size_t>(numbers[1])].first,
                    .input_gaps = numbers[2] == 1,
                    .output_gaps = numbers[3] == 1};
  std::size_t next = 4;
  for_numbers(c.problem, [&](Index& n) { n = numbers[next++]; });
  if (!is_valid(c.problem)) return std::nullopt;
  return c;
}

std::string to_string(const ConvolutionCase& c) {
  const Index type = number_of(c.type);
  std::string text(name(c.pass));
  text += ' ';
  text += type < 0 ? "integers" : type_names[static_cast<std::size_t>(type)].second;
  text += ' ' + to_string(c.problem);
  if (c.input_gaps) text += input_gaps_text;
  if (c.output_gaps) text += output_gaps_text;
  return text;
}

std::optional<ConvolutionCase> parse_convolution_case(std::string_view text) {
  TextReader reader(text);
  ConvolutionCase c;
  const auto pass = std::ranges::find_if(
      passes_by_number, [&](ConvolutionPass p) { return text.starts_with(std::string(name(p)) + ' '); });
  if (pass == passes_by_number.end()) return std::nullopt;
  c.pass = *pass;
  reader.take(name(*pass));
  reader.take(" ");
  const auto type = std::ranges::find_if(type_names, [&](const auto& t) { return reader.take(t.second); });
  if (type == type_names.end() || !reader.take(" ") || !take_problem(reader, c.problem)) return std::nullopt;
  c.type = type->first;
  c.input_gaps = reader.take(input_gaps_text);
  c.output_gaps = reader.take(output_gaps_text);
  if (!reader.is_at_end() || to_string(c) != text) return std::nullopt;  // 007 is no number here
  return c;
}

std::string to_string(const ConvolutionImplementation& i) {
  std::string text(name(i.backend));
  if (i.engine >= 0) text += std::string(engine_text) + std::to_string(i.engine);
  return text;
}

std::optional<ConvolutionImplementation> convolution_implementation_named(std::string_view text) {
  const std::size_t end = text.find(engine_text);
  const auto backend = convolution_backend_named(text.substr(0, end));
  if (!backend || *backend == ConvolutionBackend::automatic) return std::nullopt;
  ConvolutionImplementation found{.backend = *backend};
  if (end == std::string_view::npos) return found;
  TextReader rest(text.substr(end + engine_text.size()));
  Index engine = -1;
  if (*backend != ConvolutionBackend::cudnn || !rest.take(engine)) return std::nullopt;
  found.engine = engine;
  if (to_string(found) != text) return std::nullopt;
  return found;
}

double distance(const ConvolutionCase& a, const ConvolutionCase& b) {
  if (!have_one_kind(a, b)) return std::numeric_limits<double>::infinity();
  const ConvolutionProblem &p = a.problem, &q = b.problem;
  double product = 1;
  const auto compare = [&](Index m, Index n) {
    const auto [less, more] = std::minmax({std::max<Index>(m, 1), std::max<Index>(n, 1)});
    product *= static_cast<double>(more) / static_cast<double>(less);
  };
  compare(p.samples, q.samples);
  compare(p.channels_per_group(), q.channels_per_group());
  compare(p.filters_per_group(), q.filters_per_group());
  compare(p.groups, q.groups);
  for (std::size_t d = 0; d < 3; ++d) compare(p.output[d], q.output[d]);
  return product;
}

}  // namespace aloni::nn::local

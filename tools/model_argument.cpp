#include <aloni/core/nearest_name.hpp>
#include <aloni/nn/model_file.hpp>
#include <aloni/nn/models.hpp>
#include <aloni/tools/model_argument.hpp>
#include <aloni/tools/option.hpp>
#include <aloni/tools/together.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <system_error>
#include <vector>

namespace aloni::tools {

std::string model_help() {
  return "Network: " + listed(nn::model_names()) + "; or a model file, for example of aloni plan --export";
}

std::optional<views::Extents> parse_input(const std::string& text) {
  std::vector<Index> numbers;
  const char *place = text.data(), *const end = text.data() + text.size();
  while (true) {
    Index number = 0;
    const auto [rest, error] = std::from_chars(place, end, number);
    if (error != std::errc() || number < 1 || number > most_of_an_option) return std::nullopt;
    numbers.push_back(number);
    if (rest == end) break;
    if (*rest != 'x') return std::nullopt;
    place = rest + 1;
  }
  if (numbers.size() == 3) return views::make_extents(1, {numbers[0], numbers[1]}, numbers[2]);
  if (numbers.size() == 4) return views::make_extents(1, {numbers[0], numbers[1], numbers[2]}, numbers[3]);
  return std::nullopt;
}

std::string input_text(const views::Extents& extents, int spatial_rank) {
  std::string text;
  for (int i = 4 - spatial_rank; i < 5; ++i)
    text += (text.empty() ? "" : "x") + std::to_string(extents.values[static_cast<std::size_t>(i)]);
  return text;
}

void check_range(const char* option, std::int64_t value, std::int64_t least, std::int64_t largest) {
  if (value < least || value > largest)
    refuse(option, std::to_string(value), fmt::format("from {} to {}", least, largest));
}

void check_model(const std::string& model) {
  const auto names = nn::model_names();
  if (is_model_file(model) || std::ranges::find(names, model) != names.end()) return;
  refuse("--model", model, "the path of a model file (*.json), or " + one_of(model, names));
}

void check_input(const std::string& input) {
  if (!parse_input(input)) refuse("--input", input, "HxWxC or DxHxWxC, extents of at least 1, for example 28x28x1");
}

bool is_model_file(const std::string& model) { return model.ends_with(".json"); }

nn::NetworkDescription network_of_model(const std::string& model, const nn::ModelOptions& given) {
  return is_model_file(model) ? nn::read_model_file(model) : nn::make_model(model, given);
}

void check_not_with_model_file(const std::string& model, const char* option, bool given) {
  if (given && is_model_file(model)) refuse(option, "given", "only with the name of a model; a file has its own");
}

}  // namespace aloni::tools

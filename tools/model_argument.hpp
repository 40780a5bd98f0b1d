#pragma once
// The options --model, --input and --classes of several subcommands.
#include <aloni/views/box.hpp>

#include <cstdint>
#include <optional>
#include <string>

namespace aloni::tools {

/// Largest value of --batch, --steps, --classes and of each extent of --input.
inline constexpr std::int64_t most_of_an_option = 1'000'000'000;

/// The names of all models, separated by commas.
std::string model_list();

/// "28x28x1" or "16x28x28x1" as extents of one sample; none for other texts.
std::optional<views::Extents> parse_input(const std::string& text);

/// Extents of one sample as text: "28x28x1", or "16x28x28x1" for three spatial dimensions.
std::string input_text(const views::Extents& extents, int spatial_rank);

/// Throw UsageError, naming the option.
void check_range(const char* option, std::int64_t value, std::int64_t least, std::int64_t largest);
void check_model(const std::string& model);
void check_input(const std::string& input);

}  // namespace aloni::tools

#pragma once
// The options --model, --input and --classes of several subcommands.
#include <aloni/nn/models.hpp>
#include <aloni/views/box.hpp>

#include <cstdint>
#include <optional>
#include <string>

namespace aloni::tools {

/// Largest value of --batch, --steps, --classes and of each extent of --input.
inline constexpr std::int64_t most_of_an_option = 1'000'000'000;

/// Help text of --model, with the names of all models.
std::string model_help();

/// "28x28x1" or "16x28x28x1" as extents of one sample; none for other texts.
std::optional<views::Extents> parse_input(const std::string& text);

/// Extents of one sample as text: "28x28x1", or "16x28x28x1" for three spatial dimensions.
std::string input_text(const views::Extents& extents, int spatial_rank);

/// Throw UsageError, naming the option.
void check_range(const char* option, std::int64_t value, std::int64_t least, std::int64_t largest);
void check_model(const std::string& model);
void check_input(const std::string& input);

/// Whether --model is the path of a model file (nn/model_file.hpp): it ends with ".json".
bool is_model_file(const std::string& model);
/// The named model with the given options, or the network of a model file. Not collective.
/// @pre check_model(model) throws nothing; without options for a model file
/// Throws FileError, InvalidArgument.
nn::NetworkDescription network_of_model(const std::string& model, const nn::ModelOptions& given);
/// Throws UsageError for an option that a model file does not have. `given`: whether the option is given.
void check_not_with_model_file(const std::string& model, const char* option, bool given);

}  // namespace aloni::tools

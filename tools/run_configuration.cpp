#include <aloni/tools/run_configuration.hpp>

#include <aloni/core/error.hpp>
#include <aloni/core/io/file_system.hpp>
#include <aloni/core/printable.hpp>
#include <aloni/core/text_file.hpp>
#include <aloni/core/version.hpp>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>

namespace aloni::tools {

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* configuration_operation = "aloni --config";
constexpr int format_version = 1;

/// Numbers and truth values as such, so that people can edit them; other texts, and numbers in another form, as texts.
Json value_of(const std::string& text) {
  Json value = Json::parse(text, nullptr, false);
  const bool is_plain = value.is_number() || value.is_boolean();
  return is_plain && value.dump() == text ? value : Json(text);
}

void add_option_to(std::vector<std::string>& arguments, const std::string& path, const std::string& name,
                   const Json& value) {
  const auto fail = [&](const std::string& found, const char* expectation) {
    throw FileError(configuration_operation, printable(path) + ", option " + printable(name), found, expectation);
  };
  if (!name.starts_with("--")) fail("no option", "a name that begins with --");
  if (name == "--config") fail("given", "no --config in a configuration");
  if (value.is_boolean()) {
    if (value.get<bool>()) arguments.push_back(name);
    return;
  }
  if (!value.is_string() && !value.is_number()) fail(printable(value.dump()), "a text, a number, true or false");
  std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  if (text.starts_with("./")) text = io::folder_of(path) + text.substr(1);
  arguments.push_back(name + "=" + text);
}

std::vector<std::string> read_configuration(const std::string& path, int ranks) {
  const Json json = Json::parse(read_text_file(configuration_operation, path, "a configuration"), nullptr, false);
  const auto fail = [&](const std::string& found, const char* expectation) {
    throw FileError(configuration_operation, printable(path), found, expectation);
  };
  if (!json.is_object()) fail("no JSON object", "a configuration that aloni train --run has written");
  if (!json.contains("aloni_run") || json["aloni_run"] != format_version)
    fail("no \"aloni_run\": 1", "a configuration of the version that this program reads");
  if (!json.contains("options") || !json["options"].is_object()) fail("no \"options\"", "an object of options");
  std::vector<std::string> arguments;
  if (json.contains("chosen") && json.contains("ranks") && json["ranks"] == ranks) {
    if (!json["chosen"].is_object()) fail("\"chosen\" is no object", "an object of options");
    for (const auto& [name, value] : json["chosen"].items()) add_option_to(arguments, path, name, value);
  }
  for (const auto& [name, value] : json["options"].items()) add_option_to(arguments, path, name, value);
  return arguments;
}

}  // namespace

RunConfiguration::Options options_of(const CLI::App& command, const std::vector<std::string>& left_out) {
  RunConfiguration::Options options;
  for (const CLI::Option* const option : command.get_options()) {
    const std::string name = option->get_name();
    if (std::ranges::find(left_out, name) != left_out.end() || option == command.get_help_ptr()) continue;
    if (option->get_expected_max() == 0) {  // a flag
      if (option->count() > 0) options.emplace_back(name, "true");
    } else if (option->count() > 0) {
      options.emplace_back(name, option->results().back());
    }
  }
  return options;
}

RunConfiguration::Options defaults_of(const CLI::App& command, const std::vector<std::string>& left_out) {
  RunConfiguration::Options defaults;
  for (const CLI::Option* const option : command.get_options()) {
    const std::string name = option->get_name();
    const bool is_wanted = option->count() == 0 && !option->get_default_str().empty();
    if (is_wanted && std::ranges::find(left_out, name) == left_out.end())
      defaults.emplace_back(name, option->get_default_str());
  }
  return defaults;
}

std::string configuration_text(const RunConfiguration& configuration) {
  Json json{{"aloni_run", format_version}, {"version", version()}, {"ranks", configuration.ranks}};
  const auto add = [&](const char* key, const RunConfiguration::Options& options) {
    json[key] = Json::object();
    for (const auto& [name, text] : options) json[key][name] = value_of(text);
  };
  add("options", configuration.options);
  add("chosen", configuration.chosen);
  add("defaults", configuration.defaults);
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::vector<std::string> with_configuration(const std::vector<std::string>& arguments, int ranks) {
  std::string path;
  bool found = false;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    constexpr std::string_view name = "--config";
    if (arguments[i] == name && i + 1 < arguments.size()) {
      path = arguments[++i];
      found = true;
    } else if (arguments[i].starts_with(std::string(name) + "=")) {
      path = arguments[i].substr(name.size() + 1);
      found = true;
    }
  }
  const auto subcommand = std::ranges::find(arguments, "train");
  if (!found || subcommand == arguments.end()) return arguments;
  std::vector<std::string> all = arguments;
  const std::vector<std::string> options = read_configuration(path, ranks);
  all.insert(all.begin() + (subcommand - arguments.begin()) + 1, options.begin(), options.end());
  return all;
}

}  // namespace aloni::tools

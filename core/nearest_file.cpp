#include <aloni/core/nearest_file.hpp>

#include <aloni/core/nearest_name.hpp>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <vector>

namespace aloni {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t most_entries = 10'000;

}  // namespace

std::string did_you_mean_file(const std::string& text) {
  fs::path path(text);
  if (path.empty()) return {};
  if (!path.has_filename()) path = path.parent_path();  // a slash at the end
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  std::error_code error;
  if (fs::exists(path, error)) return {};
  std::vector<std::string> names;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end && names.size() < most_entries;
       entry.increment(error))
    names.push_back(entry->path().filename().string());
  std::ranges::sort(names);  // of several nearest ones always the same
  const std::string nearest = nearest_name(path.filename().string(), names);
  return nearest.empty() ? "" : "; did you mean " + (path.parent_path() / nearest).string() + "?";
}

}  // namespace aloni

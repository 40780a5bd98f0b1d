#include <aloni/tools/cache_folder.hpp>

#include <cstdlib>

namespace aloni::tools {

std::string cache_folder(const std::string& name) {
  const auto variable = [](const char* of) -> std::string {
    const char* const value = std::getenv(of);
    return value ? value : "";
  };
  const std::string cache = variable("XDG_CACHE_HOME"), home = variable("HOME");
  if (!cache.empty()) return cache + "/aloni/" + name;
  return home.empty() ? "" : home + "/.cache/aloni/" + name;
}

}  // namespace aloni::tools

#pragma once
// The folder of the user for files that only save time.
#include <string>

namespace aloni::tools {

/// $XDG_CACHE_HOME/aloni/NAME or ~/.cache/aloni/NAME; empty if neither variable is set. It need not exist.
std::string cache_folder(const std::string& name);

}  // namespace aloni::tools

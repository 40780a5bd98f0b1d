#pragma once
// Whether this process can use cuDNN. In every build.
#include <optional>
#include <string>

namespace aloni::nn::local::detail {

/// Why not, and what would help; none if it can. The first call loads the library.
std::optional<std::string> cudnn_refusal();

}  // namespace aloni::nn::local::detail

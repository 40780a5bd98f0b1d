#pragma once
// Where a process keeps plans of convolutions: the results of a library's search for the fastest kernels, which takes
// seconds for a deep network. cuDNN's plans are kept; other backends need no search. In every build.
//
//   nn::local::keep_plans_in("/home/me/.cache/aloni/plans");   // before networks are made
#include <string>

namespace aloni::nn::local {

/// `folder`: need not exist; empty, the default: plans are not kept. It holds for convolutions made afterwards. Ranks
/// and processes may share a folder. Not collective. Thread-safe.
void keep_plans_in(std::string folder);
/// That folder.
std::string folder_of_plans();

}  // namespace aloni::nn::local

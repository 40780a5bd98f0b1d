#pragma once
// Finds the file or folder that a mistyped path was meant to be.
#include <string>

namespace aloni {

/// "; did you mean /data/mnist?" for a missing path whose folder exists and has an entry with a near name; otherwise
/// empty. For the end of an error text. Looks at the first 10,000 entries of the folder. Not collective.
std::string did_you_mean_file(const std::string& path);

}  // namespace aloni

#pragma once
// The files of machines/ as texts. Their definition is made from the files when the build is configured.
#include <span>
#include <string_view>

namespace aloni::model::detail {

struct ShippedText {
  std::string_view name;  ///< of the file, without .json
  std::string_view text;
};

/// In alphabetical order.
std::span<const ShippedText> shipped_texts();

}  // namespace aloni::model::detail

#pragma once
// Why a strategy has these splits: for each layer the second best split, and its cost. Private to choose_strategy.cpp.
#include <aloni/model/choose_strategy.hpp>
#include <aloni/model/detail/search_space.hpp>

#include <string>
#include <vector>

namespace aloni::model::detail {

std::vector<LayerChoice> explain_layers(SearchSpace& space, const Splits& splits);

/// "12.3 ms".
std::string duration_text(double seconds);

/// Three digits, or all before the point: "12.3", "1234".
std::string number_text(double value);

}  // namespace aloni::model::detail

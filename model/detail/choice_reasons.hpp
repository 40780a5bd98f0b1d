#pragma once
// Why a strategy has these splits: for each layer the second best split, and its cost. Private to choose_strategy.cpp.
#include <aloni/model/choose_strategy.hpp>
#include <aloni/model/detail/search_space.hpp>

#include <string>
#include <vector>

namespace aloni::model::detail {

std::vector<LayerChoice> explain_layers(SearchSpace& space, const Splits& splits);

}  // namespace aloni::model::detail

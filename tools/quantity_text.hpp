#pragma once
// Quantities as short texts for people, as the model writes them (model/quantity_text.hpp).
#include <aloni/model/quantity_text.hpp>

namespace aloni::tools {

using model::bytes_text;
using model::count_text;
using model::duration_text;
using model::microseconds_text;
using model::number_text;
using model::percent_text;
using model::ranks_text;
using model::rate_text;
using model::seconds_text;

}  // namespace aloni::tools

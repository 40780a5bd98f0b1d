#include <aloni/model/detail/measured_times.hpp>

#include <aloni/core/error.hpp>

#include <cmath>
#include <cstddef>
#include <string>

namespace aloni::model::detail {

void check_times(const char* operation, std::span<const CollectiveTime> times) {
  for (std::size_t i = 0; i < times.size(); ++i) {
    const bool ascends = times[i].bytes > (i == 0 ? 0 : times[i - 1].bytes);
    if (ascends && times[i].seconds > 0 && std::isfinite(times[i].seconds)) continue;
    throw InvalidArgument(operation, "times[" + std::to_string(i) + "]",
                          std::to_string(times[i].bytes) + " bytes in " + std::to_string(times[i].seconds) + " s",
                          "sizes above 0 in ascending order, and times above 0");
  }
  if (times.empty()) throw InvalidArgument(operation, "times", "none", "at least one measured size");
}

}  // namespace aloni::model::detail

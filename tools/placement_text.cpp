#include <aloni/core/machine.hpp>
#include <aloni/tools/placement_text.hpp>
#include <aloni/tools/quantity_text.hpp>
#include <aloni/tools/text_table.hpp>

#include <fmt/format.h>

#include <cstddef>
#include <map>
#include <nlohmann/json.hpp>

namespace aloni::tools {

std::string placement_text(const std::string& reason, const std::vector<int>& rank_of, const std::vector<int>& nodes) {
  std::string text = fmt::format("placement  {}\n", reason);
  if (rank_of.empty() || nodes.empty()) return text;
  std::map<int, std::string> ranks;  // of each node
  for (std::size_t r = 0; r < nodes.size(); ++r) ranks[nodes[r]] += fmt::format(" {}", r);
  constexpr std::size_t most_columns = 98;
  std::string line;
  std::size_t shown = 0;
  for (const auto& [node, numbers] : ranks) {
    const std::string more = fmt::format("{}node {}: ranks{}", shown == 0 ? "           " : "; ", node, numbers);
    if (line.size() + more.size() > most_columns) break;
    line += more;
    ++shown;
  }
  if (shown == 0) return text;
  return text + line + (shown < ranks.size() ? "; …\n" : "\n");
}

std::string savings_text(const std::string& reason) {
  return reason.empty() ? reason : paragraph("savings    " + reason, 11) + "\n";
}

std::string repeats_text(const std::string& reason) {
  return reason.empty() ? reason : paragraph("repeats    " + reason, 11) + "\n";
}

std::string limits_text(const std::string& machine, const std::string& reason) {
  constexpr std::size_t columns = 100;
  std::string text = fmt::format("limits     by {}: {}", machine, reason);
  if (text.size() > columns) text = fmt::format("limits     by {}:\n           {}", machine, reason);
  return text;
}

std::string transfers_text(Index direct_bytes, Index consolidate_below, int ranks, int nodes) {
  if (ranks < 2) return "";
  std::string text = "copies     ranks of a node ";
  if (direct_bytes == unlimited_bytes) {
    text += "send all ghosts to each other\n";
  } else if (direct_bytes == 0) {
    text += "copy all ghosts from each other's memory\n";
  } else {
    text += fmt::format("copy ghosts of {} or more, and send shorter ones to each other\n", bytes_text(direct_bytes));
  }
  if (nodes < 2 || nodes == ranks) return text;
  text += "messages   from a node to another ";
  if (consolidate_below == unlimited_bytes) return text + "are joined into one\n";
  if (consolidate_below == 0) return text + "stay separate\n";
  return text + fmt::format("are joined into one if their mean is below {}\n", bytes_text(consolidate_below));
}

void add_limits(const model::StepLimits& limits, Index direct_bytes, Index consolidate_below,
                nlohmann::ordered_json& json) {
  using Json = nlohmann::ordered_json;
  json["limits"] = {{"reason", limits.reason},
                    {"bucket_bytes", limits.bucket_bytes},
                    {"chunk_bytes", limits.chunk_bytes},
                    {"direct_bytes", direct_bytes},
                    {"consolidate_below", consolidate_below},
                    {"largest_overhead", limits.largest_overhead ? Json(*limits.largest_overhead) : Json()}};
}

}  // namespace aloni::tools
